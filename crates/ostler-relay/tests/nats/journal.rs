//! Key-value journal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_relay::broker::nats::NatsOptions;
use ostler_relay::journal::{CLAIM_RETENTION, CallJournal, ClaimOutcome, KvJournal, kv_bucket};
use ostler_relay::{CallId, RelayName};
use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};

use super::{at, in_time};

fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
}

fn call(number: u64) -> CallId {
    CallId::new(number, &[7; 10])
}

async fn server() -> NatsServer {
    NatsServer::start(NatsSetup { jetstream: true, version: NatsVersion::Current, ..NatsSetup::default() })
        .await
}

fn journal(server: &NatsServer) -> Arc<KvJournal> {
    Arc::new(KvJournal::open(at(server), &name("acme")))
}

/// Retries a claim until the journal is reachable.
async fn claim(journal: &KvJournal, number: u64) -> ClaimOutcome {
    in_time(async {
        loop {
            if let Ok(claim) = journal.claim(call(number), &name("w")).await {
                return claim;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_who_claim_a_call_one_gets_it() {
    let server = server().await;
    let journals = [journal(&server), journal(&server)];
    for journal in &journals {
        claim(journal, 1_000).await;
    }
    for number in 0..16 {
        let attempt = |attempt: usize| {
            let journal = Arc::clone(&journals[attempt % 2]);
            tokio::spawn(async move { journal.claim(call(number), &name("w")).await })
        };
        let attempts: Vec<_> = (0..64).map(attempt).collect();
        let mut ours = 0;
        for attempt in attempts {
            match in_time(attempt).await.unwrap_or_else(|error| panic!("{error}")) {
                Ok(ClaimOutcome::Ours) => ours += 1,
                Ok(ClaimOutcome::Taken { is_answered: is_settled }) => assert!(!is_settled),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(ours, 1);
    }
}

#[tokio::test]
async fn a_claim_outlives_its_host_and_its_end_is_remembered() {
    let server = server().await;
    let first = journal(&server);
    assert_eq!(claim(&first, 1).await, ClaimOutcome::Ours);
    assert_eq!(claim(&first, 2).await, ClaimOutcome::Ours);
    first.mark_answered(call(1));
    in_time(first.flush()).await;
    drop(first);
    let second = journal(&server);
    // `mark_answered` does not wait until the entry is stored.
    in_time(async { while claim(&second, 1).await != (ClaimOutcome::Taken { is_answered: true }) {} }).await;
    assert_eq!(claim(&second, 2).await, ClaimOutcome::Taken { is_answered: false });
}

/// Tolerance for the timeout of 1.5 s, which stands in the error: a busy machine is slower.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn nothing_begins_while_the_broker_is_away_and_claims_outlive_it() {
    let mut server = server().await;
    let journal = journal(&server);
    assert_eq!(claim(&journal, 1).await, ClaimOutcome::Ours);
    server.kill();
    for number in 2..4 {
        let began = Instant::now();
        let refused = journal.claim(call(number), &name("w")).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(began.elapsed() < REFUSED_WITHIN, "{:?}", began.elapsed());
    }
    server.restart().await;
    assert_eq!(claim(&journal, 1).await, ClaimOutcome::Taken { is_answered: false });
    assert_eq!(claim(&journal, 4).await, ClaimOutcome::Ours);
}

#[tokio::test]
async fn a_broker_that_hangs_is_not_waited_for_longer_than_a_worker_waits() {
    let server = server().await;
    let journal = journal(&server);
    claim(&journal, 1).await;
    server.freeze().await;
    let began = Instant::now();
    let refused = journal.claim(call(2), &name("w")).await.map_err(|error| error.to_string());
    let expected =
        "the journal of calls can't be written: the bucket ostler_claims_acme has not answered within 1.5s";
    assert_eq!(refused, Err(expected.to_owned()));
    assert!(began.elapsed() < REFUSED_WITHIN, "{:?}", began.elapsed());
    server.thaw();
}

#[tokio::test]
async fn the_bucket_forgets_claims_when_no_request_can_come_any_more() {
    let server = server().await;
    claim(&journal(&server), 1).await;
    let config = bucket_config(&server).await;
    assert_eq!(config.max_age, CLAIM_RETENTION);
    assert_eq!(config.max_messages_per_subject, 1);
    assert_eq!(config.storage, async_nats::jetstream::stream::StorageType::File);
}

async fn bucket_config(server: &NatsServer) -> async_nats::jetstream::stream::Config {
    let client = async_nats::connect(server.url()).await.unwrap_or_else(|error| panic!("{error}"));
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream(format!("KV_{}", kv_bucket(&name("acme")))).await;
    stream.unwrap_or_else(|error| panic!("{error}")).cached_info().config.clone()
}

#[tokio::test]
async fn a_bucket_that_forgets_too_soon_is_not_used() {
    let server = server().await;
    let client = async_nats::connect(server.url()).await.unwrap_or_else(|error| panic!("{error}"));
    let config = async_nats::jetstream::kv::Config {
        bucket: kv_bucket(&name("acme")),
        history: 1,
        max_age: Duration::from_secs(5),
        ..Default::default()
    };
    let made = async_nats::jetstream::new(client).create_key_value(config).await;
    assert!(made.is_ok(), "{:?}", made.err());
    let refused = journal(&server).claim(call(1), &name("w")).await.map_err(|error| error.to_string());
    let expected = "the journal of calls can't be written: the bucket ostler_claims_acme: \
        it keeps claims for 5s only, and must for 600s: delete it";
    assert_eq!(refused, Err(expected.to_owned()));
}

#[tokio::test]
async fn it_is_said_that_jetstream_is_off_or_nobody_is_there() {
    let mut server = NatsServer::start_default(NatsVersion::Current).await;
    let refused = journal(&server).claim(call(1), &name("w")).await.map_err(|error| error.to_string());
    assert!(refused.as_ref().is_err_and(|text| text.contains("JetStream is needed for it")), "{refused:?}");
    server.kill();
    let refused = KvJournal::open(NatsOptions::new(vec![server.url()]), &name("acme"));
    let refused = refused.claim(call(1), &name("w")).await.map_err(|error| error.to_string());
    assert!(refused.as_ref().is_err_and(|text| text.contains("Connection refused")), "{refused:?}");
}
