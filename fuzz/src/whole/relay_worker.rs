//! Worker that reaches hosts over a broker in memory.
//!
//! Some words of an input stand for values that only a run knows: `INBOX` and `PROGRESS` for the
//! subjects of the current call, `CALL` for its id and `NUMBER` for the id of its request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, ClientMeta, ConnectContext, Connector, ServerSession, UpstreamRequest,
};
use ostler_host::{Caller, Host, HostOptions, ServerName, ServerSpec};
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::broker::{BrokerMessage, BrokerSubscription, RelayLink};
use ostler_relay::envelope::{CallHead, Heartbeat, RelayProgress, RelayReply};
use ostler_relay::worker::{Worker, WorkerOptions};
use ostler_relay::{Instance, WallClock};
use ostler_wire::{Params, RpcOutcome};
use tokio::time::{Instant, sleep, timeout};

use super::relay_messages::{START, messages, relay_name, subjects};
use super::{run_until_stalled, server};

/// Longer than the silence after which a worker considers a host gone.
const PAUSE: Duration = Duration::from_secs(3);

/// Makes a call that is answered with the messages of `input`, then another one that is answered
/// well.
pub fn call(input: &[u8]) {
    super::run(async {
        let broker = MemoryBroker::new();
        let options = WorkerOptions::new(relay_name("acme"), relay_name("all"), relay_name("w1"));
        let clock = WallClock::starting_at(START);
        let options = WorkerOptions { clock, seed: Some(7), status_sink: Arc::new(|_| {}), ..options };
        let worker = Worker::start(broker.for_user("worker", BrokerPermissions::all()), options);
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let session =
            connect_session(&host, worker.connector(ServerName::new("s").expect("it is a name"))).await;
        let mut relay_host = ScriptedRelayHost::connect(&broker).await;
        run_until_stalled().await;

        let calling = tokio::spawn(send_call(Arc::clone(&session)));
        let call_message = relay_host.calls.next().await.expect("the broker is up");
        let sent = messages(input, |text| relay_host.substitute(text, &call_message));
        let all: Vec<u8> = sent.iter().flat_map(|message| message.body.to_vec()).collect();
        for message in sent {
            let _ = relay_host.link.publish(message).await;
            run_until_stalled().await;
        }
        let outcome = calling.await.expect("nobody panics");
        let was_sent =
            |words: &[u8]| words.is_empty() || all.windows(words.len()).any(|window| window == words);
        match &outcome {
            Ok(RpcOutcome::Result(result)) => assert!(was_sent(result), "never sent: {result:?}"),
            Ok(RpcOutcome::Error(error)) => assert!(was_sent(&error.raw), "never sent: {:?}", error.raw),
            Err(_) => {}
        }
        assert!(timeout(PAUSE, relay_host.calls.next()).await.is_err(), "a call is sent once: {outcome:?}");

        let calling = tokio::spawn(send_call(session));
        while !calling.is_finished() {
            let Ok(Some(call_message)) = timeout(Duration::from_secs(1), relay_host.calls.next()).await
            else {
                continue;
            };
            relay_host.answer(&call_message).await;
        }
        match calling.await.expect("nobody panics") {
            Ok(RpcOutcome::Result(result)) => assert_eq!(result, r#"{"good":true}"#),
            other => panic!("{other:?}"),
        }
    });
}

/// Returns the id of the request in a call.
fn request_id(call_message: &BrokerMessage) -> String {
    let body: serde_json::Value = serde_json::from_slice(&call_message.body).expect("the worker speaks well");
    body["id"].to_string()
}

async fn send_call(session: Arc<dyn ServerSession>) -> Result<RpcOutcome, Fault> {
    let params = Params::tool_call(server::ECHO, None).expect("it is a tool");
    let request = UpstreamRequest {
        method: "tools/call",
        params: &params,
        idempotency_key: None,
        deadline: Instant::now() + Duration::from_secs(60),
        client: ClientMeta::Host,
        observer: None,
        has_other_callers: None,
        hard_deadline: Instant::now() + Duration::from_secs(600),
        headers: &[],
        may_send: None,
    };
    session.request(request).await
}

/// Scripted host at the broker.
struct ScriptedRelayHost {
    link: Arc<dyn RelayLink>,
    calls: BrokerSubscription,
}

impl ScriptedRelayHost {
    async fn connect(broker: &MemoryBroker) -> Self {
        let link = broker.for_user("h1", BrokerPermissions::all()).connect().await.expect("the broker is up");
        let [_, calls, _] = subjects().host_subscriptions();
        let calls = link.subscribe(&calls.0, calls.1).await.expect("the broker is up");
        tokio::spawn(send_heartbeats(Arc::clone(&link), WallClock::starting_at(START)));
        Self { link, calls }
    }

    /// Substitutes the words of an input with the values of a call.
    fn substitute(&self, text: &str, call_message: &BrokerMessage) -> String {
        let call = CallHead::read(&call_message.headers).expect("the worker speaks well").call;
        text.replace("INBOX", call_message.reply_to.as_deref().unwrap_or_default())
            .replace("PROGRESS", &subjects().progress(&relay_name("w1"), call))
            .replace("CALL", &call.to_string())
            .replace("NUMBER", &request_id(call_message))
    }

    async fn answer(&self, call_message: &BrokerMessage) {
        let call = CallHead::read(&call_message.headers).expect("the worker speaks well").call;
        let accepted = RelayProgress::Accepted { host: relay_name("h1"), generation: Instance(9) }.headers();
        let _ = self
            .link
            .publish(BrokerMessage::new(subjects().progress(&relay_name("w1"), call), accepted, ""))
            .await;
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"good":true}}}}"#, request_id(call_message));
        let inbox = call_message.reply_to.clone().expect("a call says where its answer goes");
        let _ = self.link.publish(BrokerMessage::new(inbox, RelayReply::Answer.headers(), body)).await;
    }
}

async fn send_heartbeats(link: Arc<dyn RelayLink>, clock: WallClock) {
    loop {
        let beat = Heartbeat { generation: Instance(9), time: clock.now(), in_flight: 0, is_draining: false };
        let _ = link
            .publish(BrokerMessage::new(subjects().heartbeat(&relay_name("h1")), beat.headers(), ""))
            .await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// Connector that passes a session on and keeps it.
struct SessionCapture {
    connector: Arc<dyn Connector>,
    session: Mutex<Option<Arc<dyn ServerSession>>>,
}

impl Connector for SessionCapture {
    fn connect(
        &self,
        context: ConnectContext,
    ) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            let session = self.connector.connect(context).await?;
            *self.session.lock().expect("nobody panics") = Some(Arc::clone(&session));
            Ok(session)
        })
    }

    fn containment(&self) -> Containment {
        self.connector.containment()
    }
}

async fn connect_session(host: &Host, connector: Arc<dyn Connector>) -> Arc<dyn ServerSession> {
    let capture = Arc::new(SessionCapture { connector, session: Mutex::new(None) });
    let spec = ServerSpec::stdio(ServerName::new("s").expect("it is a name"), "relayed");
    let connector = Arc::clone(&capture) as Arc<dyn Connector>;
    host.spawn_with(&Caller::operator(), spec, connector).await.expect("it is registered");
    let session = capture.session.lock().expect("nobody panics").clone();
    session.expect("an eager server is connected")
}
