//! Questions on the stream of a whole session: whose they are.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use ostler_host::Answer;
use ostler_host::upstream::{ProgressSink, Question, Voice};
use ostler_wire::Outcome;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::remote::{Feed, Got, Remote, legacy, stream};
use crate::stage::{LONG, Stage};

/// Answers elicitations with a name, or keeps them.
#[derive(Default)]
struct Person {
    name: Option<&'static str>,
    kept: Mutex<Vec<Question>>,
}

impl Voice for Person {
    fn can_answer(&self, method: &str) -> bool {
        method == "elicitation/create"
    }

    fn ask(&self, question: Question) {
        match self.name {
            Some(name) => assert!(question.answer(Outcome::Result(json!({"name": name}).to_string().into()))),
            None => self.kept.lock().unwrap().push(question),
        }
    }
}

fn person(name: &'static str) -> Arc<Person> {
    Arc::new(Person { name: Some(name), ..Person::default() })
}

/// A server that works on calls until the test ends them, and asks on its own stream.
#[derive(Default)]
struct Backstage {
    stream: Option<Feed>,
    calls: Vec<(Got, Feed)>,
    /// The most calls that it worked on at once.
    most: usize,
}

struct Scene {
    remote: Remote,
    stage: Stage,
    backstage: Arc<Mutex<Backstage>>,
}

impl Scene {
    async fn new() -> Self {
        let backstage: Arc<Mutex<Backstage>> = Arc::default();
        let behind = Arc::clone(&backstage);
        let remote = Remote::start(legacy(move |got| {
            let mut behind = behind.lock().unwrap();
            let (feed, response) = stream();
            if got.verb == Method::GET {
                behind.stream = Some(feed);
                return Some(response);
            }
            if got.is_call() {
                behind.calls.push((got.clone(), feed));
                behind.most = behind.most.max(behind.calls.len());
                return Some(response);
            }
            None
        }));
        let stage = Stage::of(&remote).await;
        stage.host.tools(&stage.me, "remote").await.unwrap();
        let scene = Self { remote, stage, backstage };
        scene.until("the stream is open", |behind| behind.stream.is_some()).await;
        scene
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Backstage) -> bool) {
        ostler_testkit::eventually(what, LONG, || is_so(&self.backstage.lock().unwrap())).await;
    }

    fn begin(&self, voice: Option<Arc<Person>>) -> JoinHandle<Answer> {
        let (host, me) = (self.stage.host.clone(), self.stage.me.clone());
        tokio::spawn(async move {
            let request = ostler_host::Request::tool(&me, "ask", json!({}).into()).unwrap().within(LONG);
            let request = match voice {
                Some(voice) => request.with_voice(voice),
                None => request,
            };
            host.ask("remote", request).await.unwrap()
        })
    }

    /// Asks on the session's stream.
    fn ask(&self, id: &str) {
        let behind = self.backstage.lock().unwrap();
        let question = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
        assert!(behind.stream.as_ref().unwrap().send(&question));
    }

    /// Asks on the session's stream, and says what was answered.
    async fn told(&self, id: &str) -> Value {
        self.ask(id);
        self.answer(id).await
    }

    async fn answer(&self, id: &str) -> Value {
        let find = || {
            self.remote.got().into_iter().find(|got| got.method().is_empty() && got.body["id"] == json!(id))
        };
        ostler_testkit::eventually("an answer", LONG, || find().is_some()).await;
        let body = find().unwrap().body;
        body.get("result").unwrap_or(&body["error"]["code"]).clone()
    }

    /// Ends the oldest call that is worked on.
    fn finish(&self) {
        let (got, feed) = self.backstage.lock().unwrap().calls.remove(0);
        feed.send(&got.message("done"));
    }

    /// Ends all calls, which are these.
    async fn finish_all(&self, calls: impl IntoIterator<Item = JoinHandle<Answer>>) {
        while !self.backstage.lock().unwrap().calls.is_empty() {
            self.finish();
        }
        for call in calls {
            call.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_goes_to_the_only_call_that_can_have_caused_it() {
    let scene = Scene::new().await;
    let calls = [scene.begin(Some(person("Ada")))];
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    assert_eq!(scene.told("q1").await, json!({"name": "Ada"}));
    assert_eq!(scene.told("q2").await, json!({"name": "Ada"}));
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_silent_call_may_have_caused_is_shown_to_nobody() {
    let scene = Scene::new().await;
    let ada = Arc::new(Person::default());
    let calls = [scene.begin(None), scene.begin(Some(Arc::clone(&ada)))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.told("q1").await, -31005, "it could be the other's");
    assert!(ada.kept.lock().unwrap().is_empty());
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_questions_of_one_call_are_both_answered_where_calls_take_turns() {
    let scene = Scene::new().await;
    let calls = [scene.begin(None), scene.begin(Some(person("Ada")))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.told("q1").await, -31005, "it could be either's");
    scene.finish_all(calls).await;

    let ada = Arc::new(Person::default());
    let calls = [scene.begin(Some(Arc::clone(&ada)))];
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    scene.ask("q2");
    scene.ask("q3");
    ostler_testkit::eventually("both questions", LONG, || ada.kept.lock().unwrap().len() == 2).await;
    for question in std::mem::take(&mut *ada.kept.lock().unwrap()) {
        assert!(question.answer(Outcome::Result("{}".into())));
    }
    assert_eq!(scene.answer("q2").await, json!({}));
    assert_eq!(scene.answer("q3").await, json!({}));
    scene.finish_all(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_no_call_can_answer_is_refused() {
    let scene = Scene::new().await;
    assert_eq!(scene.told("q1").await, -32601, "nobody is there");
    let call = scene.begin(None);
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    assert_eq!(scene.told("q2").await, -32601, "nobody who can answer is there");
    scene.finish();
    call.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_two_calls_could_answer_is_refused_and_such_calls_then_take_turns() {
    let scene = Scene::new().await;
    let calls = [scene.begin(Some(person("Ada"))), scene.begin(Some(person("Bob")))];
    scene.until("both are there", |behind| behind.calls.len() == 2).await;
    assert_eq!(scene.told("q1").await, -31005, "it could be either's");
    scene.finish_all(calls).await;
    scene.backstage.lock().unwrap().most = 0;
    let calls = [scene.begin(Some(person("Ada"))), scene.begin(Some(person("Bob")))];
    scene.until("the first one is there", |behind| !behind.calls.is_empty()).await;
    assert_eq!(scene.backstage.lock().unwrap().most, 1);
    // While one is asked the other has its turn, and its own question.
    scene.ask("q2");
    scene.until("the second one is there", |behind| behind.calls.len() == 2).await;
    scene.ask("q3");
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
    let scene = Scene::new().await;
    let person = Arc::new(Person::default());
    let call = scene.begin(Some(Arc::clone(&person)));
    scene.until("it is there", |behind| behind.calls.len() == 1).await;
    scene.ask("q1");
    ostler_testkit::eventually("the question", LONG, || person.kept.lock().unwrap().len() == 1).await;
    scene.finish();
    call.await.unwrap();
    assert_eq!(scene.answer("q1").await, -32603);
    let mut question = person.kept.lock().unwrap().pop().unwrap();
    tokio::time::timeout(LONG, question.withdrawn()).await.expect("the person is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_on_a_calls_own_stream_is_for_its_caller_alone() {
    let remote = Remote::start(legacy(|got| {
        if !got.is_call() {
            return None;
        }
        let (feed, response) = stream();
        feed.send(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hm"}}));
        feed.send(&got.message("done"));
        Some(response)
    }));
    let stage = Stage::of(&remote).await;
    let mut events = stage.host.events();
    let sink: ProgressSink = Arc::new(|_| {});
    stage.host.ask("remote", stage.request("ask").on_progress(sink)).await.unwrap();
    // The answer came behind the line, so the line would be here.
    assert!(events.try_recv().is_err());
}
