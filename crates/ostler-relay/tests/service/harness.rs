//! Test harness: a host with a relay service, and a worker played by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::config::Role;
use ostler_core::policy::Rules;
use ostler_core::server_name::ServerName;
use ostler_host::Host;
use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::broker::{BrokerMessage, BrokerSubscription, RelayLink};
use ostler_relay::envelope::{CallHead, Control, Heartbeat, ManifestHead, RelayProgress, RelayReply};
use ostler_relay::journal::{CallJournal, ClaimError, ClaimOutcome, MemoryJournal};
use ostler_relay::service::{Service, ServiceOptions};
use ostler_relay::subject::{Subjects, WorkerInbox};
use ostler_relay::{CallId, Instance, RelayName, WallClock};
use ostler_testkit::TestHost;
use serde_json::{Value, json};

use crate::{ms, secs};

/// The host's clock at the start of a test.
pub(crate) const START: u64 = 1_800_000_000_000;

/// A test host with a relay service on an in-memory broker.
pub(crate) struct ServiceHarness {
    pub(crate) test_host: TestHost,
    pub(crate) broker: MemoryBroker,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) service: Service,
    pub(crate) clock: WallClock,
}

pub(crate) fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap()
}

/// Returns the permissions of a host at a correctly configured broker.
pub(crate) fn host_permissions() -> BrokerPermissions {
    let list = |subjects: &[&str]| subjects.iter().map(|subject| (*subject).to_owned()).collect();
    BrokerPermissions {
        publish: list(&["ostler.acme.progress.>", "ostler.acme.heartbeat.>"]),
        subscribe: list(&["ostler.acme.manifest.>", "ostler.acme.call.>", "ostler.acme.control.>"]),
        may_respond: true,
    }
}

pub(crate) fn options(clock: WallClock) -> ServiceOptions {
    let options = ServiceOptions::new(name("acme"), name("h1"));
    ServiceOptions { clock, seed: Some(7), status_sink: Arc::new(|_| {}), ..options }
}

impl ServiceHarness {
    /// Starts a service and waits until workers can reach it.
    pub(crate) async fn open(test_host: TestHost) -> Self {
        Self::open_with(test_host, |_| {}).await
    }

    /// Starts a service with the journal of the test.
    pub(crate) async fn open_on<J: CallJournal>(
        test_host: TestHost,
        journal: impl FnOnce(&MemoryBroker) -> J,
    ) -> Self {
        Self::open_all(test_host, |broker| Arc::new(journal(broker)), |_| {}).await
    }

    pub(crate) async fn open_with(test_host: TestHost, change: impl FnOnce(&mut ServiceOptions)) -> Self {
        Self::open_all(test_host, |_| Arc::new(MemoryJournal::new()), change).await
    }

    async fn open_all(
        test_host: TestHost,
        journal: impl FnOnce(&MemoryBroker) -> Arc<dyn CallJournal>,
        change: impl FnOnce(&mut ServiceOptions),
    ) -> Self {
        let (broker, clock) = (MemoryBroker::new(), WallClock::starting_at(START));
        let (journal, mut options) = (journal(&broker), options(clock));
        change(&mut options);
        let service = Self::start(&test_host.host, &broker, &journal, options);
        ostler_testkit::run_until_stalled().await;
        Self { test_host, broker, journal, service, clock }
    }

    fn start(
        host: &Host,
        broker: &MemoryBroker,
        journal: &Arc<dyn CallJournal>,
        options: ServiceOptions,
    ) -> Service {
        Service::start(
            host.clone(),
            broker.for_user("host", host_permissions()),
            Arc::clone(journal),
            options,
        )
    }

    /// Ends the service and starts another instance of the host.
    pub(crate) async fn restart(&mut self) {
        let options = ServiceOptions { seed: Some(8), ..options(self.clock) };
        self.service = Self::start(&self.test_host.host, &self.broker, &self.journal, options);
        ostler_testkit::run_until_stalled().await;
    }

    /// Connects a worker of the role `dev`.
    pub(crate) async fn worker(&self, worker: &str) -> ManualWorker {
        self.worker_as(worker, "dev", 1).await
    }

    pub(crate) async fn worker_as(&self, worker: &str, role: &str, instance: u64) -> ManualWorker {
        let subjects = Subjects::new(name("acme"));
        let (worker, instance) = (name(worker), Instance(instance));
        let inbox = WorkerInbox::new(&worker, instance);
        let link = self.broker.for_user(worker.as_str(), BrokerPermissions::all()).connect().await.unwrap();
        let [progress, heartbeat, answers] = subjects.worker_subscriptions(&worker, &inbox);
        ManualWorker {
            progress: link.subscribe(&progress, None).await.unwrap(),
            heartbeat: link.subscribe(&heartbeat, None).await.unwrap(),
            answers: link.subscribe(&answers, None).await.unwrap(),
            link,
            subjects,
            role: name(role),
            worker,
            instance,
            inbox,
            clock: self.clock,
        }
    }
}

/// Returns rules with these roles.
pub(crate) fn rules(roles: &[(&str, &[&str])]) -> Rules {
    let role = |(name, allow): &(&str, &[&str])| {
        let allow = allow.iter().map(|&pattern| pattern.to_owned()).collect();
        ((*name).to_owned(), Role { allow, deny: Vec::new(), budget: None, max_in_flight: None })
    };
    Rules::from_roles(&roles.iter().map(role).collect::<BTreeMap<_, _>>())
}

/// Returns a builder whose role `dev` may use everything.
pub(crate) fn test_host() -> ostler_testkit::TestHostBuilder {
    TestHost::new().options(|options| options.rules = rules(&[("dev", &["*"])]))
}

/// Worker played by hand.
pub(crate) struct ManualWorker {
    pub(crate) link: Arc<dyn RelayLink>,
    pub(crate) subjects: Subjects,
    pub(crate) role: RelayName,
    pub(crate) worker: RelayName,
    pub(crate) instance: Instance,
    pub(crate) inbox: WorkerInbox,
    pub(crate) clock: WallClock,
    pub(crate) progress: BrokerSubscription,
    pub(crate) heartbeat: BrokerSubscription,
    pub(crate) answers: BrokerSubscription,
}

/// Returns a call id that encodes a number.
pub(crate) fn call_id(number: u8) -> CallId {
    CallId::new(START, &[number; 10])
}

/// Returns the request of a tool call.
pub(crate) fn tool_call(tool: &str, arguments: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta()}})
    .to_string()
}

/// Returns the `_meta` of a modern client.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": ostler_wire::MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    })
}

impl ManualWorker {
    /// Returns the headers of a call to the server `a`, to begin within two seconds and to end
    /// within a minute.
    pub(crate) fn head(&self, call: u8) -> CallHead {
        CallHead {
            call: call_id(call),
            instance: self.instance,
            server: ServerName::new("a").unwrap(),
            begin_by: self.clock.now() + 2_000,
            deadline: self.clock.now() + 60_000,
            manifest: None,
            trace: None,
        }
    }

    /// Calls a tool without arguments.
    pub(crate) async fn call(&self, call: u8, server: &str, tool: &str) {
        let head = CallHead { server: ServerName::new(server).unwrap(), ..self.head(call) };
        self.send(head, tool_call(tool, json!({}))).await;
    }

    pub(crate) async fn send(&self, head: CallHead, body: String) {
        let subject = self.subjects.call(&self.role, &self.worker);
        let reply = self.inbox.answer_subject(head.call);
        self.publish(BrokerMessage::new(subject, head.headers(), body).with_reply_to(reply)).await;
    }

    pub(crate) async fn control(&self, call: u8, control: Control, body: impl Into<Bytes>) {
        let subject = self.subjects.control(&self.worker, call_id(call));
        let message = BrokerMessage::new(subject, control.headers(self.instance), body);
        self.publish(message.with_reply_to(self.inbox.answer_subject(call_id(call)))).await;
    }

    pub(crate) async fn alive(&self) {
        let subject = self.subjects.alive(&self.worker);
        self.publish(BrokerMessage::new(subject, Control::Alive.headers(self.instance), Bytes::new())).await;
    }

    pub(crate) async fn ask_manifest(&self, call: u8) {
        let head = ManifestHead { call: call_id(call), instance: self.instance };
        let subject = self.subjects.manifest(&self.role, &self.worker);
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"manifest"}"#;
        let reply = self.inbox.answer_subject(call_id(call));
        self.publish(BrokerMessage::new(subject, head.headers(), body).with_reply_to(reply)).await;
    }

    pub(crate) async fn publish(&self, message: BrokerMessage) {
        self.link.publish(message).await.unwrap();
        ostler_testkit::run_until_stalled().await;
    }

    /// Waits for the next progress message.
    pub(crate) async fn next_progress(&mut self) -> (u8, RelayProgress, Value) {
        let message = tokio::time::timeout(secs(5), self.progress.next()).await.unwrap().unwrap();
        let number = self.number(&message);
        let body = serde_json::from_slice(&message.body).unwrap_or(Value::Null);
        (number, RelayProgress::read(&message.headers).unwrap(), body)
    }

    /// Waits for the next accepted call.
    pub(crate) async fn next_accepted(&mut self) -> u8 {
        match self.next_progress().await {
            (call, RelayProgress::Accepted { .. }, _) => call,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the next answer; returns its call and body.
    pub(crate) async fn next_answer(&mut self) -> (u8, Value) {
        self.next_answer_within(secs(5)).await.unwrap()
    }

    pub(crate) async fn next_answer_within(&mut self, time: Duration) -> Option<(u8, Value)> {
        let message = tokio::time::timeout(time, self.answers.next()).await.ok()??;
        assert_eq!(RelayReply::read(&message.headers), Ok(RelayReply::Answer));
        Some((self.number(&message), serde_json::from_slice(&message.body).unwrap()))
    }

    /// Returns whether no further message arrives.
    pub(crate) async fn is_silent(&mut self) -> bool {
        ostler_testkit::run_until_stalled().await;
        let moment = ms(1);
        tokio::time::timeout(moment, self.progress.next()).await.is_err()
            && tokio::time::timeout(moment, self.answers.next()).await.is_err()
    }

    pub(crate) async fn next_heartbeat(&mut self) -> Heartbeat {
        let message = tokio::time::timeout(secs(2), self.heartbeat.next()).await.unwrap().unwrap();
        Heartbeat::read(&message.headers).unwrap()
    }

    /// Returns the number of the call in a subject; 0 without a call.
    fn number(&self, message: &BrokerMessage) -> u8 {
        let call = message.subject.rsplit('.').next().and_then(CallId::parse);
        call.map_or(0, |call| call.as_bytes()[15])
    }
}

/// Returns the text of the first content block of a result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Returns the code in the data of an error.
pub(crate) fn code(answer: &Value) -> &str {
    answer["error"]["data"]["code"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Journal whose claims fail.
pub(crate) struct FailingJournal;

impl CallJournal for FailingJournal {
    fn claim<'a>(&'a self, _: CallId, _: &'a RelayName) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        Box::pin(std::future::ready(Err(ClaimError("the disk is full".into()))))
    }

    fn mark_answered(&self, _: CallId) {}

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Journal whose claims never return.
pub(crate) struct HangingJournal;

impl CallJournal for HangingJournal {
    fn claim<'a>(&'a self, _: CallId, _: &'a RelayName) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        Box::pin(std::future::pending())
    }

    fn mark_answered(&self, _: CallId) {}

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Journal that disconnects the host from its broker during a claim.
pub(crate) struct DisconnectingJournal(pub(crate) MemoryBroker);

impl CallJournal for DisconnectingJournal {
    fn claim<'a>(&'a self, _: CallId, _: &'a RelayName) -> BoxFuture<'a, Result<ClaimOutcome, ClaimError>> {
        self.0.disconnect("host");
        Box::pin(std::future::ready(Ok(ClaimOutcome::Ours)))
    }

    fn mark_answered(&self, _: CallId) {}

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
