//! A worker that reaches hosts over a broker in memory.
//!
//! A few words of an input stand for what only a run knows: `INBOX` and `PROGRESS` for the subjects of the call
//! that is under way, `CALL` for its id and `NUMBER` for the id of its request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, ClientMeta, Connector, Plan, Session};
use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_relay::broker::memory::{MemoryBroker, Rights};
use ostler_relay::broker::{Link, Message, Subscription};
use ostler_relay::envelope::{Beat, CallHead, Progress, Reply};
use ostler_relay::worker::{Worker, WorkerOptions};
use ostler_relay::{Instance, WallClock};
use ostler_wire::{Outcome, Params};
use tokio::time::{Instant, sleep, timeout};

use super::relay::{START, messages, subjects, word};
use super::{server, settle};

/// Longer than the silence after which a worker takes a host for gone.
const PAUSE: Duration = Duration::from_secs(3);

/// A worker makes a call and hears the messages of `input`, and then makes another one, which is answered.
pub fn call(input: &[u8]) {
    super::run(async {
        let broker = MemoryBroker::new();
        let options = WorkerOptions::new(word("acme"), word("all"), word("w1"));
        let clock = WallClock::starting_at(START);
        let options = WorkerOptions { clock, seed: Some(7), say: Arc::new(|_| {}), ..options };
        let worker = Worker::start(broker.door("worker", Rights::all()), options);
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let session = session(&host, worker.connector(ServerName::new("s").expect("it is a name"))).await;
        let mut peer = Peer::enter(&broker).await;
        settle().await;

        let asking = tokio::spawn(ask(Arc::clone(&session)));
        let came = peer.calls.next().await.expect("the broker is up");
        let said = messages(input, |text| peer.put_in(text, &came));
        let all: Vec<u8> = said.iter().flat_map(|message| message.body.to_vec()).collect();
        for message in said {
            let _ = peer.link.publish(message).await;
            settle().await;
        }
        let outcome = asking.await.expect("nobody panics");
        let is_said =
            |words: &[u8]| words.is_empty() || all.windows(words.len()).any(|window| window == words);
        match &outcome {
            Ok(Outcome::Result(result)) => assert!(is_said(result), "nobody said {result:?}"),
            Ok(Outcome::Error(error)) => assert!(is_said(&error.raw), "nobody said {:?}", error.raw),
            Err(_) => {}
        }
        assert!(timeout(PAUSE, peer.calls.next()).await.is_err(), "a call is sent once: {outcome:?}");

        let asking = tokio::spawn(ask(session));
        while !asking.is_finished() {
            let Ok(Some(came)) = timeout(Duration::from_secs(1), peer.calls.next()).await else { continue };
            peer.answer(&came).await;
        }
        match asking.await.expect("nobody panics") {
            Ok(Outcome::Result(result)) => assert_eq!(result, r#"{"good":true}"#),
            other => panic!("{other:?}"),
        }
    });
}

/// The id of the request in a call.
fn number(came: &Message) -> String {
    let body: serde_json::Value = serde_json::from_slice(&came.body).expect("the worker speaks well");
    body["id"].to_string()
}

async fn ask(session: Arc<dyn Session>) -> Result<Outcome, Fault> {
    let params = Params::tool_call(server::ECHO, None).expect("it is a tool");
    let ask = Ask {
        method: "tools/call",
        params: &params,
        idempotency_key: None,
        until: Instant::now() + Duration::from_secs(60),
        client: ClientMeta::Host,
        voice: None,
        has_others: None,
        at_most: Instant::now() + Duration::from_secs(600),
        headers: &[],
        is_fit: None,
    };
    session.request(ask).await
}

/// Plays a host.
struct Peer {
    link: Arc<dyn Link>,
    calls: Subscription,
}

impl Peer {
    async fn enter(broker: &MemoryBroker) -> Self {
        let link = broker.door("h1", Rights::all()).connect().await.expect("the broker is up");
        let [_, calls, _] = subjects().of_hosts();
        let calls = link.subscribe(&calls.0, calls.1).await.expect("the broker is up");
        tokio::spawn(beat(Arc::clone(&link), WallClock::starting_at(START)));
        Self { link, calls }
    }

    /// Puts what is known of a call in the place of words.
    fn put_in(&self, text: &str, came: &Message) -> String {
        let call = CallHead::read(&came.headers).expect("the worker speaks well").call;
        text.replace("INBOX", came.reply.as_deref().unwrap_or_default())
            .replace("PROGRESS", &subjects().progress(&word("w1"), call))
            .replace("CALL", &call.to_string())
            .replace("NUMBER", &number(came))
    }

    async fn answer(&self, came: &Message) {
        let call = CallHead::read(&came.headers).expect("the worker speaks well").call;
        let accepted = Progress::Accepted { host: word("h1"), generation: Instance(9) }.headers();
        let _ = self.link.publish(Message::new(subjects().progress(&word("w1"), call), accepted, "")).await;
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"good":true}}}}"#, number(came));
        let inbox = came.reply.clone().expect("a call says where its answer goes");
        let _ = self.link.publish(Message::new(inbox, Reply::Answer.headers(), body)).await;
    }
}

async fn beat(link: Arc<dyn Link>, clock: WallClock) {
    loop {
        let beat = Beat { generation: Instance(9), time: clock.now(), in_flight: 0, is_draining: false };
        let _ = link.publish(Message::new(subjects().heartbeat(&word("h1")), beat.headers(), "")).await;
        sleep(Duration::from_secs(1)).await;
    }
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
            *self.session.lock().expect("nobody panics") = Some(Arc::clone(&session));
            Ok(session)
        })
    }

    fn containment(&self) -> Containment {
        self.connector.containment()
    }
}

async fn session(host: &Host, connector: Arc<dyn Connector>) -> Arc<dyn Session> {
    let tap = Arc::new(Tap { connector, session: Mutex::new(None) });
    let spec = ServerSpec::stdio(ServerName::new("s").expect("it is a name"), "relayed");
    let tapped = Arc::clone(&tap) as Arc<dyn Connector>;
    host.spawn_with(&Caller::operator(), spec, tapped).await.expect("it is registered");
    let session = tap.session.lock().expect("nobody panics").clone();
    session.expect("an eager server is connected")
}
