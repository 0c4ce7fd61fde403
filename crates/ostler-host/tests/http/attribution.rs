//! Attribution of server requests on the stream of a whole session.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use ostler_host::Answer;
use ostler_host::upstream::{CallObserver, ProgressSink, ServerRequest};
use ostler_wire::RpcOutcome;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fixture::{HttpFixture, LONG};
use crate::scripted_endpoint::{EventFeed, RecordedRequest, ScriptedEndpoint, legacy, stream};

/// Answers elicitations with a name, or keeps them.
#[derive(Default)]
struct ElicitingCaller {
    name: Option<&'static str>,
    open_requests: Mutex<Vec<ServerRequest>>,
}

impl CallObserver for ElicitingCaller {
    fn can_answer(&self, method: &str) -> bool {
        method == "elicitation/create"
    }

    fn on_request(&self, question: ServerRequest) {
        match self.name {
            Some(name) => {
                assert!(question.answer(RpcOutcome::Result(json!({"name": name}).to_string().into())))
            }
            None => self.open_requests.lock().unwrap().push(question),
        }
    }
}

fn answering_as(name: &'static str) -> Arc<ElicitingCaller> {
    Arc::new(ElicitingCaller { name: Some(name), ..ElicitingCaller::default() })
}

/// A server that works on calls until the test ends them, and sends requests on its own stream.
#[derive(Default)]
struct EndpointState {
    stream: Option<EventFeed>,
    calls: Vec<(RecordedRequest, EventFeed)>,
    /// The highest number of calls in flight at once.
    most_at_once: usize,
}

struct AttributionFixture {
    remote: ScriptedEndpoint,
    stage: HttpFixture,
    endpoint_state: Arc<Mutex<EndpointState>>,
}

impl AttributionFixture {
    async fn new() -> Self {
        let backstage: Arc<Mutex<EndpointState>> = Arc::default();
        let behind = Arc::clone(&backstage);
        let remote = ScriptedEndpoint::start(legacy(move |got| {
            let mut behind = behind.lock().unwrap();
            let (feed, response) = stream();
            if got.verb == Method::GET {
                behind.stream = Some(feed);
                return Some(response);
            }
            if got.is_call() {
                behind.calls.push((got.clone(), feed));
                behind.most_at_once = behind.most_at_once.max(behind.calls.len());
                return Some(response);
            }
            None
        }));
        let stage = HttpFixture::connected_to(&remote).await;
        stage.host.tools(&stage.me, "remote").await.unwrap();
        let scene = Self { remote, stage, endpoint_state: backstage };
        scene.until("the stream is open", |behind| behind.stream.is_some()).await;
        scene
    }

    async fn until(&self, what: &str, is_so: impl Fn(&EndpointState) -> bool) {
        ostler_testkit::eventually(what, LONG, || is_so(&self.endpoint_state.lock().unwrap())).await;
    }

    fn spawn_call(&self, voice: Option<Arc<ElicitingCaller>>) -> JoinHandle<Answer> {
        let (host, me) = (self.stage.host.clone(), self.stage.me.clone());
        tokio::spawn(async move {
            let request =
                ostler_host::Request::tool_call(&me, "ask", json!({}).into()).unwrap().with_timeout(LONG);
            let request = match voice {
                Some(voice) => request.with_call_observer(voice),
                None => request,
            };
            host.send_to("remote", request).await.unwrap()
        })
    }

    /// Sends a request on the session's stream.
    fn send_request(&self, id: &str) {
        let behind = self.endpoint_state.lock().unwrap();
        let question = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
        assert!(behind.stream.as_ref().unwrap().send(&question));
    }

    /// Sends a request on the session's stream, and returns the answer.
    async fn request_and_wait(&self, id: &str) -> Value {
        self.send_request(id);
        self.answer(id).await
    }

    async fn answer(&self, id: &str) -> Value {
        let find = || {
            self.remote
                .requests()
                .into_iter()
                .find(|got| got.method().is_empty() && got.body["id"] == json!(id))
        };
        ostler_testkit::eventually("an answer", LONG, || find().is_some()).await;
        let body = find().unwrap().body;
        body.get("result").unwrap_or(&body["error"]["code"]).clone()
    }

    /// Ends the oldest call in flight.
    fn finish(&self) {
        let (got, feed) = self.endpoint_state.lock().unwrap().calls.remove(0);
        feed.send(&got.message("done"));
    }

    /// Ends all calls in flight and waits for their callers.
    async fn finish_all(&self, calls: impl IntoIterator<Item = JoinHandle<Answer>>) {
        while !self.endpoint_state.lock().unwrap().calls.is_empty() {
            self.finish();
        }
        for call in calls {
            call.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_goes_to_the_only_call_that_can_have_caused_it() {
    let scene = AttributionFixture::new().await;
    let calls = [scene.spawn_call(Some(answering_as("Ada")))];
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    assert_eq!(scene.request_and_wait("q1").await, json!({"name": "Ada"}));
    assert_eq!(scene.request_and_wait("q2").await, json!({"name": "Ada"}));
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_silent_call_may_have_caused_is_shown_to_nobody() {
    let scene = AttributionFixture::new().await;
    let ada = Arc::new(ElicitingCaller::default());
    let calls = [scene.spawn_call(None), scene.spawn_call(Some(Arc::clone(&ada)))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.request_and_wait("q1").await, -31005, "it could be the other's");
    assert!(ada.open_requests.lock().unwrap().is_empty());
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_questions_of_one_call_are_both_answered_where_calls_take_turns() {
    let scene = AttributionFixture::new().await;
    let calls = [scene.spawn_call(None), scene.spawn_call(Some(answering_as("Ada")))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.request_and_wait("q1").await, -31005, "it could be either's");
    scene.finish_all(calls).await;

    let ada = Arc::new(ElicitingCaller::default());
    let calls = [scene.spawn_call(Some(Arc::clone(&ada)))];
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    scene.send_request("q2");
    scene.send_request("q3");
    ostler_testkit::eventually("both questions", LONG, || ada.open_requests.lock().unwrap().len() == 2).await;
    for question in std::mem::take(&mut *ada.open_requests.lock().unwrap()) {
        assert!(question.answer(RpcOutcome::Result("{}".into())));
    }
    assert_eq!(scene.answer("q2").await, json!({}));
    assert_eq!(scene.answer("q3").await, json!({}));
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_no_call_can_answer_is_refused() {
    let scene = AttributionFixture::new().await;
    assert_eq!(scene.request_and_wait("q1").await, -32601, "nobody is there");
    let call = scene.spawn_call(None);
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    assert_eq!(scene.request_and_wait("q2").await, -32601, "nobody who can answer is there");
    scene.finish();
    call.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_two_calls_could_answer_is_refused_and_such_calls_then_take_turns() {
    let scene = AttributionFixture::new().await;
    let calls = [scene.spawn_call(Some(answering_as("Ada"))), scene.spawn_call(Some(answering_as("Bob")))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.request_and_wait("q1").await, -31005, "it could be either's");
    scene.finish_all(calls).await;
    scene.endpoint_state.lock().unwrap().most_at_once = 0;
    let calls = [scene.spawn_call(Some(answering_as("Ada"))), scene.spawn_call(Some(answering_as("Bob")))];
    scene.until("the first one is there", |behind| !behind.calls.is_empty()).await;
    assert_eq!(scene.endpoint_state.lock().unwrap().most_at_once, 1);
    // While one caller is asked, the other has its turn and its own server request.
    scene.send_request("q2");
    scene.until("the second one is there", |behind| behind.calls.len() == 2).await;
    scene.send_request("q3");
    let first = scene.answer("q2").await;
    scene.finish();
    let second = scene.answer("q3").await;
    scene.finish_all(calls).await;
    let mut names = [first, second].map(|answer| answer["name"].as_str().unwrap_or_default().to_owned());
    names.sort_unstable();
    assert_eq!(names, ["Ada", "Bob"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_taken_back_when_its_call_is_over() {
    let scene = AttributionFixture::new().await;
    let person = Arc::new(ElicitingCaller::default());
    let call = scene.spawn_call(Some(Arc::clone(&person)));
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    scene.send_request("q1");
    ostler_testkit::eventually("the question", LONG, || person.open_requests.lock().unwrap().len() == 1)
        .await;
    scene.finish();
    call.await.unwrap();
    assert_eq!(scene.answer("q1").await, -32603);
    let mut question = person.open_requests.lock().unwrap().pop().unwrap();
    tokio::time::timeout(LONG, question.cancelled()).await.expect("the person is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_on_a_calls_own_stream_is_for_its_caller_alone() {
    let remote = ScriptedEndpoint::start(legacy(|got| {
        if !got.is_call() {
            return None;
        }
        let (feed, response) = stream();
        feed.send(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hm"}}));
        feed.send(&got.message("done"));
        Some(response)
    }));
    let stage = HttpFixture::connected_to(&remote).await;
    let mut events = stage.host.notifications();
    let sink: ProgressSink = Arc::new(|_| {});
    stage.host.send_to("remote", stage.request("ask").on_progress(sink)).await.unwrap();
    // The response follows the notification, so the notification would be here.
    assert!(events.try_recv().is_err());
}
