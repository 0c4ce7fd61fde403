//! Subjects: the parts read from one write the same subject, and each subject has one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_relay::subject::{HostSubject, Subjects, WorkerInbox, WorkerSubject};
use ostler_relay::{CallId, Instance, RelayName};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let name = |text| RelayName::new(text).expect("it is a name");
    let (subjects, worker) = (Subjects::new(name("acme")), name("w1"));
    let inbox = WorkerInbox::new(&worker, Instance(7));
    let written = match subjects.parse_host_subject(&text) {
        Some(HostSubject::Manifest { role, worker }) => Some(subjects.manifest(&role, &worker)),
        Some(HostSubject::Call { role, worker }) => Some(subjects.call(&role, &worker)),
        Some(HostSubject::Control { worker, call: Some(call) }) => Some(subjects.control(&worker, call)),
        Some(HostSubject::Control { worker, call: None }) => Some(subjects.alive(&worker)),
        None => Some(text.to_string()),
    };
    assert_eq!(written.as_deref(), Some(&*text), "one spelling only");
    match subjects.parse_worker_subject(&inbox, &text) {
        Some(WorkerSubject::Answer(call)) => assert_eq!(inbox.answer_subject(call), text),
        Some(WorkerSubject::Heartbeat(host)) => assert_eq!(subjects.heartbeat(&host), text),
        Some(WorkerSubject::Progress(call)) => assert!(text.ends_with(&call.to_string())),
        Some(WorkerSubject::ManifestChanged) | None => {}
    }

    if let Some(id) = CallId::parse(&text) {
        assert_eq!(id.to_string(), text);
    }
    if let Some(instance) = Instance::parse(&text) {
        assert_eq!(instance.to_string(), text);
    }
});
