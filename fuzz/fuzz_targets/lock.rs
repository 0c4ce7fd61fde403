//! Lock files: an accepted one is written back equal and holds no deceptive characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_core::pins::{LockFile, LockedServer, Pin};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    match LockFile::parse(&text) {
        Ok(lock) => check(&lock),
        Err(error) => drop((error.to_string(), error.hint(|command| format!("ostler {command}")))),
    }
    // A definition of a server is pinned, or refused as none.
    let Ok(pin) = Pin::from_definition(input) else { return };
    let name = serde_json::from_slice::<serde_json::Value>(&pin.definition)
        .ok()
        .and_then(|definition| definition.get("name")?.as_str().map(str::to_owned));
    let Some(name) = name else { return };
    let transport = pin.hash.to_string();
    let mut lock = LockFile::default();
    let server = ostler_core::server_name::ServerName::new("s").expect("it is one");
    lock.servers.insert(server, LockedServer::with_tools(transport, [(name, pin)].into()));
    check(&lock);
});

fn check(lock: &LockFile) {
    let written = lock.write();
    assert_eq!(LockFile::parse(&written).as_ref(), Ok(lock), "{written}");
    assert!(
        written.chars().all(|c| c == '\n' || !ostler_core::pins::is_deceptive(c)),
        "what a reviewer sees is what there is: {written:?}"
    );
}
