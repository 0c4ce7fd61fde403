//! Permissions of the printed config at a real server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, BrokerConnectError, Denial, RelayLink};
use ostler_relay::journal::{CallJournal as _, ClaimOutcome, KvJournal};
use ostler_relay::nats_config::{
    HostUser, NatsConfigSpec, NatsLogin, WorkerUser, generate_user_key, host_inbox_prefix, host_user_name,
    nats_config, worker_user_name,
};
use ostler_relay::subject::{HOST_QUEUE_GROUP, Subjects, WorkerInbox};
use ostler_relay::{CallId, Instance, RelayName};
use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};

use super::{BOTH, at, connect, in_time, message, next, publish, subscribe};

/// A denial arrives before the worker's accept timeout, so the call ends as rejected and not as
/// unknown.
const DENIED_WITHIN: Duration = Duration::from_secs(2);

fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
}

fn subjects() -> Subjects {
    Subjects::new(name("acme"))
}

fn spec() -> NatsConfigSpec {
    let worker = |text: &str, role: &str| WorkerUser {
        name: name(text),
        role: name(role),
        login: NatsLogin::Password,
    };
    NatsConfigSpec {
        tenant: name("acme"),
        hosts: vec![HostUser { name: name("h1"), login: NatsLogin::Password }],
        roles: vec![name("dev"), name("ops")],
        workers: vec![worker("w1", "dev"), worker("w-2", "dev")],
        max_call_time: Duration::from_secs(600),
        has_kv: false,
        store_dir: None,
    }
}

/// Returns the config of a relay with one host and three workers: w1 and w-2 in dev, ops in ops.
struct PermissionedNats {
    server: NatsServer,
}

impl PermissionedNats {
    async fn start(which: NatsVersion, spec: &NatsConfigSpec) -> Self {
        let env = [("HOST_H1", "h"), ("WORKER_W1", "1"), ("WORKER_W_2", "2"), ("WORKER_OPS", "o")];
        let env = env.map(|(user, secret)| (format!("OSTLER_{user}_PASSWORD"), format!("secret-{secret}")));
        let config = nats_config(spec);
        Self {
            server: NatsServer::start(NatsSetup {
                version: which,
                config,
                env: env.into(),
                jetstream: false,
            })
            .await,
        }
    }

    fn options(&self, user: String, secret: &str) -> NatsOptions {
        let password = format!("secret-{secret}");
        NatsOptions { credentials: Credentials::Password { user, password }, ..at(&self.server) }
    }

    async fn worker(&self, worker: &str, secret: &str) -> Arc<dyn RelayLink> {
        connect(self.options(worker_user_name(&name(worker)), secret)).await
    }

    async fn host(&self) -> Arc<dyn RelayLink> {
        connect(self.options(host_user_name(&name("h1")), "h")).await
    }
}

/// Time within which a denial arrives.
async fn denied(link: &Arc<dyn RelayLink>, subject: &str) -> Duration {
    let mut denials = link.denials();
    let began = Instant::now();
    publish(link, message(subject, "{}")).await;
    let denial = in_time(denials.recv()).await;
    let took = began.elapsed();
    assert_eq!(denial, Ok(Denial::Publish(subject.into())));
    assert!(took < DENIED_WITHIN, "{took:?}");
    took
}

async fn denied_to_read(link: &Arc<dyn RelayLink>, subject: &str, queue: Option<&str>) {
    let mut denials = link.denials();
    let _subscription = link.subscribe(subject, queue).await;
    assert_eq!(in_time(denials.recv()).await, Ok(Denial::Subscribe(subject.into())));
}

fn call_of(role: &str, worker: &str) -> String {
    subjects().call(&name(role), &name(worker))
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figure is for who runs it alone")]
async fn a_worker_can_say_nothing_in_anothers_name_and_hears_so_at_once() {
    let mut took = Vec::new();
    for which in BOTH {
        let nats = PermissionedNats::start(which, &spec()).await;
        let host = nats.host().await;
        let mut received = Vec::new();
        for (subject, queue) in subjects().host_subscriptions() {
            received.push(host.subscribe(&subject, queue).await.unwrap_or_else(|error| panic!("{error}")));
        }
        let worker = nats.worker("w1", "1").await;
        let id = CallId::new(1, &[7; 10]);
        for subject in [
            call_of("ops", "w1"),
            call_of("dev", "w-2"),
            subjects().manifest(&name("ops"), &name("w1")),
            subjects().manifest(&name("dev"), &name("w-2")),
            subjects().control(&name("w-2"), id),
            subjects().alive(&name("ops")),
            subjects().progress(&name("w1"), id),
            subjects().progress(&name("w-2"), id),
            subjects().heartbeat(&name("h1")),
            WorkerInbox::new(&name("w-2"), Instance(7)).answer_subject(id),
            WorkerInbox::new(&name("w1"), Instance(7)).answer_subject(id),
            "ostler.other.call.dev.w1".into(),
            "ostler.acme.call.dev.w1.a.b".into(),
            "$SYS.REQ.SERVER.PING".into(),
            "anything".into(),
        ] {
            took.push(denied(&worker, &subject).await);
        }
        // Permitted messages arrive, and none of the denied ones came before.
        publish(&worker, message(&call_of("dev", "w1"), "mine")).await;
        assert_eq!(next(&mut received[1]).await.body, "mine");
        publish(&worker, message(&subjects().alive(&name("w1")), "mine")).await;
        assert_eq!(next(&mut received[2]).await.body, "mine");
        publish(&worker, message(&subjects().manifest(&name("dev"), &name("w1")), "mine")).await;
        assert_eq!(next(&mut received[0]).await.body, "mine");
    }
    took.sort_unstable();
    println!("denied after {:?} in the middle, {:?} at most", took[took.len() / 2], took[took.len() - 1]);
}

#[tokio::test]
async fn a_worker_can_read_nothing_that_is_not_for_it() {
    for which in BOTH {
        let nats = PermissionedNats::start(which, &spec()).await;
        let worker = nats.worker("w1", "1").await;
        for (subject, queue) in [
            ("_INBOX_w-2.>", None),
            ("_HOST_INBOX_h1.>", None),
            ("_INBOX.>", None),
            (">", None),
            ("ostler.acme.progress.w-2.*", None),
            ("ostler.acme.progress.*.*", None),
            ("ostler.acme.call.*.*.*.*", None),
            ("ostler.acme.call.dev.w1.*.*", Some(HOST_QUEUE_GROUP)),
            ("ostler.acme.control.*.*", None),
            ("ostler.acme.manifest.*.*", Some(HOST_QUEUE_GROUP)),
        ] {
            denied_to_read(&worker, subject, queue).await;
        }
        let host = nats.host().await;
        let inbox = WorkerInbox::new(&name("w1"), Instance(7));
        let mut received = Vec::new();
        for subject in subjects().worker_subscriptions(&name("w1"), &inbox) {
            received.push(subscribe(&worker, &subject).await);
        }
        // A request without a subscriber: its reply comes after all denials.
        let id = CallId::new(1, &[7; 10]);
        publish(&worker, message(&call_of("dev", "w1"), "?").with_reply_to(inbox.answer_subject(id))).await;
        assert!(next(&mut received[2]).await.is_no_responders);
        publish(&host, message(&subjects().progress(&name("w-2"), id), "not mine")).await;
        publish(&host, message(&subjects().progress(&name("w1"), id), "mine")).await;
        publish(&host, message(&subjects().heartbeat(&name("h1")), "beat")).await;
        assert_eq!(next(&mut received[0]).await.body, "mine");
        assert_eq!(next(&mut received[1]).await.body, "beat");
    }
}

#[tokio::test]
async fn a_host_answers_each_question_once_and_says_nothing_unasked() {
    for which in BOTH {
        let nats = PermissionedNats::start(which, &spec()).await;
        let (host, worker) = (nats.host().await, nats.worker("w1", "1").await);
        let [_, (calls, queue), _] = subjects().host_subscriptions();
        let mut requests = host.subscribe(&calls, queue).await.unwrap_or_else(|error| panic!("{error}"));
        let inbox = WorkerInbox::new(&name("w1"), Instance(7));
        let mut answers = subscribe(&worker, "_INBOX_w1.>").await;
        // Until the host has subscribed the request comes back.
        let id = CallId::new(1, &[7; 10]);
        let request = || message(&call_of("dev", "w1"), "?").with_reply_to(inbox.answer_subject(id));
        in_time(async {
            loop {
                publish(&worker, request()).await;
                tokio::select! {
                    request = requests.next() => return request,
                    _ = answers.next() => {}
                }
            }
        })
        .await;
        publish(&host, message(&inbox.answer_subject(id), "answer")).await;
        while next(&mut answers).await.body != "answer" {}
        denied(&host, &inbox.answer_subject(id)).await;
        denied(&host, &inbox.answer_subject(CallId::new(2, &[7; 10]))).await;
        denied(&host, &subjects().heartbeat(&name("h2"))).await;
        denied(&host, &call_of("dev", "w1")).await;
        denied(&host, &subjects().alive(&name("w1"))).await;
        for (subject, queue) in [(&*calls, None), (&*calls, Some("mine")), ("_INBOX_w1.>", None), (">", None)]
        {
            denied_to_read(&host, subject, queue).await;
        }
    }
}

#[tokio::test]
async fn nobody_comes_in_without_being_somebody() {
    for which in BOTH {
        let nats = PermissionedNats::start(which, &spec()).await;
        let wrong = BrokerConnectError::Credentials("authorization violation".into());
        let user = worker_user_name(&name("w1"));
        for options in [at(&nats.server), nats.options(user, "2"), nats.options("w1".into(), "1")] {
            let refused = NatsBroker::new(options).connect().await.err();
            assert_eq!(refused.as_ref(), Some(&wrong));
        }
        assert!(nats.worker("ops", "o").await.broker_info().requires_credentials);
    }
}

#[tokio::test]
async fn a_worker_with_a_key_is_the_worker_of_that_key() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    for which in BOTH {
        let (public, seed) = generate_user_key().unwrap_or_else(|| panic!("a key"));
        let mut spec = spec();
        spec.workers[0].login = NatsLogin::Nkey(public);
        let nats = PermissionedNats::start(which, &spec).await;
        let file = folder.path().join("seed");
        std::fs::write(&file, format!("{seed}\n")).unwrap_or_else(|error| panic!("{error}"));
        let options = NatsOptions { credentials: Credentials::Nkey(file.clone()), ..at(&nats.server) };
        let worker = connect(options.clone()).await;
        assert!(worker.broker_info().requires_credentials);
        denied(&worker, &call_of("dev", "w-2")).await;
        let (_, other) = generate_user_key().unwrap_or_else(|| panic!("a key"));
        std::fs::write(&file, other).unwrap_or_else(|error| panic!("{error}"));
        // The file is read anew for each connection.
        let refused = NatsBroker::new(options).connect().await.err();
        assert_eq!(refused, Some(BrokerConnectError::Credentials("authorization violation".into())));
    }
}

#[tokio::test]
async fn a_host_has_the_rights_that_its_journal_needs_and_no_worker_has_them() {
    let store = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let store_dir = store.path().display().to_string();
    let spec = NatsConfigSpec { has_kv: true, store_dir: Some(store_dir), ..spec() };
    let nats = PermissionedNats::start(NatsVersion::Current, &spec).await;
    let options = nats.options(host_user_name(&name("h1")), "h");
    let options = NatsOptions { inbox_prefix: host_inbox_prefix(&name("h1")), ..options };
    let journal = KvJournal::open(options, &name("acme"));
    let (call, worker) = (CallId::new(1, &[7; 10]), name("w1"));
    assert_eq!(in_time(journal.claim(call, &worker)).await, Ok(ClaimOutcome::Ours));
    assert_eq!(in_time(journal.claim(call, &worker)).await, Ok(ClaimOutcome::Taken { is_answered: false }));
    journal.mark_answered(call);
    in_time(async {
        while journal.claim(call, &worker).await != Ok(ClaimOutcome::Taken { is_answered: true }) {}
    })
    .await;
    let (host, worker) = (nats.host().await, nats.worker("w1", "1").await);
    denied(&worker, &format!("$KV.ostler_claims_acme.{call}")).await;
    denied(&worker, "$JS.API.STREAM.DELETE.KV_ostler_claims_acme").await;
    denied(&host, "$JS.API.STREAM.DELETE.KV_ostler_claims_acme").await;
    denied(&host, "$JS.API.STREAM.PURGE.KV_ostler_claims_acme").await;
    denied(&host, "$KV.other.key").await;
    // A missing permission is reported instead of a timeout.
    let options = nats.options(worker_user_name(&name("w1")), "1");
    let options = NatsOptions { inbox_prefix: "_INBOX_w1".into(), ..options };
    let refused = KvJournal::open(options, &name("acme"));
    let expected = "the journal of calls can't be written: the broker does not let us publish to \
        $JS.API.STREAM.INFO.KV_ostler_claims_acme";
    let refused = in_time(refused.claim(call, &name("w1"))).await.err().map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some(expected));
}
