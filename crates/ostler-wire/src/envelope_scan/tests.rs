use super::*;

/// Scans a line at once and byte by byte. Returns the id and the number of bytes that belong to the line.
fn scan_line(line: &str) -> (Option<String>, usize) {
    let mut whole = EnvelopeScan::new();
    let used = whole.feed(line.as_bytes());
    let mut single = EnvelopeScan::new();
    let single_used: usize = line.as_bytes().iter().map(|byte| single.feed(&[*byte])).sum();
    assert_eq!(whole.response_id(), single.response_id(), "{line}");
    assert_eq!((used, whole.state), (single_used, single.state), "{line}");
    assert!(used == line.len() || whole.is_line_ended(), "{line}");
    (whole.response_id().map(RequestId::to_string), used)
}

fn scan(line: &str) -> Option<String> {
    scan_line(line).0
}

#[test]
fn the_id_of_an_answer_is_found_before_and_after_the_content() {
    let table = [
        r#"{"jsonrpc":"2.0","id":17,"result":{"content":[{"text":"aaa"#,
        r#"{"id" : 17 , "result":"#,
        r#"{"result":{"id":1,"a":[{"id":2}]},"jsonrpc":"2.0","id":17}"#,
        r#"{"result":"\"id\":5}","id":17 }"#,
        r#"{"error":{"code":1,"id":3},"id":17,"#,
        r#"{"id":17,"jsonrpc":"2.0","error":{"#,
    ];
    for line in table {
        assert_eq!(scan(line).as_deref(), Some("17"), "{line}");
    }
    assert_eq!(scan(r#"{"id":"a\"b","result":"#).as_deref(), Some(r#""a\"b""#));
}

#[test]
fn a_nested_id_is_never_taken() {
    let table = [
        r#"{"jsonrpc":"2.0","result":{"id":17,"result":{"#,
        r#"{"jsonrpc":"2.0","result":{"a":1,"id":17}"#,
        r#"{"result":[{"id":17}],"#,
        r#"{"result":"x\",\"id\":17}"#,
        r#"{"result":{"a":"}","id":17}}"#,
    ];
    for line in table {
        assert_eq!(scan(line), None, "{line}");
    }
}

#[test]
fn a_request_of_the_server_is_no_answer() {
    assert_eq!(
        scan(r#"{"jsonrpc":"2.0","id":17,"method":"sampling/createMessage","params":{"result":"#),
        None
    );
    assert_eq!(scan(r#"{"method":"x","params":{},"jsonrpc":"2.0","id":17,"result":1}"#), None);
    assert_eq!(scan(r#"{"m\u0065thod":"x","id":17,"result":1}"#), None);
}

#[test]
fn when_in_doubt_there_is_no_id() {
    let long = format!(r#"{{"id":{},"result":1}}"#, "1".repeat(300));
    let table = [
        "",
        "garbage",
        r#"["id":17,"result":1]"#,
        r#"{"id":17"#,
        r#"{"id":17}"#,
        r#"{"id":17,"id":18,"result":1}"#,
        r#"{"id":{"id":17},"result":1}"#,
        r#"{"id":1.5,"result":1}"#,
        r#"{"id":1 7,"result":1}"#,
        r#"{"id":null,"result":1}"#,
        r#"{{"id":17,"result":1}}"#,
        r#"}{"id":17,"result":1}"#,
        r#"{id:17,"result":1}"#,
        &long,
    ];
    for line in table {
        assert_eq!(scan(line), None, "{line}");
    }
}

#[test]
fn a_line_is_over_where_its_object_has_closed() {
    // The line and the text after it.
    let table = [
        (r#"{"id":17,"result":{}}"#, r#"{"id":18}"#),
        (r#"{"id":17,"result":{"a":[{"b":"}"}]}}"#, "{"),
        (r#"{"result":"\\\"}","id":17}"#, r#"{"id":18}"#),
        (r#"{"id":17,"result":[[],{}]} "#, "x"),
        ("{\"id\":17,\"result\":1}\t\r\n", "\n{"),
        ("{\"id\":17,\"result\":1}\n", " {"),
        // Members after a known id count too.
        (r#"{"id":17,"result":1,"method":"x","id":{}}"#, "}"),
    ];
    for (line, next) in table {
        assert_eq!(scan_line(&format!("{line}{next}")), (Some("17".into()), line.len()), "{line}");
    }
}

#[test]
fn an_object_that_is_no_answer_ends_its_line_too() {
    let table = [
        "{}",
        r#" {"id":17}"#,
        r#"{"id":17,"method":"ping"}"#,
        r#"{"method":"x","params":{"a":"{[","b":[[{}]]}}"#,
        r#"{"id":{"id":[17]},"result":1}"#,
        r#"{{"id":17,"result":1}}"#,
        r#"{id:17,"result":{}}"#,
    ];
    for line in table {
        assert_eq!(scan_line(&format!("{line}{{")), (None, line.len()), "{line}");
    }
}

#[test]
fn a_line_without_sound_nesting_ends_at_its_newline_only() {
    let table = [
        "garbage {}",
        r#"[{"id":17}]{}"#,
        r#"}{"id":17}"#,
        r#""text"{}"#,
        r#"{"result":[}{}"#,
        r#"{"result":[1}]}{}"#,
        r#"{"result":[[[}]]]{}"#,
        r#"{"result":1]{}"#,
        r#"{"result":{"a":1]}{}"#,
    ];
    for line in table {
        assert_eq!(scan_line(&format!("{line}\n{{}}")), (None, line.len() + 1), "{line}");
    }
}

#[test]
fn a_newline_ends_the_line_wherever_it_stands() {
    let table = ["", " ", "{", r#"{"a"#, r#"{"a\"#, r#"{"a":"#, r#"{"a":[{"#, r#"{"a":["b"#, r#"{"a":["b\"#];
    for line in table {
        assert_eq!(scan_line(&format!("{line}\n\"]}}}}{{}}")), (None, line.len() + 1), "{line}");
    }
}

#[test]
fn memory_stays_constant() {
    let mut scan = EnvelopeScan::new();
    scan.feed(br#"{""#);
    assert_eq!((0..10_000).map(|_| scan.feed(&[b'k'; 100])).sum::<usize>(), 1_000_000);
    assert!(scan.token.capacity() <= 2 * MAX_TOKEN_BYTES);
}

#[test]
fn answers_that_are_no_messages_name_their_calls() {
    let table: [(&str, &[&str]); 12] = [
        (r#"{"jsonrpc":"2.0","id":7}"#, &["7"]),
        (r#" {"id":"a","jsonrpc":"2.0"} "#, &["\"a\""]),
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}", &["7"]),
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7}", &["7"]),
        (r#"[{"id":1,"result":{}},{"method":"x","id":2},{"jsonrpc":"2.0","id":3}, 5]"#, &["1", "3"]),
        ("[]", &[]),
        ("[INFO] ready", &[]),
        (r#"{"level":"info","id":7}"#, &[]),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, &[]),
        (r#"{"jsonrpc":"2.0","id":null}"#, &[]),
        (r#"{"jsonrpc":"2.0","id":7"#, &[]),
        ("", &[]),
    ];
    for (line, expected) in table {
        let mut ids = Vec::new();
        extract_response_ids(line.as_bytes(), |id| ids.push(String::from_utf8_lossy(id.raw()).into_owned()));
        assert_eq!(ids, expected, "{line}");
    }
}
