//! Resource rules against the URL parsers of Node and Python: a URI that passes a rule leads, for every program,
//! where the rule says.

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

/// Beginnings; the first ones are the likeliest to be allowed, and come most often.
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

fn uri(rng: &mut Rng) -> String {
    let mut uri = rng.choice(HEADS).unwrap().to_owned();
    for _ in 0..rng.usize(0..9) {
        uri.push_str(rng.choice(PARTS).unwrap());
    }
    uri
}

/// Starts an oracle and returns the paths that it reads each URI as.
fn ask(program: &str, script: &str, uris: &[String]) -> Vec<Vec<String>> {
    let script = format!("{}/tests/uri_oracles/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut child =
        Command::new(program).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
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
    Rules::of(&[("r".to_owned(), role)].into())
}

#[test]
fn no_parser_reads_an_allowed_uri_outside_the_allowed_folder_or_a_denied_path_as_allowed() {
    let seed =
        std::env::var("OSTLER_URI_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("OSTLER_URI_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let uris: Vec<String> = (0..COUNT).map(|_| uri(&mut rng)).collect();
    let (folder, denied) = (
        rules(&["fs/resource:file:///tmp/*"], &[]),
        rules(&["fs/*"], &["fs/resource:file:///etc/*", "fs/resource:file:///tmp/secret"]),
    );
    let may = |rules: &Rules, uri: &str| {
        rules.of_use(&Caller::new("x", "r"), "fs", Subject::Resource(uri)).is_allowed()
    };
    let (python, node) = thread::scope(|scope| {
        let python = scope.spawn(|| ask("python3", "read.py", &uris));
        let node = scope.spawn(|| ask("node", "read.js", &uris));
        (python.join().unwrap(), node.join().unwrap())
    });
    let is_inside = |path: &str| path == "/tmp" || path.starts_with("/tmp/");
    let is_denied = |path: &str| path.starts_with("/etc/") || path == "/tmp/secret";
    let (mut allowed, mut refused) = (0, 0);
    for (uri, paths) in uris.iter().zip(python.iter().zip(&node)) {
        let paths = || paths.0.iter().chain(paths.1);
        if may(&folder, uri) {
            allowed += 1;
            assert!(
                paths().all(|path| is_inside(path)),
                "{uri:?} is allowed and read as {:?}",
                paths().collect::<Vec<_>>()
            );
        }
        if paths().any(|path| is_denied(path)) {
            refused += 1;
            assert!(
                !may(&denied, uri),
                "{uri:?} is not denied and read as {:?}",
                paths().collect::<Vec<_>>()
            );
        }
    }
    println!("{allowed} of {COUNT} are allowed, {refused} lead to a denied file");
    assert!(allowed > COUNT / 50 && refused > COUNT / 200, "{allowed} and {refused} prove nothing");
}
