//! A caller that hears and answers, for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_host::Request;
use ostler_host::upstream::{Question, Voice};
use ostler_testkit::eventually;
use ostler_wire::Outcome;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::stage::{LONG, Outcome as Called, Stage};

/// Can answer one method, and keeps what it is asked and told.
pub(crate) struct Listener {
    answers: &'static str,
    asked: Mutex<VecDeque<Question>>,
    told: Mutex<Vec<(String, String)>>,
}

impl Voice for Listener {
    fn can_answer(&self, method: &str) -> bool {
        method == self.answers
    }

    fn ask(&self, question: Question) {
        self.asked.lock().unwrap().push_back(question);
    }

    fn notice(&self, method: &str, params: Option<&Bytes>) {
        let params = params.map_or("", |raw| std::str::from_utf8(raw).unwrap());
        self.told.lock().unwrap().push((method.into(), params.into()));
    }
}

impl Listener {
    pub(crate) fn to(answers: &'static str) -> Arc<Self> {
        Arc::new(Self { answers, asked: Mutex::default(), told: Mutex::default() })
    }

    /// How many questions wait here.
    pub(crate) fn open(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Waits for a question.
    pub(crate) async fn question(&self) -> Question {
        eventually("a question comes", LONG, || self.open() > 0).await;
        self.asked.lock().unwrap().pop_front().unwrap()
    }

    pub(crate) fn told(&self) -> Vec<(String, String)> {
        self.told.lock().unwrap().clone()
    }
}

impl Stage {
    /// A call in the background, with somebody who hears of it.
    pub(crate) fn begin_heard(
        &self,
        server: &str,
        tool: &str,
        args: Value,
        voice: &Arc<Listener>,
    ) -> JoinHandle<Called> {
        let (host, me, server, tool) =
            (self.host.clone(), self.me.clone(), server.to_owned(), tool.to_owned());
        let voice = Arc::clone(voice);
        tokio::spawn(async move {
            let request = Request::tool(&me, &tool, args.into()).unwrap();
            host.ask(&server, request.with_voice(voice)).await
        })
    }
}

pub(crate) fn yes(result: &'static str) -> Outcome {
    Outcome::Result(Bytes::from_static(result.as_bytes()))
}

/// What `ask` and `input` were answered, as the server saw it.
pub(crate) fn seen(outcome: Called) -> Value {
    outcome.unwrap().json::<Value>().unwrap()["structuredContent"].clone()
}
