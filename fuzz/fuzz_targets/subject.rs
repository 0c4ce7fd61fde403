//! Subjects: who can be read from one is written the same way, and nobody speaks in two spellings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_relay::subject::{Inbox, Subjects, ToHost, ToWorker};
use ostler_relay::{CallId, Instance, Name};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let name = |text| Name::new(text).expect("it is a name");
    let (subjects, worker) = (Subjects::new(name("acme")), name("w1"));
    let inbox = Inbox::new(&worker, Instance(7));
    let written = match subjects.read_to_host(&text) {
        Some(ToHost::Manifest { role, worker }) => Some(subjects.manifest(&role, &worker)),
        Some(ToHost::Call { role, worker }) => Some(subjects.call(&role, &worker)),
        Some(ToHost::Control { worker, call: Some(call) }) => Some(subjects.control(&worker, call)),
        Some(ToHost::Control { worker, call: None }) => Some(subjects.alive(&worker)),
        None => Some(text.to_string()),
    };
    assert_eq!(written.as_deref(), Some(&*text), "one spelling only");
    match subjects.read_to_worker(&inbox, &text) {
        Some(ToWorker::Answer(call)) => assert_eq!(inbox.answer(call), text),
        Some(ToWorker::Heartbeat(host)) => assert_eq!(subjects.heartbeat(&host), text),
        Some(ToWorker::Progress(call)) => assert!(text.ends_with(&call.to_string())),
        Some(ToWorker::Manifest) | None => {}
    }

    if let Some(id) = CallId::parse(&text) {
        assert_eq!(id.to_string(), text);
    }
    if let Some(instance) = Instance::parse(&text) {
        assert_eq!(instance.to_string(), text);
    }
});
