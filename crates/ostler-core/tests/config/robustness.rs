//! No text makes the reader panic, hang or grow without bound.

use proptest::prelude::*;

use crate::fake_files::{FakeFiles, parse, parse_invalid};

const GOOD: [(&str, &str); 6] = [
    ("a.toml", include_str!("../configs/contract.toml")),
    ("a.toml", include_str!("../configs/broken.toml")),
    ("a.json", include_str!("../configs/broken.json")),
    ("a.json", include_str!("../configs/cursor.json")),
    ("a.json", include_str!("../configs/zed.json")),
    ("a.json", include_str!("../configs/own.json")),
];

/// Reads and renders, both of which could panic.
fn assert_no_panic(file: &str, text: &str) {
    match parse(file, text) {
        Ok(config) => {
            assert!(config.notices.iter().all(|problem| !problem.is_error()));
            config.notices.iter().for_each(|problem| drop(problem.to_string()));
        }
        Err(report) => {
            assert!(report.problems.iter().any(|problem| problem.is_error()));
            assert!(!report.to_string().is_empty());
        }
    }
}

/// Replaces a part of a text.
fn mutate(text: &str, at: usize, cut: usize, put: &str) -> String {
    let start = text.floor_char_boundary(at % (text.len() + 1));
    let end = text.floor_char_boundary((start + cut).min(text.len())).max(start);
    format!("{}{put}{}", &text[..start], &text[end..])
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        assert_no_panic("a.toml", &text);
        assert_no_panic("a.json", &text);
    }

    #[test]
    fn mutations_of_good_files_are_survived(
        which in 0..GOOD.len(),
        at: usize,
        cut in 0_usize..40,
        put in prop_oneof![
            Just(String::new()),
            "[\\[\\]{}\",:=.#$0-9a-z\n\u{0}-]{0,6}",
            Just("\"é日\u{1f600}\"".to_owned()),
            Just("null".to_owned()),
            Just("-9223372036854775808".to_owned()),
            Just("1e400".to_owned()),
            Just("1979-05-27".to_owned()),
            Just("\"${env:A}\"".to_owned()),
            Just("\"~\"".to_owned()),
            Just("{}".to_owned()),
            Just("[[]]".to_owned()),
        ],
    ) {
        let (file, text) = GOOD[which];
        assert_no_panic(file, &mutate(text, at, cut, &put));
    }
}

#[test]
fn deep_nesting_is_a_problem_and_not_an_overflow() {
    for open in ["[", "{\"a\":", "a=[", "a={b=", "a."] {
        let text = open.repeat(100_000);
        assert_no_panic("a.toml", &text);
        assert_no_panic("a.json", &text);
        assert_no_panic("a.json", &format!("{{\"mcpServers\": {text}"));
    }
}

#[test]
fn a_file_that_is_too_large_is_not_even_parsed() {
    let full = "#".repeat(4 << 20);
    assert!(parse("ostler.toml", &full).is_ok());
    assert_eq!(parse_invalid(&(full + "#")), ["the file is larger than 4 MiB"]);
    let world = FakeFiles::default()
        .with("/proj/ostler.toml", "include = [\"a.json\"]")
        .with("/proj/a.json", &" ".repeat((4 << 20) + 1));
    assert!(world.parse("/proj/ostler.toml").is_err());
}

#[test]
fn a_thousand_servers_are_read_and_one_more_is_refused() {
    let server = |number| format!("[servers.s{number}]\ncommand = \"x\"\n");
    let text: String = (0..1000).map(server).collect();
    assert_eq!(parse("ostler.toml", &text).unwrap().servers.len(), 1000);
    assert_eq!(parse_invalid(&format!("{text}{}", server(1000))), ["there are more than 1000 servers"]);
    let world = FakeFiles::default()
        .with("/proj/ostler.toml", &format!("include = [\"more.toml\"]\n{}", server(1000)))
        .with("/proj/more.toml", &text);
    let report = world.parse("/proj/ostler.toml").unwrap_err();
    assert_eq!(report.problems[0].message, "there are more than 1000 servers", "of all files together");
}

#[test]
fn names_that_all_slug_to_the_same_do_not_take_for_ever() {
    let names: String =
        (0..200_000).map(|number| format!("\"\u{100}a{}\":0,", "!".repeat(number % 7))).collect();
    assert_no_panic("a.json", &format!("{{\"mcpServers\":{{{names}}}}}"));
}

#[test]
fn a_file_full_of_mistakes_makes_a_report_for_people() {
    let text: String = (0..5_000).map(|number| format!("k{number} = 1\n")).collect();
    let report = parse("ostler.toml", &text).unwrap_err();
    assert_eq!(report.problems.len(), 201);
    assert_eq!(report.problems[200].message, "and 4800 more problems");
}
