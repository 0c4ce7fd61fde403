//! Requests of legacy servers, and the callers that answer them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_wire::RpcOutcome;
use serde_json::{Value, json};

use crate::fixture::HttpFixture;
use crate::scripted_endpoint::{EventFeed, RecordedRequest, ScriptedEndpoint, legacy, respond, stream};

/// Answers every server request with the same text, and keeps the notifications.
#[derive(Default)]
struct RecordingCaller {
    notifications: Mutex<Vec<String>>,
}

impl CallObserver for RecordingCaller {
    fn on_notification(&self, method: &str, _params: Option<&Bytes>) {
        self.notifications.lock().unwrap().push(method.to_owned());
    }

    fn can_answer(&self, method: &str) -> bool {
        method == "elicitation/create"
    }

    fn on_request(&self, question: ServerRequest) {
        let answer = json!({"action": "accept", "content": {"name": "Ada"}}).to_string();
        assert!(question.answer(RpcOutcome::Result(answer.into())));
    }
}

/// Makes a server that sends a request on the stream of a call, and returns the answer.
fn requesting_endpoint(method: &'static str) -> ScriptedEndpoint {
    let open: Arc<Mutex<Option<(RecordedRequest, EventFeed)>>> = Arc::default();
    ScriptedEndpoint::start(legacy(move |got| {
        if got.is_call() {
            let (feed, response) = stream();
            feed.send(
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hm"}}),
            );
            feed.send(&json!({"jsonrpc": "2.0", "id": got.body["id"], "method": method, "params": {}}));
            *open.lock().unwrap() = Some((got.clone(), feed));
            return Some(response);
        }
        let is_answer = got.body.get("result").is_some() || got.body.get("error").is_some();
        is_answer.then(|| {
            let (call, feed) = open.lock().unwrap().take().unwrap();
            let told = got.body.get("result").unwrap_or(&got.body["error"]["code"]);
            feed.send(&call.message(&told.to_string()));
            respond(202, &[], Value::Null)
        })
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_a_calls_stream_is_answered_by_its_caller() {
    let remote = requesting_endpoint("elicitation/create");
    let stage = HttpFixture::connected_to(&remote).await;
    let talker = Arc::new(RecordingCaller::default());
    let answer =
        stage.host.send_to("remote", stage.request("ask").with_call_observer(talker.clone())).await.unwrap();
    assert_eq!(answer.text(), json!({"action": "accept", "content": {"name": "Ada"}}).to_string());
    assert_eq!(*talker.notifications.lock().unwrap(), ["notifications/message"]);
    let answers: Vec<_> =
        remote.requests().into_iter().filter(|got| got.body.get("result").is_some()).collect();
    assert_eq!(answers[0].header("mcp-session-id"), Some("s1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_can_answer_is_refused() {
    let remote = requesting_endpoint("sampling/createMessage");
    let stage = HttpFixture::connected_to(&remote).await;
    let talker = Arc::new(RecordingCaller::default());
    let answer = stage.host.send_to("remote", stage.request("ask").with_call_observer(talker)).await.unwrap();
    assert_eq!(answer.text(), "-32601");
    assert_eq!(stage.text("ask").await, "-32601", "a caller without a voice has no answer either");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_is_answered_for_everybody() {
    let remote = requesting_endpoint("ping");
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("ask").await, "{}");
}
