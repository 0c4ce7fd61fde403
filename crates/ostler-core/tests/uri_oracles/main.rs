//! Resource rules against the URL parsers of Node and Python: a URI that a rule allows leads every program to
//! the place the rule names.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "the oracles are programs"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;

use fastrand::Rng;
use ostler_core::caller::Caller;
use ostler_core::config::Role;
use ostler_core::policy::{Rules, Subject};

/// URIs of one run.
const COUNT: usize = 60_000;

/// URIs in one line to an oracle.
const BATCH: usize = 1_000;

/// Beginnings; the first ones are the most likely to be allowed, and occur most often.
const HEADS: [&str; 18] = [
    "file:///tmp/",
    "file:///tmp/a/",
    "file:///tmp/",
    "file:///",
    "file:////",
    "file://",
    "file:/",
    "file:",
    "FILE:///",
    "fIle:/tmp/",
    "file://localhost/",
    "file://LocalHost/tmp/",
    "file://tmp/",
    "file://h/",
    "%66ile:///tmp/",
    "file%3A///tmp/",
    " file:///tmp/",
    "\u{feff}file:///",
];

/// Parts that parsers treat differently, and names that lead to a denied file.
const PARTS: [&str; 56] = [
    "..",
    "..",
    "..",
    ".",
    "/",
    "/",
    "/",
    "/",
    "//",
    "%2e",
    "%2E%2e",
    "%252e",
    "%2f",
    "%2F",
    "%252f",
    "%25252f",
    "%5c",
    "\\",
    "?",
    "#",
    "%3f",
    "%23",
    "%253f",
    ";",
    "\t",
    "\n",
    "\r",
    " ",
    "%20",
    "%09",
    "%0a",
    "%00",
    "\u{b}",
    "\u{a0}",
    "\u{2028}",
    "%e2%80%a8",
    "%c0%ae",
    "%",
    "%2",
    "+",
    "&",
    "@",
    ":",
    "C:",
    "C|",
    "~",
    "é",
    "%c3%a9",
    "tmp",
    "etc",
    "etc/passwd",
    "secret",
    "%73ecret",
    "s%65cret",
    "a",
    "localhost",
];

/// Beginnings with an authority.
const HOST_HEADS: [&str; 14] = [
    "docs://public",
    "docs://public/",
    "docs://public",
    "docs://",
    "docs://board",
    "docs:",
    "DOCS://",
    "//",
    "https://good.example/open/",
    "https://good.example/open/",
    "https://good.example",
    "https://",
    "https://board.example/",
    "https:",
];

/// Parts that parsers treat differently in an authority, and names that lead to a denied host.
const HOST_PARTS: [&str; 44] = [
    "@",
    "@",
    "@",
    "%40",
    "%2540",
    ":",
    ":",
    ":1",
    ":443",
    ":x",
    "%3a",
    ".",
    "..",
    "/",
    "/",
    "/",
    "//",
    "%2f",
    ";",
    ";",
    ";x",
    "%3b",
    "?",
    "#",
    "%23",
    "[",
    "]",
    "[::1]",
    "u",
    "u@",
    "public",
    "board",
    "board/",
    "BOARD/",
    "bo%61rd",
    "Board",
    "board.example",
    "BOARD.example",
    "board.example/",
    "secret",
    "Secret",
    "s%65cret",
    "/secret",
    "open",
];

fn uri(rng: &mut Rng, heads: &[&str], parts: &[&str]) -> String {
    let mut uri = (*rng.choice(heads).unwrap()).to_owned();
    for _ in 0..rng.usize(0..9) {
        uri.push_str(rng.choice(parts).unwrap());
    }
    uri
}

/// Returns random URIs; the seed is printed.
fn uris(heads: &[&str], parts: &[&str]) -> Vec<String> {
    let seed =
        std::env::var("OSTLER_URI_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("OSTLER_URI_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    (0..COUNT).map(|_| uri(&mut rng, heads, parts)).collect()
}

/// Starts an oracle and returns the forms in which it reads each URI.
fn run_oracle(program: &str, script: &str, wanted: &str, uris: &[String]) -> Vec<Vec<String>> {
    let script = format!("{}/tests/uri_oracles/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new(program)
        .args([script.as_str(), wanted])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: Vec<String> = uris.chunks(BATCH).map(|batch| serde_json::to_string(batch).unwrap()).collect();
    let writer = thread::spawn(move || lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap()));
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers: Vec<Vec<String>> =
        answers.flat_map(|line| serde_json::from_str::<Vec<Vec<String>>>(&line.unwrap()).unwrap()).collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), uris.len(), "{program} has read every URI");
    answers
}

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    let role = Role { allow: owned(allow), deny: owned(deny), budget: None, max_in_flight: None };
    Rules::from_roles(&[("r".to_owned(), role)].into())
}

/// Compares rules and oracles on the same URIs: a URI that `allow` allows must be inside for every parser,
/// and one that is denied for any parser must be denied by `deny`.
fn compare(
    uris: &[String],
    wanted: &str,
    (allow, is_inside): (&Rules, fn(&str) -> bool),
    (deny, is_denied): (&Rules, fn(&str) -> bool),
) {
    let may = |rules: &Rules, uri: &str| {
        rules.decide(&Caller::new("x", "r"), "fs", Subject::Resource(uri)).is_allowed()
    };
    let (python, node) = thread::scope(|scope| {
        let python = scope.spawn(|| run_oracle("python3", "read.py", wanted, uris));
        let node = scope.spawn(|| run_oracle("node", "read.js", wanted, uris));
        (python.join().unwrap(), node.join().unwrap())
    });
    let (mut allowed, mut refused) = (0, 0);
    for (uri, (python, node)) in uris.iter().zip(python.iter().zip(&node)) {
        let mut found = python.iter().chain(node);
        if may(allow, uri) {
            allowed += 1;
            let outside = found.clone().find(|read| !is_inside(read));
            assert_eq!(outside, None, "{uri:?} is allowed and read as something else");
        }
        if let Some(read) = found.find(|read| is_denied(read)) {
            refused += 1;
            assert!(!may(deny, uri), "{uri:?} is not denied and read as {read:?}");
        }
    }
    println!("{allowed} of {COUNT} are allowed, {refused} lead to what is denied");
    assert!(allowed > COUNT / 50 && refused > COUNT / 200, "{allowed} and {refused} prove nothing");
}

#[test]
fn no_parser_reads_an_allowed_uri_outside_the_allowed_folder_or_a_denied_path_as_allowed() {
    let folder = rules(&["fs/resource:file:///tmp/*"], &[]);
    let denied = rules(&["fs/*"], &["fs/resource:file:///etc/*", "fs/resource:file:///tmp/secret"]);
    compare(
        &uris(&HEADS, &PARTS),
        "paths",
        (&folder, |path| path == "/tmp" || path.starts_with("/tmp/")),
        (&denied, |path| path.starts_with("/etc/") || path == "/tmp/secret"),
    );
}

#[test]
fn no_parser_reads_an_allowed_uri_at_another_host_or_a_denied_host_and_path_as_allowed() {
    let allow = ["fs/resource:docs://public*", "fs/resource:https://good.example/open/*"];
    let deny = ["fs/resource:docs://board/*", "fs/resource:https://board.example/secret"];
    compare(
        &uris(&HOST_HEADS, &HOST_PARTS),
        "hosts",
        (&rules(&allow, &[]), |place| {
            let is_open = |path: &str| path.is_empty() || path.starts_with('/');
            place.starts_with("docs://public")
                || place.strip_prefix("https://good.example/open").is_some_and(is_open)
        }),
        (&rules(&["fs/*"], &deny), |place| {
            place.strip_prefix("docs://board/").is_some_and(|path| !path.is_empty())
                || place == "https://board.example/secret"
        }),
    );
}
