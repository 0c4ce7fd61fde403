//! Notifications and server requests of calls in flight.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_relay::envelope::{Control, RelayProgress};
use ostler_wire::RpcOutcome;

use crate::harness::*;

/// Observer that records everything and answers server requests.
#[derive(Default)]
struct RelayRecordingObserver {
    messages: Mutex<Vec<String>>,
    server_requests: Mutex<Vec<ServerRequest>>,
    answers_nothing: bool,
}

impl CallObserver for RelayRecordingObserver {
    fn wants_progress(&self) -> bool {
        true
    }

    fn on_progress(&self, progress: &ostler_wire::ProgressParams) {
        self.messages.lock().unwrap().push(String::from_utf8(progress.raw.to_vec()).unwrap());
    }

    fn on_notification(&self, method: &str, _: Option<&Bytes>) {
        self.messages.lock().unwrap().push(method.to_owned());
    }

    fn can_answer(&self, _: &str) -> bool {
        !self.answers_nothing
    }

    fn on_request(&self, server_request: ServerRequest) {
        self.server_requests.lock().unwrap().push(server_request);
    }
}

fn with_observer(observer: &Arc<RelayRecordingObserver>) -> TestCallOptions {
    TestCallOptions {
        observer: Some(Arc::clone(observer) as Arc<dyn CallObserver>),
        ..TestCallOptions::default()
    }
}

fn note(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":"q7","method":"elicitation/create","params":{"message":"sure?"}}"#;

#[tokio::test(start_paused = true)]
async fn progress_is_told_and_moves_the_deadline_up_to_the_hard_end() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    let token = received.body["params"]["_meta"]["progressToken"].as_u64().unwrap();
    manual_host.accept(&received).await;
    for step in 0..20 {
        tokio::time::sleep(secs(45)).await;
        if call.is_over() {
            break;
        }
        let params = format!(r#"{{"progressToken":{token},"progress":{step}}}"#);
        manual_host
            .send_progress(
                received.head.call,
                RelayProgress::Notification,
                note("notifications/progress", &params),
            )
            .await;
    }
    let (fault, after) = call.fault().await;
    assert_eq!(after, secs(600), "{fault}");
    assert_eq!(observer.messages.lock().unwrap().len(), 13);
}

#[tokio::test(start_paused = true)]
async fn without_progress_the_deadline_is_what_progress_left() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(secs(50)).await;
    let params = r#"{"progressToken":1,"progress":1}"#;
    manual_host
        .send_progress(
            received.head.call,
            RelayProgress::Notification,
            note("notifications/progress", params),
        )
        .await;
    manual_host
        .send_progress(received.head.call, RelayProgress::Notification, note("notifications/message", "{}"))
        .await;
    let (_, after) = call.fault().await;
    assert_eq!(after, secs(110));
    assert_eq!(*observer.messages.lock().unwrap(), [params, "notifications/message"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_reaches_the_caller_and_its_answer_the_host() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    manual_host.send_progress(received.head.call, RelayProgress::ServerRequest(3), QUESTION).await;
    // Repeated by a host that does not know whether the request arrived.
    manual_host.send_progress(received.head.call, RelayProgress::ServerRequest(3), QUESTION).await;
    tokio::time::sleep(secs(300)).await;
    let server_request = observer.server_requests.lock().unwrap().pop().unwrap();
    assert!(observer.server_requests.lock().unwrap().is_empty());
    assert_eq!(server_request.method.as_str(), "elicitation/create");
    assert!(server_request.answer(RpcOutcome::Result(Bytes::from_static(br#"{"action":"accept"}"#))));
    let (call_id, control, body) = manual_host.next_control().await;
    assert_eq!((call_id, control), (received.head.call, Control::Answer(3)));
    assert_eq!(&body[..], br#"{"jsonrpc":"2.0","id":"q7","result":{"action":"accept"}}"#);
    let (_, after) = call.fault().await;
    assert_eq!(after, secs(360), "time stood still, and runs again");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_can_answer_is_refused_at_once() {
    let harness = WorkerHarness::new().await;
    let mute =
        Arc::new(RelayRecordingObserver { answers_nothing: true, ..RelayRecordingObserver::default() });
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    for options in [with_observer(&mute), TestCallOptions::default()] {
        let call = harness.call_with("echo", options);
        let received = manual_host.next_call().await;
        manual_host.send_progress(received.head.call, RelayProgress::ServerRequest(0), QUESTION).await;
        let (_, control, body) = manual_host.next_control().await;
        assert_eq!(control, Control::Answer(0));
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["id"], &body["error"]["code"]), (&"q7".into(), &(-32_601).into()));
        manual_host.answer(&received, "{}").await;
        call.result().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_its_call_is_over() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    manual_host.send_progress(received.head.call, RelayProgress::ServerRequest(0), QUESTION).await;
    wait_until(|| !observer.server_requests.lock().unwrap().is_empty()).await;
    let mut server_request = observer.server_requests.lock().unwrap().pop().unwrap();
    manual_host.answer(&received, "{}").await;
    call.result().await;
    server_request.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_broker_does_not_take_is_refused_and_holds_up_nothing() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    manual_host.send_progress(received.head.call, RelayProgress::ServerRequest(3), QUESTION).await;
    wait_until(|| !observer.server_requests.lock().unwrap().is_empty()).await;
    let server_request = observer.server_requests.lock().unwrap().pop().unwrap();
    let image = format!(r#"{{"action":"accept","content":{{"image":"{}"}}}}"#, "x".repeat(2 << 20));
    assert!(server_request.answer(RpcOutcome::Result(image.into())));
    let (_, control, body) = manual_host.next_control().await;
    assert_eq!(control, Control::Answer(3));
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["id"], &body["error"]["code"]), (&"q7".into(), &(-32_603).into()), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("longer than the 1048576 bytes"), "{body}");
    call.abort();
    assert_eq!(manual_host.next_control().await.1, Control::Cancel);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_known_late_is_watched_all_the_same() {
    let harness = WorkerHarness::new().await;
    let observer = Arc::new(RelayRecordingObserver::default());
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let _manifest_host = ManifestHost::connect(&harness.broker, vec![listed("s", &[])]).await;
    wait_until(|| harness.worker.manifest().borrow().is_some()).await;
    let call = harness.call_with("echo", with_observer(&observer));
    let received = manual_host.next_call().await;
    // The first message is lost and sent again later.
    manual_host
        .send_progress(received.head.call, RelayProgress::Notification, note("notifications/message", "{}"))
        .await;
    tokio::time::sleep(secs(5)).await;
    manual_host.accept(&received).await;
    manual_host.stop_heartbeat();
    let (fault, after) = call.fault().await;
    assert!(after <= ms(8_500), "{fault} after {after:?}");
}
