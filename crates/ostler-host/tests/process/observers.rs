//! Call observer of the tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ostler_host::Request;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_testkit::eventually;
use ostler_wire::RpcOutcome;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::fixture::{CallOutcome as Called, LONG, ProcessFixture};

/// Answers one method, and keeps all requests and notifications.
pub(crate) struct RecordingObserver {
    answered_method: &'static str,
    requests: Mutex<VecDeque<ServerRequest>>,
    notifications: Mutex<Vec<(String, String)>>,
}

impl CallObserver for RecordingObserver {
    fn can_answer(&self, method: &str) -> bool {
        method == self.answered_method
    }

    fn on_request(&self, question: ServerRequest) {
        self.requests.lock().unwrap().push_back(question);
    }

    fn on_notification(&self, method: &str, params: Option<&Bytes>) {
        let params = params.map_or("", |raw| std::str::from_utf8(raw).unwrap());
        self.notifications.lock().unwrap().push((method.into(), params.into()));
    }
}

impl RecordingObserver {
    pub(crate) fn answering(answers: &'static str) -> Arc<Self> {
        Arc::new(Self {
            answered_method: answers,
            requests: Mutex::default(),
            notifications: Mutex::default(),
        })
    }

    /// Returns the number of open server requests.
    pub(crate) fn open_requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Waits for a server request.
    pub(crate) async fn next_request(&self) -> ServerRequest {
        eventually("a question comes", LONG, || self.open_requests() > 0).await;
        self.requests.lock().unwrap().pop_front().unwrap()
    }

    pub(crate) fn notifications(&self) -> Vec<(String, String)> {
        self.notifications.lock().unwrap().clone()
    }
}

impl ProcessFixture {
    /// Starts a call in the background, with an observer.
    pub(crate) fn spawn_observed_call(
        &self,
        server: &str,
        tool: &str,
        args: Value,
        voice: &Arc<RecordingObserver>,
    ) -> JoinHandle<Called> {
        let (host, me, server, tool) =
            (self.host.clone(), self.me.clone(), server.to_owned(), tool.to_owned());
        let voice = Arc::clone(voice);
        tokio::spawn(async move {
            let request = Request::tool_call(&me, &tool, args.into()).unwrap();
            host.send_to(&server, request.with_call_observer(voice)).await
        })
    }
}

pub(crate) fn yes(result: &'static str) -> RpcOutcome {
    RpcOutcome::Result(Bytes::from_static(result.as_bytes()))
}

/// Returns the answers to `ask` and `input`, as the server saw them.
pub(crate) fn answers_seen_by_server(outcome: Called) -> Value {
    outcome.unwrap().json::<Value>().unwrap()["structuredContent"].clone()
}
