//! Relay over a real NATS server with the printed config.

use std::sync::Arc;
use std::time::Duration;

use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, BrokerMessage, BrokerSubscription};
use ostler_relay::chunk::CHUNK_SIZE;
use ostler_relay::envelope::{Control, RelayProgress, RelayReply};
use ostler_relay::journal::MemoryJournal;
use ostler_relay::nats_config::{
    HostUser, NatsConfigSpec as Users, NatsLogin, WorkerUser, host_user_name, nats_config, worker_user_name,
};
use ostler_relay::service::{Service, ServiceOptions, ServiceState};
use ostler_relay::subject::{Subjects, WorkerInbox};
use ostler_relay::{Instance, WallClock};
use ostler_testkit::{MALFORMED_HEADERS, MALFORMED_TOKENS, NatsServer, NatsSetup, NatsVersion};
use ostler_testkit::{RawNatsClient, Script, ScriptedReply, TestHost};

use crate::harness::{ManualWorker, call_id, name, test_host, text};

/// Timeout of every wait, far above the latency of a loopback.
const PATIENCE: Duration = Duration::from_secs(10);

struct NatsHarness {
    server: NatsServer,
    test_host: TestHost,
    service: Service,
    clock: WallClock,
}

impl NatsHarness {
    async fn start(which: NatsVersion, script: Script) -> Self {
        Self::start_with(which, script, "").await
    }

    /// Starts a server with additional config lines.
    async fn start_with(which: NatsVersion, script: Script, more: &str) -> Self {
        let config = nats_config(&Users {
            tenant: name("acme"),
            hosts: vec![HostUser { name: name("h1"), login: NatsLogin::Password }],
            roles: vec![name("dev")],
            workers: ["w1", "w2"].map(|worker| user(worker, "dev")).into(),
            max_call_time: Duration::from_secs(600),
            has_kv: false,
            store_dir: None,
        });
        let config = format!("{more}\n{config}");
        let env = ["HOST_H1", "WORKER_W1", "WORKER_W2"]
            .map(|user| (format!("OSTLER_{user}_PASSWORD"), "secret".into()));
        let server =
            NatsServer::start(NatsSetup { version: which, config, env: env.into(), jetstream: false }).await;
        let test_host = test_host().server("a", script).start().await;
        let clock = WallClock::new();
        let options = ServiceOptions { clock, ..ServiceOptions::new(name("acme"), name("h1")) };
        let broker = Arc::new(NatsBroker::new(options_of(&server, host_user_name(&name("h1")))));
        let service = Service::start(test_host.host.clone(), broker, Arc::new(MemoryJournal::new()), options);
        Self { server, test_host, service, clock }
    }

    /// Connects a worker and waits for the host's heartbeat.
    async fn worker(&self) -> ManualWorker {
        let (worker, instance) = (name("w1"), Instance(1));
        let broker = NatsBroker::new(options_of(&self.server, worker_user_name(&worker)));
        let link = broker.connect().await.unwrap();
        let (subjects, inbox) = (Subjects::new(name("acme")), WorkerInbox::new(&worker, instance));
        let [progress, heartbeat, answers] = subjects.worker_subscriptions(&worker, &inbox);
        let mut manual_worker = ManualWorker {
            progress: link.subscribe(&progress, None).await.unwrap(),
            heartbeat: link.subscribe(&heartbeat, None).await.unwrap(),
            answers: link.subscribe(&answers, None).await.unwrap(),
            link,
            subjects,
            role: name("dev"),
            worker,
            instance,
            inbox,
            clock: self.clock,
        };
        next(&mut manual_worker.heartbeat).await;
        manual_worker
    }
}

fn user(worker: &str, role: &str) -> WorkerUser {
    WorkerUser { name: name(worker), role: name(role), login: NatsLogin::Password }
}

fn options_of(server: &NatsServer, user: String) -> NatsOptions {
    let credentials = Credentials::Password { user, password: "secret".into() };
    NatsOptions { credentials, ..NatsOptions::new(vec![server.url()]) }
}

async fn next(subscription: &mut BrokerSubscription) -> BrokerMessage {
    let message = tokio::time::timeout(PATIENCE, subscription.next()).await;
    message.unwrap_or_else(|_| panic!("nothing within {PATIENCE:?}")).unwrap()
}

async fn accepted(manual_worker: &mut ManualWorker) {
    let message = next(&mut manual_worker.progress).await;
    assert!(
        matches!(RelayProgress::read(&message.headers), Ok(RelayProgress::Accepted { .. })),
        "{message:?}"
    );
}

async fn answer(manual_worker: &mut ManualWorker) -> serde_json::Value {
    let message = next(&mut manual_worker.answers).await;
    assert_eq!(RelayReply::read(&message.headers), Ok(RelayReply::Answer), "{message:?}");
    serde_json::from_slice(&message.body).unwrap()
}

#[tokio::test]
async fn calls_manifests_and_repeats_pass_a_server_that_keeps_everybody_apart() {
    for which in [NatsVersion::Core, NatsVersion::Current] {
        let harness = NatsHarness::start(which, Script::echo()).await;
        let mut worker = harness.worker().await;
        worker.ask_manifest(1).await;
        assert_eq!(answer(&mut worker).await["result"]["servers"][0]["name"], "a");
        for _ in 0..2 {
            worker.call(2, "a", "echo").await;
            assert_eq!(text(&answer(&mut worker).await), "{}");
        }
        accepted(&mut worker).await;
        assert_eq!(harness.test_host.server("a").count("echo"), 1);
        assert_eq!(harness.service.status().state, ServiceState::Connected);
    }
}

#[tokio::test]
async fn an_answer_survives_the_death_of_the_broker() {
    let script =
        Script::echo().tool_replying("slow", ScriptedReply::text("done").after(Duration::from_millis(300)));
    let mut harness = NatsHarness::start(NatsVersion::Core, script).await;
    let mut worker = harness.worker().await;
    worker.call(1, "a", "slow").await;
    accepted(&mut worker).await;
    harness.server.kill();
    while harness.test_host.server("a").in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    harness.server.restart().await;
    let mut worker = harness.worker().await;
    worker.control(1, Control::Resume, "").await;
    assert_eq!(text(&answer(&mut worker).await), "done");
    assert_eq!(harness.test_host.server("a").count("slow"), 1);
}

/// Receives a chunked answer, acknowledges four chunks at a time and returns the longest chunk.
async fn receive_chunked(worker: &mut ManualWorker) -> (serde_json::Value, usize) {
    let announced = next(&mut worker.answers).await;
    let Ok(RelayReply::Chunked { length, .. }) = RelayReply::read(&announced.headers) else {
        panic!("{announced:?}")
    };
    let (mut whole, mut longest) = (Vec::new(), 0);
    for number in 0.. {
        let chunk = next(&mut worker.progress).await;
        assert_eq!(RelayProgress::read(&chunk.headers), Ok(RelayProgress::Chunk(number)));
        whole.extend_from_slice(&chunk.body);
        longest = longest.max(chunk.body.len());
        if whole.len() as u64 == length {
            break;
        }
        if number % 4 == 3 {
            let control = Control::Ack(number + 1).headers(worker.instance);
            let subject = worker.subjects.control(&worker.worker, call_id(1));
            worker.publish(BrokerMessage::new(subject, control, "")).await;
        }
    }
    (serde_json::from_slice(&whole).unwrap(), longest)
}

#[tokio::test]
async fn a_long_answer_comes_whole_through_a_real_server() {
    let long = "x".repeat(3 << 20);
    let harness = NatsHarness::start(
        NatsVersion::Core,
        Script::echo().tool_replying("long", ScriptedReply::text(&long)),
    )
    .await;
    let mut worker = harness.worker().await;
    worker.call(1, "a", "long").await;
    accepted(&mut worker).await;
    let (answer, longest) = receive_chunked(&mut worker).await;
    assert_eq!((text(&answer), longest), (&*long, CHUNK_SIZE));
}

#[tokio::test]
async fn an_answer_that_is_too_long_for_the_server_comes_in_smaller_chunks() {
    let long = "x".repeat(200 << 10);
    let script = Script::echo().tool_replying("long", ScriptedReply::text(&long));
    let harness = NatsHarness::start_with(NatsVersion::Core, script, "max_payload: 65536").await;
    let mut worker = harness.worker().await;
    worker.call(1, "a", "long").await;
    accepted(&mut worker).await;
    let (answer, longest) = receive_chunked(&mut worker).await;
    assert_eq!((text(&answer), longest), (&*long, 60 << 10));
}

#[tokio::test]
async fn a_drained_host_has_said_everything_before_it_leaves() {
    let script =
        Script::echo().tool_replying("slow", ScriptedReply::text("done").after(Duration::from_millis(300)));
    let harness = NatsHarness::start(NatsVersion::Core, script).await;
    let mut worker = harness.worker().await;
    for call in 1..=16 {
        worker.call(call, "a", "slow").await;
    }
    for _ in 1..=16 {
        accepted(&mut worker).await;
    }
    harness.service.drain(PATIENCE).await;
    assert_eq!(harness.service.status().state, ServiceState::Over);
    for _ in 1..=16 {
        assert_eq!(text(&answer(&mut worker).await), "done");
    }
    worker.call(17, "a", "echo").await;
    assert!(next(&mut worker.answers).await.is_no_responders);
}

#[tokio::test]
async fn a_worker_that_sends_nonsense_cuts_nobody_off() {
    for which in [NatsVersion::Core, NatsVersion::Current] {
        let harness = NatsHarness::start(which, Script::echo()).await;
        let mut worker = harness.worker().await;
        let mut raw_client =
            RawNatsClient::connect(&harness.server, Some((&worker_user_name(&name("w2")), "secret"))).await;
        let mut calls = 1..;
        let messages = MALFORMED_HEADERS.iter().map(|head| (&b"x"[..], *head));
        for (token, head) in
            messages.chain(MALFORMED_TOKENS.iter().map(|token| (*token, &b"NATS/1.0\r\n\r\n"[..])))
        {
            raw_client.publish(&[b"ostler.acme.control.w2.", token].concat(), head, b"{}").await;
            worker.call(calls.next().unwrap(), "a", "echo").await;
            assert_eq!(text(&answer(&mut worker).await), "{}");
        }
        let status = harness.service.status();
        let refused = (MALFORMED_HEADERS.len() + MALFORMED_TOKENS.len()) as u64;
        assert_eq!((status.state, status.refused), (ServiceState::Connected, refused));
    }
}
