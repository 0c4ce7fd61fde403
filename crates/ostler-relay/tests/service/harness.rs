//! A host with a service, and a worker played by hand.

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

/// What the host's clock shows when a test begins.
pub(crate) const START: u64 = 1_800_000_000_000;

/// A world's host, reachable over a broker.
pub(crate) struct ServiceHarness {
    pub(crate) world: TestHost,
    pub(crate) broker: MemoryBroker,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) service: Service,
    pub(crate) clock: WallClock,
}

pub(crate) fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap()
}

/// What a host may do at a broker that is set up as it should be.
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
    /// Starts a service for a world, and waits until workers can reach it.
    pub(crate) async fn open(world: TestHost) -> Self {
        Self::open_with(world, |_| {}).await
    }

    /// The same, with a journal of the test's own.
    pub(crate) async fn open_on<J: CallJournal>(
        world: TestHost,
        journal: impl FnOnce(&MemoryBroker) -> J,
    ) -> Self {
        Self::open_all(world, |broker| Arc::new(journal(broker)), |_| {}).await
    }

    pub(crate) async fn open_with(world: TestHost, change: impl FnOnce(&mut ServiceOptions)) -> Self {
        Self::open_all(world, |_| Arc::new(MemoryJournal::new()), change).await
    }

    async fn open_all(
        world: TestHost,
        journal: impl FnOnce(&MemoryBroker) -> Arc<dyn CallJournal>,
        change: impl FnOnce(&mut ServiceOptions),
    ) -> Self {
        let (broker, clock) = (MemoryBroker::new(), WallClock::starting_at(START));
        let (journal, mut options) = (journal(&broker), options(clock));
        change(&mut options);
        let service = Self::start(&world.host, &broker, &journal, options);
        ostler_testkit::run_until_stalled().await;
        Self { world, broker, journal, service, clock }
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

    /// Ends the service and starts another one, of another life of the host.
    pub(crate) async fn restart(&mut self) {
        let options = ServiceOptions { seed: Some(8), ..options(self.clock) };
        self.service = Self::start(&self.world.host, &self.broker, &self.journal, options);
        ostler_testkit::run_until_stalled().await;
    }

    /// A worker of the role `dev`.
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

/// Rules of roles: what each may use.
pub(crate) fn rules(roles: &[(&str, &[&str])]) -> Rules {
    let role = |(name, allow): &(&str, &[&str])| {
        let allow = allow.iter().map(|&pattern| pattern.to_owned()).collect();
        ((*name).to_owned(), Role { allow, deny: Vec::new(), budget: None, max_in_flight: None })
    };
    Rules::from_roles(&roles.iter().map(role).collect::<BTreeMap<_, _>>())
}

/// A world to be set up, with a role `dev` that may use everything.
pub(crate) fn world() -> ostler_testkit::TestHostBuilder {
    TestHost::new().options(|options| options.rules = rules(&[("dev", &["*"])]))
}

/// A worker, played by hand.
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

/// A number as the id of a call.
pub(crate) fn call_id(number: u8) -> CallId {
    CallId::new(START, &[number; 10])
}

/// The text of a call of a tool.
pub(crate) fn tool_call(tool: &str, arguments: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta()}})
    .to_string()
}

/// What a modern client says of itself.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": ostler_wire::MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    })
}

impl ManualWorker {
    /// The head of a call of the server `a` that may begin within two seconds and take a minute.
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

    /// What is said about a call next.
    pub(crate) async fn next_progress(&mut self) -> (u8, RelayProgress, Value) {
        let message = tokio::time::timeout(secs(5), self.progress.next()).await.unwrap().unwrap();
        let number = self.number(&message);
        let body = serde_json::from_slice(&message.body).unwrap_or(Value::Null);
        (number, RelayProgress::read(&message.headers).unwrap(), body)
    }

    /// The next call that is accepted.
    pub(crate) async fn next_accepted(&mut self) -> u8 {
        match self.next_progress().await {
            (call, RelayProgress::Accepted { .. }, _) => call,
            other => panic!("{other:?}"),
        }
    }

    /// The next answer: to which call, and what it says.
    pub(crate) async fn next_answer(&mut self) -> (u8, Value) {
        self.next_answer_within(secs(5)).await.unwrap()
    }

    pub(crate) async fn next_answer_within(&mut self, time: Duration) -> Option<(u8, Value)> {
        let message = tokio::time::timeout(time, self.answers.next()).await.ok()??;
        assert_eq!(RelayReply::read(&message.headers), Ok(RelayReply::Answer));
        Some((self.number(&message), serde_json::from_slice(&message.body).unwrap()))
    }

    /// Whether nothing more is said, for a moment.
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

    /// The number of the call that a message is about; 0 if it is about none.
    fn number(&self, message: &BrokerMessage) -> u8 {
        let call = message.subject.rsplit('.').next().and_then(CallId::parse);
        call.map_or(0, |call| call.as_bytes()[15])
    }
}

/// The text of the first part of a result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The code in the data of an error.
pub(crate) fn code(answer: &Value) -> &str {
    answer["error"]["data"]["code"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// A journal that can't be written.
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

/// A journal that never comes to an end.
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

/// A journal during whose claim the host is cut off from its broker.
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
