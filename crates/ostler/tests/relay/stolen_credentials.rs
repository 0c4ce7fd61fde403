//! An attacker with the credentials of a worker, who tries to exceed their permissions.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::agent::Agent;
use crate::home::Home;
use crate::nats::NatsAttacker;
use crate::site::{Setup, worker, worker_in_role};

/// Id of a call, valid and arbitrary.
const CALL: &str = "0190a1b2-c3d4-7000-8000-000000000000";

#[test]
fn a_worker_can_say_and_hear_only_what_is_its_own() {
    let (broker, sites) = Setup::default().build();
    let daemon = sites[0].start();
    let mut client = NatsAttacker::connect(broker.port(), "worker-w1");

    let own = ["ostler.default.call.crew.w1".to_owned(), format!("ostler.default.control.w1.{CALL}")];
    for subject in own {
        assert_eq!(client.publish(&subject), None, "{subject}");
    }
    for subject in ["_INBOX_w1.>", "ostler.default.progress.w1.*", "ostler.default.heartbeat.*"] {
        assert_eq!(client.subscribe(subject), None, "{subject}");
    }

    let foreign = [
        // Another role, another worker, and both.
        "ostler.default.call.other.w1".into(),
        "ostler.default.call.crew.w2".into(),
        "ostler.default.call.other.w3".into(),
        "ostler.elsewhere.call.crew.w1".into(),
        "ostler.default.call.crew.w1.fake.echo".into(),
        "ostler.default.manifest.other.w1".into(),
        "ostler.default.manifest.crew.w2".into(),
        format!("ostler.default.control.w2.{CALL}"),
        // An answer, an acceptance and a heartbeat that no host has sent.
        format!("_INBOX_w2.0000000000000001.{CALL}"),
        format!("_INBOX_w1.0000000000000001.{CALL}"),
        format!("ostler.default.progress.w2.{CALL}"),
        format!("ostler.default.progress.w1.{CALL}"),
        "ostler.default.heartbeat.mill".into(),
    ];
    for subject in foreign {
        let error = client.publish(&subject);
        assert!(
            error.as_ref().is_some_and(|text| text.contains("Permissions Violation")),
            "{subject}: {error:?}"
        );
    }
    for subject in [
        "_INBOX_w2.>",
        "_HOST_INBOX_mill.>",
        ">",
        "ostler.>",
        "*.*.progress.*.*",
        "ostler.default.progress.w2.*",
        "ostler.default.call.crew.w1",
        "ostler.default.call.*.* ostler-hosts",
        "ostler.default.control.*.*",
    ] {
        let error = client.subscribe(subject);
        assert!(
            error.as_ref().is_some_and(|text| text.contains("Permissions Violation")),
            "{subject}: {error:?}"
        );
    }
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    assert!(sites[0].ledger().is_empty(), "{:?}", sites[0].ledger());
}

#[test]
fn a_worker_that_claims_another_role_is_told_that_the_broker_refuses() {
    let (broker, sites) = Setup::default().build();
    let (far, daemon) = (Home::new(), sites[0].start());
    let mut honest = Agent::start_as(worker(&far, &broker, "w1"));
    honest.hello();
    assert!(honest.call("fake__echo", json!({"n": 1})).get("result").is_some());

    let mut agent = Agent::start_as(worker_in_role(&far, &broker, "w1", "other"));
    agent.hello();
    let mut longest = Duration::ZERO;
    for n in 2..10 {
        let began = Instant::now();
        let answer = agent.call("fake__echo", json!({"n": n}));
        let took = began.elapsed();
        longest = longest.max(took);
        let text = answer["error"].to_string();
        assert!(text.contains("broker") && answer.get("result").is_none(), "{answer}");
    }
    println!("calls that the broker refuses ended within {longest:.1?}");
    drop(agent);
    honest.end();
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    assert_eq!(sites[0].ledger().len(), 1, "{:?}", sites[0].ledger());
}
