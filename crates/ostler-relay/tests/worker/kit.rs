//! A worker, a session of it, and a peer that plays the host.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::spec::{Endpoint, Transport};
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, ClientMeta, Connector, Plan, Session, SharedVoice};
use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_relay::broker::memory::{MemoryBroker, Rights};
use ostler_relay::broker::{Broker, Link, Message, Refusal, Subscription};
use ostler_relay::envelope::{Beat, CallHead, Control, ManifestHead, Progress, Reply};
use ostler_relay::subject::{Inbox, Subjects, ToHost};
use ostler_relay::worker::{Worker, WorkerOptions};
use ostler_relay::{CallId, Instance, Listed, Manifest, Name, WallClock};
use ostler_wire::{Outcome, Params};
use serde_json::value::RawValue;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout};

/// Longer than anything takes that is waited for.
const ENOUGH: Duration = Duration::from_secs(300);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// What the clock of the worker shows at the start of a test.
pub(crate) const WORKER_TIME: u64 = 1_700_000_000_000;

/// What that of the host shows: it is 90 seconds ahead.
pub(crate) const HOST_TIME: u64 = WORKER_TIME + 90_000;

/// A worker with a session, on a broker of its own.
pub(crate) struct Stage {
    pub(crate) broker: MemoryBroker,
    pub(crate) door: Arc<Counting>,
    pub(crate) worker: Worker,
    pub(crate) host: Host,
    pub(crate) session: Arc<dyn Session>,
}

impl Stage {
    /// Everything is allowed.
    pub(crate) async fn new() -> Self {
        Self::with(Rights::all()).await
    }

    pub(crate) async fn with(rights: Rights) -> Self {
        Self::on(MemoryBroker::new(), rights).await
    }

    pub(crate) async fn on(broker: MemoryBroker, rights: Rights) -> Self {
        let door = Arc::new(Counting { door: broker.door("worker", rights), count: Mutex::new(0) });
        let worker = worker(Arc::clone(&door) as Arc<dyn Broker>);
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let session = session(&host, worker.connector(ServerName::new("s").unwrap())).await;
        Self { broker, door, worker, host, session }
    }

    /// Calls a tool on the bare session, with a minute of time and ten at most.
    pub(crate) fn call(&self, tool: &str) -> Calling {
        Calling::begin(&self.session, tool, Wish::default())
    }

    pub(crate) fn call_with(&self, tool: &str, wish: Wish) -> Calling {
        Calling::begin(&self.session, tool, wish)
    }
}

pub(crate) fn worker(door: Arc<dyn Broker>) -> Worker {
    let options = WorkerOptions {
        clock: WallClock::starting_at(WORKER_TIME),
        seed: Some(7),
        ..WorkerOptions::new(name("acme"), name("dev"), name("w1"))
    };
    Worker::start(door, options)
}

/// Registers the server `s`, and gets at its session.
pub(crate) async fn session(host: &Host, connector: Arc<dyn Connector>) -> Arc<dyn Session> {
    let tap = Arc::new(Tap { connector, session: Mutex::new(None) });
    let transport = Transport::Http(Endpoint { url: "relay://test".into(), headers: Default::default() });
    let spec = ServerSpec {
        call_timeout: secs(60),
        ..ServerSpec::with_transport(ServerName::new("s").unwrap(), transport)
    };
    let connector = Arc::clone(&tap) as Arc<dyn Connector>;
    host.spawn_with(&Caller::operator(), spec, connector).await.unwrap();
    tap.session.lock().unwrap().clone().unwrap()
}

/// Lets a session through and keeps it.
struct Tap {
    connector: Arc<dyn Connector>,
    session: Mutex<Option<Arc<dyn Session>>>,
}

impl Connector for Tap {
    fn connect(&self, plan: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        Box::pin(async move {
            let session = self.connector.connect(plan).await?;
            *self.session.lock().unwrap() = Some(Arc::clone(&session));
            Ok(session)
        })
    }

    fn containment(&self) -> Containment {
        self.connector.containment()
    }
}

/// A door that counts who comes.
pub(crate) struct Counting {
    door: Arc<dyn Broker>,
    count: Mutex<usize>,
}

impl Counting {
    pub(crate) fn count(&self) -> usize {
        *self.count.lock().unwrap()
    }
}

impl Broker for Counting {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Link>, Refusal>> {
        *self.count.lock().unwrap() += 1;
        self.door.connect()
    }

    fn place(&self) -> String {
        self.door.place()
    }
}

/// How a call is made.
pub(crate) struct Wish {
    pub(crate) until: Duration,
    pub(crate) at_most: Duration,
    pub(crate) voice: Option<SharedVoice>,
    pub(crate) key: Option<&'static str>,
    pub(crate) arguments: String,
    pub(crate) is_fit: bool,
}

impl Default for Wish {
    fn default() -> Self {
        let arguments = "{}".into();
        Self { until: secs(60), at_most: secs(600), voice: None, key: None, arguments, is_fit: true }
    }
}

/// A call that is under way, in a task of its own.
pub(crate) struct Calling {
    task: JoinHandle<(Result<Outcome, Fault>, Instant)>,
    began: Instant,
}

impl Calling {
    pub(crate) fn begin(session: &Arc<dyn Session>, tool: &str, wish: Wish) -> Self {
        let (session, began) = (Arc::clone(session), Instant::now());
        let arguments = RawValue::from_string(wish.arguments.clone()).unwrap();
        let params = Params::tool_call(tool, Some(&arguments)).unwrap();
        let task = tokio::spawn(async move {
            let is_fit = move || wish.is_fit;
            let ask = Ask {
                method: "tools/call",
                params: &params,
                idempotency_key: wish.key,
                until: began + wish.until,
                client: ClientMeta::Host,
                voice: wish.voice.as_ref(),
                has_others: None,
                at_most: began + wish.at_most,
                headers: &[],
                is_fit: Some(&is_fit),
            };
            let outcome = session.request(ask).await;
            (outcome, Instant::now())
        });
        Self { task, began }
    }

    /// What came of it, and after how long.
    pub(crate) async fn end(self) -> (Result<Outcome, Fault>, Duration) {
        let (outcome, at) = timeout(ENOUGH, self.task).await.unwrap().unwrap();
        (outcome, at - self.began)
    }

    /// The result, as text.
    pub(crate) async fn result(self) -> String {
        match self.end().await.0 {
            Ok(Outcome::Result(result)) => String::from_utf8(result.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The fault, and after how long.
    pub(crate) async fn fault(self) -> (Fault, Duration) {
        match self.end().await {
            (Err(fault), after) => (fault, after),
            (Ok(outcome), _) => panic!("{outcome:?}"),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// The caller goes away.
    pub(crate) fn drop_it(self) {
        self.task.abort();
    }
}

/// Plays a host.
pub(crate) struct Peer {
    pub(crate) link: Arc<dyn Link>,
    calls: Subscription,
    controls: Subscription,
    pub(crate) host: Name,
    pub(crate) generation: Instance,
    clock: WallClock,
    beating: Option<AbortHandle>,
}

/// A call as it came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) head: CallHead,
    pub(crate) message: Message,
    /// The number of the request.
    pub(crate) id: u64,
    pub(crate) body: serde_json::Value,
}

pub(crate) fn subjects() -> Subjects {
    Subjects::new(name("acme"))
}

impl Peer {
    /// A host that listens, without a heartbeat.
    pub(crate) async fn enter(broker: &MemoryBroker, host: &str) -> Self {
        let link = broker.door(host, Rights::all()).connect().await.unwrap();
        let [_, calls, controls] = subjects().of_hosts();
        Self {
            calls: link.subscribe(&calls.0, calls.1).await.unwrap(),
            controls: link.subscribe(&controls.0, controls.1).await.unwrap(),
            link,
            host: name(host),
            generation: Instance(1),
            clock: WallClock::starting_at(HOST_TIME),
            beating: None,
        }
    }

    /// The same, with a heartbeat every second, the first one at once.
    pub(crate) async fn beating(broker: &MemoryBroker, host: &str) -> Self {
        let mut peer = Self::enter(broker, host).await;
        peer.start_beating();
        peer
    }

    pub(crate) fn start_beating(&mut self) {
        let (link, beat) = (Arc::clone(&self.link), self.beat_message());
        let (clock, generation, subject) = (self.clock, self.generation, beat.subject);
        let task = tokio::spawn(async move {
            loop {
                let beat = Beat { generation, time: clock.now(), in_flight: 0, is_draining: false };
                let message = Message::new(subject.clone(), beat.headers(), Bytes::new());
                if link.publish(message).await.is_err() {
                    return;
                }
                tokio::time::sleep(secs(1)).await;
            }
        });
        self.beating = Some(task.abort_handle());
    }

    pub(crate) fn stop_beating(&mut self) {
        if let Some(beating) = self.beating.take() {
            beating.abort();
        }
    }

    fn beat_message(&self) -> Message {
        let beat =
            Beat { generation: self.generation, time: self.clock.now(), in_flight: 0, is_draining: false };
        Message::new(subjects().heartbeat(&self.host), beat.headers(), Bytes::new())
    }

    pub(crate) async fn beat(&self) {
        self.link.publish(self.beat_message()).await.unwrap();
    }

    /// The next call.
    pub(crate) async fn call(&mut self) -> Came {
        let message = timeout(ENOUGH, self.calls.next()).await.unwrap().unwrap();
        assert!(matches!(subjects().read_to_host(&message.subject), Some(ToHost::Call { .. })));
        let head = CallHead::read(&message.headers).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        Came { head, id: body["id"].as_u64().unwrap(), body, message }
    }

    /// Nobody has called and nobody does.
    pub(crate) async fn nothing_came(mut self) {
        assert!(timeout(secs(5), self.calls.next()).await.is_err());
    }

    /// The next thing that is said about a call, `alive` left out.
    pub(crate) async fn control(&mut self) -> (CallId, Control, Bytes) {
        loop {
            let message = timeout(ENOUGH, self.controls.next()).await.unwrap().unwrap();
            let (control, _) = Control::read(&message.headers).unwrap();
            match subjects().read_to_host(&message.subject) {
                Some(ToHost::Control { call: Some(call), .. }) => return (call, control, message.body),
                Some(ToHost::Control { call: None, .. }) => assert_eq!(control, Control::Alive),
                other => panic!("{other:?}"),
            }
        }
    }

    /// How often the worker says that it lives, until nothing was said for so long.
    pub(crate) async fn count_alive(&mut self, quiet: Duration) -> usize {
        let mut count = 0;
        while let Ok(Some(message)) = timeout(quiet, self.controls.next()).await {
            count += usize::from(Control::read(&message.headers).unwrap().0 == Control::Alive);
        }
        count
    }

    pub(crate) async fn say(&self, call: CallId, progress: Progress, body: impl Into<Bytes>) {
        let subject = subjects().progress(&name("w1"), call);
        self.link.publish(Message::new(subject, progress.headers(), body)).await.unwrap();
    }

    pub(crate) async fn accept(&self, came: &Came) {
        let accepted = Progress::Accepted { host: self.host.clone(), generation: self.generation };
        self.say(came.head.call, accepted, Bytes::new()).await;
    }

    /// A result that is a JSON text.
    pub(crate) async fn answer(&self, came: &Came, result: &str) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, came.id);
        self.reply(came, Reply::Answer, body).await;
    }

    pub(crate) async fn reply(&self, came: &Came, reply: Reply, body: impl Into<Bytes>) {
        let to = came.message.reply.clone().unwrap();
        assert_eq!(to, Inbox::new(&name("w1"), came.head.instance).answer(came.head.call));
        self.link.publish(Message::new(to, reply.headers(), body)).await.unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop_beating();
    }
}

/// Says what a worker may use, whenever it asks.
pub(crate) struct Registrar {
    link: Arc<dyn Link>,
    answer: Arc<Mutex<Result<Manifest, String>>>,
    asked: Arc<Mutex<usize>>,
    task: AbortHandle,
}

impl Registrar {
    pub(crate) async fn enter(broker: &MemoryBroker, servers: Vec<Listed>) -> Self {
        let link = broker.door("registrar", Rights::all()).connect().await.unwrap();
        let [manifest, ..] = subjects().of_hosts();
        let mut questions = link.subscribe(&manifest.0, manifest.1).await.unwrap();
        let answer = Arc::new(Mutex::new(Ok(Manifest::new("h".into(), HOST_TIME, servers))));
        let asked = Arc::new(Mutex::new(0));
        let (out, said, count) = (Arc::clone(&link), Arc::clone(&answer), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Some(question) = questions.next().await {
                ManifestHead::read(&question.headers).unwrap();
                *count.lock().unwrap() += 1;
                let body = match &*said.lock().unwrap() {
                    Ok(manifest) => {
                        let manifest = serde_json::to_string(manifest).unwrap();
                        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{manifest}}}"#)
                    }
                    Err(error) => format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#),
                };
                let reply = Message::new(question.reply.unwrap(), Reply::Answer.headers(), body);
                out.publish(reply).await.unwrap();
            }
        });
        Self { link, answer, asked, task: task.abort_handle() }
    }

    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    /// From now on this is the answer.
    pub(crate) fn set(&self, answer: Result<Vec<Listed>, &str>) {
        let answer = answer.map(|servers| Manifest::new("h".into(), HOST_TIME, servers));
        *self.answer.lock().unwrap() = answer.map_err(str::to_owned);
    }

    /// Says that something has changed.
    pub(crate) async fn push(&self) {
        let message =
            Message::new(subjects().changed(&name("w1")), Progress::Changed.headers(), Bytes::new());
        self.link.publish(message).await.unwrap();
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server of a manifest.
pub(crate) fn listed(name: &str, tools: &[&str]) -> Listed {
    let tool = |tool: &&str| {
        let text = format!(r#"{{"name":"{tool}","inputSchema":{{"type":"object"}}}}"#);
        RawValue::from_string(text).unwrap()
    };
    let tools = tools.iter().map(tool).collect();
    Listed { name: name.into(), tools, error: None, call_timeout: 60_000, max_call_time: 600_000, rank: 0 }
}

/// Waits until something is so, without a limit of its own.
pub(crate) async fn until(what: impl Fn() -> bool) {
    timeout(ENOUGH, async {
        while !what() {
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await
    .unwrap();
}
