use proptest::prelude::*;

use super::*;

const CAP: usize = 64;

/// Returns all events of a stream that arrives in pieces of `size` bytes.
fn split(stream: &[u8], size: usize) -> Vec<Result<SseEvent, Oversize>> {
    let mut splitter = SseParser::new(CAP);
    let mut events = Vec::new();
    for piece in stream.chunks(size.max(1)) {
        splitter.push(piece);
        while let Some(event) = splitter.next_event() {
            events.push(event);
        }
        assert!(splitter.buffer.len() <= CAP + 6, "the buffer grows past the cap");
    }
    events
}

fn event(data: &str) -> SseEvent {
    SseEvent { name: "message".into(), data: Bytes::copy_from_slice(data.as_bytes()), id: None, retry: None }
}

fn texts(stream: &str) -> Vec<String> {
    let whole = split(stream.as_bytes(), stream.len());
    for size in 1..stream.len() {
        assert_eq!(split(stream.as_bytes(), size), whole, "cut every {size} bytes");
    }
    whole.into_iter().map(|event| String::from_utf8(event.unwrap().data.to_vec()).unwrap()).collect()
}

#[test]
fn every_line_end_and_every_cut_gives_the_same_events() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = "\u{feff}: hello\ndata: {\"a\":1}\n\ndata:two\ndata\ndata:  lines\n\n\n\ndata: last\n\n";
        assert_eq!(texts(&stream.replace('\n', end)), ["{\"a\":1}", "two\n\n lines", "last"], "{end:?}");
    }
}

#[test]
fn fields_are_read_and_unknown_ones_passed_over() {
    let stream = b"event: endpoint\nid: 7\nretry: 1500\nfoo: bar\ndata: /messages\n\nid\ndata: x\n\n";
    let expected = SseEvent {
        name: "endpoint".into(),
        data: "/messages".into(),
        id: Some("7".into()),
        retry: Some(Duration::from_millis(1500)),
    };
    assert_eq!(split(stream, 5), [Ok(expected), Ok(SseEvent { id: Some(String::new()), ..event("x") })]);
}

#[test]
fn an_id_or_a_wait_alone_is_given_out_and_a_name_alone_is_not() {
    let stream = b"id: 1\n\nevent: nothing\n\nretry: 20\n\nretry: soon\n\nid: a\0b\n\n";
    let expected = [
        Ok(SseEvent { id: Some("1".into()), ..event("") }),
        Ok(SseEvent { retry: Some(Duration::from_millis(20)), ..event("") }),
    ];
    assert_eq!(split(stream, 100), expected);
}

#[test]
fn half_an_event_is_none() {
    assert_eq!(split(b"data: x\n", 100), []);
    assert_eq!(split(b"data: x\n\ndata: y", 100), [Ok(event("x"))]);
}

#[test]
fn an_event_of_exactly_the_cap_is_kept_and_one_more_byte_is_not() {
    let kept = "x".repeat(CAP);
    assert_eq!(split(format!("data: {kept}\n\n").as_bytes(), 9), [Ok(event(&kept))]);
    let stream = format!("data: {kept}x\n\ndata: next\n\n");
    assert_eq!(
        split(stream.as_bytes(), 9),
        [Err(Oversize { answered_id: None, request_id: None }), Ok(event("next"))]
    );
}

#[test]
fn many_lines_count_together() {
    let stream = format!("{}\ndata: next\n\n", "data: 0123456789\n".repeat(CAP));
    assert_eq!(
        split(stream.as_bytes(), 7),
        [Err(Oversize { answered_id: None, request_id: None }), Ok(event("next"))]
    );
}

#[test]
fn an_oversize_answer_is_told_with_its_id_wherever_it_stands() {
    let long = "x".repeat(10 * CAP);
    let first = format!(r#"{{"jsonrpc":"2.0","id":17,"result":"{long}"}}"#);
    let last = format!(r#"{{"result":"{long}","jsonrpc":"2.0","id":17}}"#);
    for answer in [first, last] {
        let stream = format!("event: message\r\ndata: {answer}\r\n\r\ndata: next\r\n\r\n");
        for size in 1..stream.len() {
            let expected =
                [Err(Oversize { answered_id: Some(17.into()), request_id: None }), Ok(event("next"))];
            assert_eq!(split(stream.as_bytes(), size), expected, "cut every {size} bytes");
        }
    }
}

#[test]
fn an_endless_event_is_known_before_it_ends() {
    let mut splitter = SseParser::new(CAP);
    splitter.push(&[b'x'; 10 * CAP]);
    assert_eq!(splitter.next_event(), None);
    assert!(splitter.is_skipping());
    splitter.push(b"\n\n");
    assert_eq!(splitter.next_event(), Some(Err(Oversize { answered_id: None, request_id: None })));
    assert!(!splitter.is_skipping());
}

#[test]
fn what_is_written_is_read_back() {
    let mut out = Vec::new();
    write_sse_comment(&mut out, "ping\nevent: forged");
    write_sse_retry(&mut out, Duration::from_secs(3));
    write_sse_event(&mut out, Some("s-1"), b"{\"a\":\r\n1}");
    write_sse_event(&mut out, None, b"{}");
    let expected = [
        Ok(SseEvent { retry: Some(Duration::from_secs(3)), ..event("") }),
        Ok(SseEvent { id: Some("s-1".into()), ..event("{\"a\":  1}") }),
        Ok(event("{}")),
    ];
    assert_eq!(split(&out, 3), expected);
}

proptest! {
    #[test]
    fn cuts_make_no_difference(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "data: ", "data:", "id: 1", "event: e", "\n", "\r", "\r\n", "\n\n", ":", "x", "\u{feff}",
                "{\"id\":3,\"result\":1}", "0123456789012345678901234567890123456789",
            ]),
            0..40,
        ),
        size in 1usize..50,
    ) {
        let stream = parts.concat();
        prop_assert_eq!(split(stream.as_bytes(), size), split(stream.as_bytes(), 1));
    }
}
