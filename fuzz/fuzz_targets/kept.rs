//! Persisted lists of a server, however they were damaged.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ostler_host::{Caller, Kind, ServerName, ServerSpec, persisted_names};

/// A folder in memory where there is one, for this process alone.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let base = [PathBuf::from("/dev/shm"), std::env::temp_dir()].into_iter().find(|base| base.is_dir());
    let folder = base.unwrap_or_default().join(format!("ostler-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("lists")).expect("a folder can be made");
    folder
});

static SPEC: LazyLock<ServerSpec> =
    LazyLock::new(|| ServerSpec::stdio(ServerName::new("s").expect("a name"), "s"));

fuzz_target!(|input: &[u8]| {
    // Without the fingerprint the lists would be ignored.
    let text = String::from_utf8_lossy(input).replace("FINGERPRINT", &SPEC.fingerprint().to_string());
    let file = FOLDER.join("lists/s.json");
    std::fs::write(&file, &text).expect("the file can be written");
    for kind in [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates] {
        let names = persisted_names(&FOLDER, &SPEC, &Caller::local(), kind);
        assert!(names.is_none() || text.contains(&SPEC.fingerprint().to_string()), "lists of another server");
    }
});
