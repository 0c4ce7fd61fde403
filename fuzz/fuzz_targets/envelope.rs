//! Headers of relayed messages, one `Name: value` to a line: parsed headers are written back to the
//! letter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_relay::Manifest;
use ostler_relay::envelope::{
    CallHead, Control, Heartbeat, ManifestHead, RelayHeaders, RelayProgress, RelayReply, header,
};

fuzz_target!(|input: &[u8]| {
    let headers = ostler_fuzz::whole::headers(&String::from_utf8_lossy(input));
    if let Ok(head) = CallHead::read(&headers) {
        assert_eq!(CallHead::read(&assert_same(head.headers(), &headers)), Ok(head));
    }
    if let Ok(head) = ManifestHead::read(&headers) {
        assert_eq!(ManifestHead::read(&assert_same(head.headers(), &headers)), Ok(head));
    }
    if let Ok((control, instance)) = Control::read(&headers) {
        assert_eq!(Control::read(&assert_same(control.headers(instance), &headers)), Ok((control, instance)));
    }
    if let Ok(progress) = RelayProgress::read(&headers) {
        assert_eq!(RelayProgress::read(&assert_same(progress.headers(), &headers)), Ok(progress));
    }
    if let Ok(reply) = RelayReply::read(&headers) {
        assert_eq!(RelayReply::read(&assert_same(reply.headers(), &headers)), Ok(reply));
    }
    if let Ok(beat) = Heartbeat::read(&headers) {
        assert_eq!(Heartbeat::read(&assert_same(beat.headers(), &headers)), Ok(beat));
    }
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(input) {
        let written = serde_json::to_vec(&manifest).expect("it can be written");
        let again: Manifest = serde_json::from_slice(&written).expect("what is written can be read");
        assert_eq!(
            Manifest::new(String::new(), 0, again.servers).version,
            Manifest::new(String::new(), 0, manifest.servers).version
        );
    }
});

/// Asserts that written headers are those that were read, to the letter.
fn assert_same(written: RelayHeaders, read: &RelayHeaders) -> RelayHeaders {
    for (name, value) in written.iter() {
        // A heartbeat writes its kind, which no reader requires.
        let is_beat = name == header::KIND && value == "beat";
        assert!(is_beat || read.get(name) == Some(value), "{name}: {value:?} was {:?}", read.get(name));
    }
    written
}
