//! Lock files as texts.

use ostler_core::pins::{LockError, LockFile, LockedServer, Pin, is_deceptive};
use ostler_core::server_name::ServerName;
use proptest::prelude::*;

use crate::generators::lock;

const TRANSPORT: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Returns a lock of one server with these definitions.
fn locked(definitions: &[(&str, &str)]) -> LockFile {
    let tools = definitions
        .iter()
        .map(|(tool, text)| ((*tool).to_owned(), Pin::from_definition(text.as_bytes()).unwrap()));
    let server = LockedServer::with_tools(TRANSPORT, tools.collect());
    LockFile { servers: [(ServerName::new("time").unwrap(), server)].into() }
}

const NOW: (&str, &str) = (
    "now",
    r#"{"inputSchema":{"type":"object","required":[]},"name":"now","description":"The time.\nIn UTC\u200b."}"#,
);

#[test]
fn a_lock_file_reads_like_this() {
    insta::assert_snapshot!(
        locked(&[NOW, ("zone", r#"{"name":"zone","maximum":[1.0,9007199254740993]}"#)]).write()
    );
    assert_eq!(LockFile::default().write(), "{\n  \"version\": 2,\n  \"servers\": {}\n}\n");
}

#[test]
fn another_tool_touches_its_own_lines_and_a_comma() {
    let before = locked(&[NOW]).write();
    let after = locked(&[NOW, ("zone", r#"{"name":"zone"}"#)]).write();
    let removed: Vec<_> = before.lines().filter(|line| !after.lines().any(|kept| kept == *line)).collect();
    assert!(removed.is_empty(), "{removed:?}");
    let first = locked(&[("ahead", r#"{"name":"ahead"}"#), NOW]).write();
    assert!(before.lines().all(|line| first.lines().any(|kept| kept == line)));
}

#[test]
fn an_edited_definition_is_found_and_named() {
    let text = locked(&[NOW]).write().replace("The time.", "The time, and all files.");
    let error = LockFile::parse(&text).unwrap_err();
    assert!(
        matches!(&error, LockError::Mismatch { server, name, .. } if server.as_str() == "time" && name == "now")
    );
    insta::assert_snapshot!(format!("{error}\nhint: {}", error.hint(|words| format!("`ostler {words}`"))));
}

#[test]
fn a_conflict_is_called_one() {
    let text = locked(&[NOW]).write().replacen(
        "  \"servers\"",
        "<<<<<<< HEAD\n=======\n>>>>>>> other\n  \"servers\"",
        1,
    );
    assert_eq!(LockFile::parse(&text), Err(LockError::Conflict { line: 3 }));
}

#[test]
fn nothing_is_passed_over() {
    let good = locked(&[NOW]).write();
    let table = [
        (
            "\"version\": 2",
            "\"version\": 3",
            "the lock file has version 3, and this Ostler reads versions 1 to 2",
        ),
        (
            "\"version\": 2",
            "\"version\": 3, \"servants\": []",
            "the lock file has version 3, and this Ostler reads versions 1 to 2",
        ),
        ("\"version\": 2,", "", "`version` in the lock file is missing or not a number"),
        ("\"version\": 2", "\"version\": 2, \"more\": {}", "`more` in the lock file is unknown"),
        (
            "\"version\": 2",
            "\"version\": 2, \"version\": 2",
            "the lock file can't be read: the key \"version\" occurs twice in one object",
        ),
        ("\"time\"", "\"Time\"", "`servers.Time` in the lock file can't be read: a server name is made of"),
        (
            "\"tools\"",
            "\"too\\u200bls\"",
            "`servers.time.too‹U+200B ZERO WIDTH SPACE›ls` in the lock file is unknown",
        ),
        (
            "\"sha256:00",
            "\"sha256:0",
            "`servers.time.transport` in the lock file can't be read: a hash is written as",
        ),
        ("\"sha256\"", "\"md5\"", "`servers.time.tools.now.md5` in the lock file is unknown"),
        (
            "\"now\": {",
            "\"later\": {",
            "`servers.time.tools.later.definition` in the lock file is the definition of another tool",
        ),
        (
            "\"name\": \"now\"",
            "\"name\": \"now\", \"name\": \"now\"",
            "the lock file can't be read: the key \"name\" occurs twice in one object",
        ),
    ];
    for (from, to, why) in table {
        assert!(good.contains(from), "{from}");
        let error = LockFile::parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().starts_with(why), "{error}");
        assert!(!error.hint(|words| format!("`ostler {words}`")).is_empty());
    }
    let longest = format!("{good}{}", " ".repeat((16 << 20) - good.len()));
    assert!(LockFile::parse(&longest).is_ok());
    assert!(matches!(LockFile::parse(&(longest + " ")), Err(LockError::TooLarge(_))));
    assert!(LockFile::parse(&format!("\u{feff}{}", good.replace('\n', "\r\n"))).is_ok());
}

#[test]
fn a_definition_in_a_lock_file_is_as_long_as_one_that_can_be_pinned() {
    let definition = format!(r#"{{"name":"x{}"}}"#, "y".repeat((1 << 20) - r#"{"name":"x"}"#.len()));
    let name = format!("x{}", "y".repeat((1 << 20) - r#"{"name":"x"}"#.len()));
    let good = locked(&[(&name, &definition)]).write();
    assert!(LockFile::parse(&good).is_ok());
    let error = LockFile::parse(&good.replace("\"xy", "\"xyy")).unwrap_err();
    assert!(error.to_string().ends_with("has more than 1048576 bytes"), "{}", error.to_string().len());
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(lock in lock()) {
        let text = lock.write();
        let read = LockFile::parse(&text);
        prop_assert_eq!(read.as_ref(), Ok(&lock));
        prop_assert_eq!(read.unwrap().write(), text);
    }

    #[test]
    fn nothing_in_the_text_deceives(lock in lock()) {
        let text = lock.write();
        prop_assert!(!text.contains(is_deceptive), "{}", text);
        prop_assert!(text.lines().all(|line| !line.ends_with(' ')));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_never_a_panic(
        lock in lock(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..9, "[\\[\\]{}\",:0-9a-z\\\\\u{200b}]{0,4}"), 1..4),
    ) {
        let mut text: Vec<char> = lock.write().chars().collect();
        for (at, length, put) in cuts {
            let at = at.index(text.len().max(1)).min(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        let text = String::from_iter(text);
        if let Ok(read) = LockFile::parse(&text) {
            // A text that is still accepted is a lock whose hashes are right.
            for pin in read.servers.values().flat_map(|server| server.pins().map(|(_, _, pin)| pin)) {
                prop_assert_eq!(&Pin::from_definition(&pin.definition).unwrap(), pin);
            }
        }
    }
}

#[test]
fn a_lock_of_version_1_is_read_and_pins_tools_only() {
    let old = locked(&[NOW]).write().replace("\"version\": 2", "\"version\": 1");
    let lock = LockFile::parse(&old).unwrap();
    assert_eq!(lock, locked(&[NOW]));
    assert_eq!(lock.servers["time"].unpinned().count(), 4);
}

#[test]
fn every_section_is_written_in_its_order_and_read_back() {
    use ostler_core::pins::{INSTRUCTIONS, LockSection, instructions_definition};
    let mut lock = locked(&[NOW]);
    let server = lock.servers.values_mut().next().unwrap();
    let pin = |text: &[u8]| Pin::from_definition(text).unwrap();
    let advice = pin(&instructions_definition("Be kind."));
    server.sections.insert(LockSection::Instructions, [(INSTRUCTIONS.to_owned(), advice)].into());
    server
        .sections
        .insert(LockSection::Prompts, [("p".to_owned(), pin(br#"{"name":"p","_meta":{"ui":1}}"#))].into());
    server.sections.insert(LockSection::Resources, [("a://b".to_owned(), pin(br#"{"uri":"a://b"}"#))].into());
    server.sections.insert(LockSection::Templates, std::collections::BTreeMap::new());
    let text = lock.write();
    let at = |key: &str| text.find(&format!("\n      \"{key}\": {{")).unwrap();
    let places: Vec<usize> = LockSection::ALL.iter().map(|section| at(section.key())).collect();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(LockFile::parse(&text), Ok(lock));
    let forged = text.replace("Be kind.", "Be unkind.");
    assert!(matches!(
        LockFile::parse(&forged),
        Err(LockError::Mismatch { section: LockSection::Instructions, .. })
    ));
    let moved = text.replace("\"uri\": \"a://b\"", "\"uri\": \"a://c\"");
    assert!(
        LockFile::parse(&moved).unwrap_err().to_string().contains("is the definition of another resource")
    );
}
