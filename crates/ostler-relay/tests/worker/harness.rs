//! Test harness: a worker, one of its sessions, and a host played by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::spec::{EndpointSpec, ServerTransport};
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, ClientMeta, ConnectContext, Connector, ServerSession, SharedCallObserver, UpstreamRequest,
};
use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::broker::{Broker, BrokerConnectError, BrokerMessage, BrokerSubscription, RelayLink};
use ostler_relay::envelope::{CallHead, Control, Heartbeat, ManifestHead, RelayProgress, RelayReply};
use ostler_relay::subject::{HostSubject, Subjects, WorkerInbox};
use ostler_relay::worker::{Worker, WorkerOptions};
use ostler_relay::{CallId, Instance, Manifest, ManifestServer, RelayName, WallClock};
use ostler_wire::{Params, RpcOutcome};
use serde_json::value::RawValue;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout};

/// Timeout of every wait, longer than anything takes in paused time.
const ENOUGH: Duration = Duration::from_secs(300);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap()
}

/// The worker's clock at the start of a test.
pub(crate) const WORKER_TIME: u64 = 1_700_000_000_000;

/// The host's clock at the start of a test: 90 seconds ahead.
pub(crate) const HOST_TIME: u64 = WORKER_TIME + 90_000;

/// A worker with one session, on a broker of its own.
pub(crate) struct WorkerHarness {
    pub(crate) broker: MemoryBroker,
    pub(crate) counting_broker: Arc<CountingBroker>,
    pub(crate) worker: Worker,
    pub(crate) host: Host,
    pub(crate) session: Arc<dyn ServerSession>,
}

impl WorkerHarness {
    /// Creates a worker with all permissions.
    pub(crate) async fn new() -> Self {
        Self::with(BrokerPermissions::all()).await
    }

    pub(crate) async fn with(permissions: BrokerPermissions) -> Self {
        Self::on(MemoryBroker::new(), permissions).await
    }

    pub(crate) async fn on(broker: MemoryBroker, permissions: BrokerPermissions) -> Self {
        let counting_broker =
            Arc::new(CountingBroker { inner: broker.for_user("worker", permissions), count: Mutex::new(0) });
        let worker = worker(Arc::clone(&counting_broker) as Arc<dyn Broker>);
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let session = session(&host, worker.connector(ServerName::new("s").unwrap())).await;
        Self { broker, counting_broker, worker, host, session }
    }

    /// Calls a tool on the bare session, with a timeout of one minute and ten at most.
    pub(crate) fn call(&self, tool: &str) -> SpawnedCall {
        SpawnedCall::spawn(&self.session, tool, TestCallOptions::default())
    }

    pub(crate) fn call_with(&self, tool: &str, options: TestCallOptions) -> SpawnedCall {
        SpawnedCall::spawn(&self.session, tool, options)
    }
}

pub(crate) fn worker(broker: Arc<dyn Broker>) -> Worker {
    let options = WorkerOptions {
        clock: WallClock::starting_at(WORKER_TIME),
        seed: Some(7),
        ..WorkerOptions::new(name("acme"), name("dev"), name("w1"))
    };
    Worker::start(broker, options)
}

/// Registers the server `s` and returns its session.
pub(crate) async fn session(host: &Host, connector: Arc<dyn Connector>) -> Arc<dyn ServerSession> {
    let tapped = Arc::new(SessionTap { connector, session: Mutex::new(None) });
    let transport =
        ServerTransport::Http(EndpointSpec { url: "relay://test".into(), headers: Default::default() });
    let spec = ServerSpec {
        call_timeout: secs(60),
        ..ServerSpec::with_transport(ServerName::new("s").unwrap(), transport)
    };
    let connector = Arc::clone(&tapped) as Arc<dyn Connector>;
    host.spawn_with(&Caller::operator(), spec, connector).await.unwrap();
    tapped.session.lock().unwrap().clone().unwrap()
}

/// Connector that keeps the session it creates.
struct SessionTap {
    connector: Arc<dyn Connector>,
    session: Mutex<Option<Arc<dyn ServerSession>>>,
}

impl Connector for SessionTap {
    fn connect(
        &self,
        context: ConnectContext,
    ) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            let session = self.connector.connect(context).await?;
            *self.session.lock().unwrap() = Some(Arc::clone(&session));
            Ok(session)
        })
    }

    fn containment(&self) -> Containment {
        self.connector.containment()
    }
}

/// Broker that counts connection attempts.
pub(crate) struct CountingBroker {
    inner: Arc<dyn Broker>,
    count: Mutex<usize>,
}

impl CountingBroker {
    pub(crate) fn count(&self) -> usize {
        *self.count.lock().unwrap()
    }
}

impl Broker for CountingBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        *self.count.lock().unwrap() += 1;
        self.inner.connect()
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

/// Options of a call.
pub(crate) struct TestCallOptions {
    pub(crate) deadline: Duration,
    pub(crate) hard_deadline: Duration,
    pub(crate) observer: Option<SharedCallObserver>,
    pub(crate) key: Option<&'static str>,
    pub(crate) arguments: String,
    pub(crate) may_send: bool,
}

impl Default for TestCallOptions {
    fn default() -> Self {
        let arguments = "{}".into();
        Self {
            deadline: secs(60),
            hard_deadline: secs(600),
            observer: None,
            key: None,
            arguments,
            may_send: true,
        }
    }
}

/// Call in flight, in a task of its own.
pub(crate) struct SpawnedCall {
    task: JoinHandle<(Result<RpcOutcome, Fault>, Instant)>,
    began: Instant,
}

impl SpawnedCall {
    pub(crate) fn spawn(session: &Arc<dyn ServerSession>, tool: &str, options: TestCallOptions) -> Self {
        let (session, began) = (Arc::clone(session), Instant::now());
        let arguments = RawValue::from_string(options.arguments.clone()).unwrap();
        let params = Params::tool_call(tool, Some(&arguments)).unwrap();
        let task = tokio::spawn(async move {
            let may_send = move || options.may_send;
            let request = UpstreamRequest {
                method: "tools/call",
                params: &params,
                idempotency_key: options.key,
                deadline: began + options.deadline,
                client: ClientMeta::Host,
                observer: options.observer.as_ref(),
                has_other_callers: None,
                hard_deadline: began + options.hard_deadline,
                headers: &[],
                may_send: Some(&may_send),
            };
            let outcome = session.request(request).await;
            (outcome, Instant::now())
        });
        Self { task, began }
    }

    /// Waits for the outcome; returns it with the elapsed time.
    pub(crate) async fn end(self) -> (Result<RpcOutcome, Fault>, Duration) {
        let (outcome, at) = timeout(ENOUGH, self.task).await.unwrap().unwrap();
        (outcome, at - self.began)
    }

    /// Waits for the result, as text.
    pub(crate) async fn result(self) -> String {
        match self.end().await.0 {
            Ok(RpcOutcome::Result(result)) => String::from_utf8(result.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the fault; returns it with the elapsed time.
    pub(crate) async fn fault(self) -> (Fault, Duration) {
        match self.end().await {
            (Err(fault), after) => (fault, after),
            (Ok(outcome), _) => panic!("{outcome:?}"),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Drops the call.
    pub(crate) fn abort(self) {
        self.task.abort();
    }
}

/// Host played by hand.
pub(crate) struct ManualHost {
    pub(crate) link: Arc<dyn RelayLink>,
    calls: BrokerSubscription,
    controls: BrokerSubscription,
    pub(crate) host: RelayName,
    pub(crate) generation: Instance,
    clock: WallClock,
    heartbeat: Option<AbortHandle>,
}

/// A received call.
#[derive(Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) head: CallHead,
    pub(crate) message: BrokerMessage,
    /// JSON-RPC id of the request.
    pub(crate) id: u64,
    pub(crate) body: serde_json::Value,
}

pub(crate) fn subjects() -> Subjects {
    Subjects::new(name("acme"))
}

impl ManualHost {
    /// Connects a host without a heartbeat.
    pub(crate) async fn connect(broker: &MemoryBroker, host: &str) -> Self {
        let link = broker.for_user(host, BrokerPermissions::all()).connect().await.unwrap();
        let [_, calls, controls] = subjects().host_subscriptions();
        Self {
            calls: link.subscribe(&calls.0, calls.1).await.unwrap(),
            controls: link.subscribe(&controls.0, controls.1).await.unwrap(),
            link,
            host: name(host),
            generation: Instance(1),
            clock: WallClock::starting_at(HOST_TIME),
            heartbeat: None,
        }
    }

    /// Connects a host with a heartbeat each second, the first one at once.
    pub(crate) async fn connect_with_heartbeat(broker: &MemoryBroker, host: &str) -> Self {
        let mut manual_host = Self::connect(broker, host).await;
        manual_host.start_heartbeat();
        manual_host
    }

    pub(crate) fn start_heartbeat(&mut self) {
        let (link, heartbeat) = (Arc::clone(&self.link), self.heartbeat_message());
        let (clock, generation, subject) = (self.clock, self.generation, heartbeat.subject);
        let task = tokio::spawn(async move {
            loop {
                let heartbeat = Heartbeat { generation, time: clock.now(), in_flight: 0, is_draining: false };
                let message = BrokerMessage::new(subject.clone(), heartbeat.headers(), Bytes::new());
                if link.publish(message).await.is_err() {
                    return;
                }
                tokio::time::sleep(secs(1)).await;
            }
        });
        self.heartbeat = Some(task.abort_handle());
    }

    pub(crate) fn stop_heartbeat(&mut self) {
        if let Some(task) = self.heartbeat.take() {
            task.abort();
        }
    }

    fn heartbeat_message(&self) -> BrokerMessage {
        let heartbeat = Heartbeat {
            generation: self.generation,
            time: self.clock.now(),
            in_flight: 0,
            is_draining: false,
        };
        BrokerMessage::new(subjects().heartbeat(&self.host), heartbeat.headers(), Bytes::new())
    }

    pub(crate) async fn send_heartbeat(&self) {
        self.link.publish(self.heartbeat_message()).await.unwrap();
    }

    /// Waits for the next call.
    pub(crate) async fn next_call(&mut self) -> ReceivedCall {
        let message = timeout(ENOUGH, self.calls.next()).await.unwrap().unwrap();
        assert!(matches!(subjects().parse_host_subject(&message.subject), Some(HostSubject::Call { .. })));
        let head = CallHead::read(&message.headers).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        ReceivedCall { head, id: body["id"].as_u64().unwrap(), body, message }
    }

    /// Asserts that no call arrives.
    pub(crate) async fn assert_no_call(mut self) {
        assert!(timeout(secs(5), self.calls.next()).await.is_err());
    }

    /// Waits for the next control message other than `alive`.
    pub(crate) async fn next_control(&mut self) -> (CallId, Control, Bytes) {
        loop {
            let message = timeout(ENOUGH, self.controls.next()).await.unwrap().unwrap();
            let (control, _) = Control::read(&message.headers).unwrap();
            match subjects().parse_host_subject(&message.subject) {
                Some(HostSubject::Control { call: Some(call), .. }) => return (call, control, message.body),
                Some(HostSubject::Control { call: None, .. }) => assert_eq!(control, Control::Alive),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Counts signs of life until none comes for `quiet`.
    pub(crate) async fn count_alive(&mut self, silence: Duration) -> usize {
        let mut count = 0;
        while let Ok(Some(message)) = timeout(silence, self.controls.next()).await {
            count += usize::from(Control::read(&message.headers).unwrap().0 == Control::Alive);
        }
        count
    }

    pub(crate) async fn send_progress(&self, call: CallId, progress: RelayProgress, body: impl Into<Bytes>) {
        let subject = subjects().progress(&name("w1"), call);
        self.link.publish(BrokerMessage::new(subject, progress.headers(), body)).await.unwrap();
    }

    pub(crate) async fn accept(&self, received: &ReceivedCall) {
        let accepted = RelayProgress::Accepted { host: self.host.clone(), generation: self.generation };
        self.send_progress(received.head.call, accepted, Bytes::new()).await;
    }

    /// Sends a JSON result.
    pub(crate) async fn answer(&self, received: &ReceivedCall, result: &str) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, received.id);
        self.reply(received, RelayReply::Answer, body).await;
    }

    pub(crate) async fn reply(&self, received: &ReceivedCall, reply: RelayReply, body: impl Into<Bytes>) {
        let reply_subject = received.message.reply_to.clone().unwrap();
        assert_eq!(
            reply_subject,
            WorkerInbox::new(&name("w1"), received.head.instance).answer_subject(received.head.call)
        );
        self.link.publish(BrokerMessage::new(reply_subject, reply.headers(), body)).await.unwrap();
    }
}

impl Drop for ManualHost {
    fn drop(&mut self) {
        self.stop_heartbeat();
    }
}

/// Host that answers manifest requests.
pub(crate) struct ManifestHost {
    link: Arc<dyn RelayLink>,
    answer: Arc<Mutex<Result<Manifest, String>>>,
    request_count: Arc<Mutex<usize>>,
    task: AbortHandle,
}

impl ManifestHost {
    pub(crate) async fn connect(broker: &MemoryBroker, servers: Vec<ManifestServer>) -> Self {
        let link = broker.for_user("registrar", BrokerPermissions::all()).connect().await.unwrap();
        let [manifest, ..] = subjects().host_subscriptions();
        let mut requests = link.subscribe(&manifest.0, manifest.1).await.unwrap();
        let answer = Arc::new(Mutex::new(Ok(Manifest::new("h".into(), HOST_TIME, servers))));
        let request_count = Arc::new(Mutex::new(0));
        let (reply_link, current, count) =
            (Arc::clone(&link), Arc::clone(&answer), Arc::clone(&request_count));
        let task = tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                ManifestHead::read(&request.headers).unwrap();
                *count.lock().unwrap() += 1;
                let body = match &*current.lock().unwrap() {
                    Ok(manifest) => {
                        let manifest = serde_json::to_string(manifest).unwrap();
                        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{manifest}}}"#)
                    }
                    Err(error) => format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#),
                };
                let reply = BrokerMessage::new(request.reply_to.unwrap(), RelayReply::Answer.headers(), body);
                reply_link.publish(reply).await.unwrap();
            }
        });
        Self { link, answer, request_count, task: task.abort_handle() }
    }

    pub(crate) fn request_count(&self) -> usize {
        *self.request_count.lock().unwrap()
    }

    /// Replaces the manifest.
    pub(crate) fn set(&self, answer: Result<Vec<ManifestServer>, &str>) {
        let answer = answer.map(|servers| Manifest::new("h".into(), HOST_TIME, servers));
        *self.answer.lock().unwrap() = answer.map_err(str::to_owned);
    }

    /// Announces a changed manifest.
    pub(crate) async fn push(&self) {
        let message = BrokerMessage::new(
            subjects().manifest_changed(&name("w1")),
            RelayProgress::ManifestChanged.headers(),
            Bytes::new(),
        );
        self.link.publish(message).await.unwrap();
    }
}

impl Drop for ManifestHost {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a server of a manifest.
pub(crate) fn listed(name: &str, tools: &[&str]) -> ManifestServer {
    let tool = |tool: &&str| {
        let text = format!(r#"{{"name":"{tool}","inputSchema":{{"type":"object"}}}}"#);
        RawValue::from_string(text).unwrap()
    };
    let tools = tools.iter().map(tool).collect();
    ManifestServer {
        name: name.into(),
        tools,
        error: None,
        call_timeout: 60_000,
        max_call_time: 600_000,
        rank: 0,
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    timeout(ENOUGH, async {
        while !condition() {
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await
    .unwrap();
}
