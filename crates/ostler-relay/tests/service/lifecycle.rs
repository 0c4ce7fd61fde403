//! Lifecycle of workers, hosts and connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_relay::envelope::{Control, RelayProgress};
use ostler_relay::service::{Service, ServiceOptions, ServiceState};
use ostler_testkit::{Reconfigure, Script, ScriptedReply};
use serde_json::json;

use crate::harness::{ServiceHarness, code, host_permissions, meta, name, options, rules, test_host, text};
use crate::{ms, secs};

fn script() -> Script {
    Script::echo()
        .tool_replying("never", ScriptedReply::never())
        .tool_replying("slow", ScriptedReply::text("done").after(secs(3)))
        .tool_replying("slower", ScriptedReply::text("done").after(secs(20)))
}

async fn harness() -> ServiceHarness {
    ServiceHarness::open(test_host().server("a", script()).start().await).await
}

#[tokio::test(start_paused = true)]
async fn a_host_says_every_second_that_it_lives_and_at_once_when_it_connects() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    let first = worker.next_heartbeat().await;
    worker.call(1, "a", "slower").await;
    let second = worker.next_heartbeat().await;
    assert_eq!((second.time - first.time, second.generation), (1_000, first.generation));
    assert_eq!((first.in_flight, second.in_flight, second.is_draining), (0, 1, false));
    harness.broker.disconnect("host");
    let lost = harness.clock.now();
    let third = worker.next_heartbeat().await;
    assert!(third.time - lost <= 100, "the first pause is at most 100 ms");
    assert_eq!(third.generation, first.generation, "the connection is not the life");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_gone_has_its_calls_cancelled() {
    let harness = harness().await;
    let worker = harness.worker("w1").await;
    let other = harness.worker("w2").await;
    worker.call(1, "a", "never").await;
    other.call(2, "a", "never").await;
    for _ in 0..6 {
        harness.test_host.advance(ms(500)).await;
        other.alive().await;
    }
    assert_eq!((harness.test_host.server("a").in_flight(), harness.service.status().workers.len()), (2, 2));
    for _ in 0..2 {
        harness.test_host.advance(ms(500)).await;
        other.alive().await;
    }
    assert_eq!(
        (harness.test_host.server("a").in_flight(), harness.test_host.server("a").cancelled()),
        (1, 1)
    );
    assert_eq!(harness.service.status().in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_life_of_a_worker_does_not_keep_the_calls_of_the_old_one() {
    let harness = harness().await;
    let worker = harness.worker("w1").await;
    worker.call(1, "a", "never").await;
    let second = harness.worker_as("w1", "dev", 2).await;
    for _ in 0..8 {
        harness.test_host.advance(ms(500)).await;
        second.alive().await;
    }
    assert_eq!(harness.test_host.server("a").in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_no_fault_of_the_worker_and_the_answer_waits_for_it() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    harness.broker.go_down();
    harness.test_host.advance(secs(30)).await;
    assert_eq!((harness.test_host.server("a").answered(), harness.test_host.server("a").cancelled()), (2, 0));
    harness.broker.come_up();
    harness.test_host.advance(secs(5)).await;
    let mut worker = harness.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    let (call, answer) = worker.next_answer().await;
    assert_eq!((call, text(&answer)), (1, "done"));
    assert_eq!(harness.test_host.server("a").count("slow"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_still_under_way_after_an_outage_is_accepted_again() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slower").await;
    assert_eq!(worker.next_accepted().await, 1);
    harness.broker.go_down();
    harness.test_host.advance(secs(5)).await;
    harness.broker.come_up();
    harness.test_host.advance(secs(3)).await;
    let mut worker = harness.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    assert_eq!(worker.next_accepted().await, 1);
    for _ in 0..14 {
        harness.test_host.advance(secs(1)).await;
        worker.alive().await;
    }
    assert_eq!(text(&worker.next_answer().await.1), "done");
    assert_eq!(harness.test_host.server("a").count("slower"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_open_is_asked_again_after_an_outage() {
    let reply = ScriptedReply::text("done").asking("roots/list", json!({}));
    let harness = ServiceHarness::open(
        test_host().server("a", Script::echo().tool_replying("ask", reply)).start().await,
    )
    .await;
    let mut worker = harness.worker("w1").await;
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"roots": {}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "_meta": meta}});
    worker.send(worker.head(1), body.to_string()).await;
    assert_eq!(worker.next_accepted().await, 1);
    assert_eq!(worker.next_progress().await.1, RelayProgress::ServerRequest(0));
    worker.control(1, Control::Resume, "").await;
    let resent = [worker.next_progress().await.1, worker.next_progress().await.1];
    assert!(resent.contains(&RelayProgress::ServerRequest(0)), "{resent:?}");
    worker.control(1, Control::Answer(0), r#"{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}"#).await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_another_connection_is_announced_so_that_it_is_asked_for() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    // Only the host is disconnected, so the worker does not notice.
    harness.broker.disconnect("host");
    harness.test_host.advance(secs(2)).await;
    worker.alive().await;
    // The broker denies an answer over a connection other than the request's.
    assert_eq!((worker.next_accepted().await, worker.next_answer_within(ms(1)).await), (1, None));
    worker.control(1, Control::Resume, "").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn what_a_host_does_not_know_it_says_nothing_about() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    worker.control(1, Control::Ack(3), "").await;
    worker.control(1, Control::Answer(0), "{}").await;
    assert!(worker.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_are_refused_before_anything_happens() {
    let test_host = test_host().server("a", script()).start().await;
    let harness = ServiceHarness::open_with(test_host, |options| options.max_in_flight = 4).await;
    let mut worker = harness.worker("w1").await;
    let mut other = harness.worker("w2").await;
    for call in 1..=2 {
        worker.call(call, "a", "never").await;
        assert_eq!(worker.next_accepted().await, call);
    }
    worker.call(3, "a", "never").await;
    let (call, answer) = worker.next_answer().await;
    assert_eq!((call, code(&answer)), (3, "overloaded"));
    assert!(answer["error"]["message"].as_str().unwrap().contains("this worker has 2"), "{answer}");
    for call in 11..=12 {
        other.call(call, "a", "never").await;
        assert_eq!(other.next_accepted().await, call);
    }
    let mut third = harness.worker("w3").await;
    third.call(21, "a", "echo").await;
    let (_, answer) = third.next_answer().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("the host has 4"), "{answer}");
    // A repeated call in flight is not refused.
    worker.call(1, "a", "never").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(1, Control::Cancel, "").await;
    third.call(22, "a", "echo").await;
    assert_eq!(text(&third.next_answer().await.1), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_draining_host_takes_nothing_new_and_finishes_what_is_under_way() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    let service = harness.service.clone();
    let draining = tokio::spawn(async move { service.drain(secs(10)).await });
    ostler_testkit::run_until_stalled().await;
    harness.test_host.advance(ms(1)).await;
    while !worker.next_heartbeat().await.is_draining {}
    worker.call(2, "a", "echo").await;
    let unheard = worker.answers.next().await.unwrap();
    assert!(unheard.is_no_responders, "nobody listens any more");
    assert_eq!(text(&worker.next_answer().await.1), "done");
    draining.await.unwrap();
    assert_eq!((harness.service.status().state, harness.broker.link_count()), (ServiceState::Over, 1));
    assert_eq!(harness.test_host.server("a").count("echo"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_in_its_time_whatever_is_under_way() {
    let harness = harness().await;
    let worker = harness.worker("w1").await;
    worker.call(1, "a", "never").await;
    let began = tokio::time::Instant::now();
    harness.service.drain(secs(2)).await;
    assert!(began.elapsed() >= secs(2) && began.elapsed() < ms(2_100), "{:?}", began.elapsed());
    ostler_testkit::run_until_stalled().await;
    assert_eq!(harness.test_host.server("a").in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_everything_at_once() {
    let harness = harness().await;
    let worker = harness.worker("w1").await;
    worker.call(1, "a", "never").await;
    let other_handle = harness.service.clone();
    let ServiceHarness { test_host, broker, service, .. } = harness;
    drop(service);
    ostler_testkit::run_until_stalled().await;
    assert_eq!((broker.link_count(), test_host.server("a").in_flight()), (2, 1));
    drop(other_handle);
    ostler_testkit::run_until_stalled().await;
    assert_eq!((broker.link_count(), test_host.server("a").in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_a_broker_ends_at_once() {
    let harness = harness().await;
    harness.broker.go_down();
    harness.test_host.advance(secs(60)).await;
    assert_eq!(harness.service.status().state, ServiceState::Waiting);
    let began = tokio::time::Instant::now();
    harness.service.drain(secs(10)).await;
    assert_eq!(began.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_change_while_a_manifest_is_made_is_in_it_or_is_pushed() {
    let slow = Script::echo().on("tools/list", |_| ScriptedReply::result(r#"{"tools":[]}"#).after(secs(5)));
    let test_host = test_host().server("a", Script::echo()).server("b", slow).start().await;
    let harness = ServiceHarness::open(test_host).await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    harness.test_host.advance(secs(1)).await;
    assert_eq!(worker.next_accepted().await, 1);
    harness.test_host.host.set_rules(rules(&[("dev", &["b/*"])])).await;
    harness.test_host.advance(secs(1)).await;
    let (_, answer) = worker.next_answer().await;
    let has_a = answer["result"]["servers"].as_array().unwrap().iter().any(|server| server["name"] == "a");
    harness.test_host.advance(secs(3)).await;
    assert_ne!(has_a, worker.is_silent().await, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_a_worker_may_use_is_pushed_to_it() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    worker.next_answer().await;
    harness.test_host.advance(secs(2)).await;
    assert!(worker.is_silent().await);
    harness.test_host.host.set_rules(rules(&[("dev", &["a/echo"]), ("other", &["*"])])).await;
    assert_eq!(worker.next_progress().await.1, RelayProgress::ManifestChanged);
    harness.test_host.advance(secs(2)).await;
    assert!(worker.is_silent().await, "said once");
    // A change that does not concern the role is not pushed.
    harness.test_host.host.set_rules(rules(&[("dev", &["a/echo"]), ("other", &["b/*"])])).await;
    harness.test_host.advance(secs(2)).await;
    assert!(worker.is_silent().await);
    harness.test_host.host.set_rules(rules(&[("other", &["b/*"])])).await;
    assert_eq!(worker.next_progress().await.1, RelayProgress::ManifestChanged, "the role is gone");
    worker.ask_manifest(2).await;
    assert_eq!(code(&worker.next_answer().await.1), "invalid-argument");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_with_its_list_does_not_delay_the_news_of_others() {
    let slow = Script::echo().on("tools/list", |_| ScriptedReply::result(r#"{"tools":[]}"#).after(secs(50)));
    let test_host = test_host().server("a", Script::echo()).server("b", slow).start().await;
    let harness = ServiceHarness::open(test_host).await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    harness.test_host.advance(secs(9)).await;
    worker.next_accepted().await;
    worker.next_answer().await;
    harness.test_host.host.set_rules(rules(&[("dev", &["b/*"])])).await;
    let push = tokio::time::timeout(ms(1_500), worker.next_progress()).await;
    assert_eq!(push.expect("told within seconds").1, RelayProgress::ManifestChanged);
}

#[tokio::test(start_paused = true)]
async fn many_changes_in_a_row_are_pushed_together() {
    let harness = harness().await;
    let mut worker = harness.worker("w1").await;
    worker.ask_manifest(1).await;
    worker.next_answer().await;
    harness.test_host.advance(secs(2)).await;
    for round in 0..20 {
        let tool = format!("a/{}", if round % 2 == 0 { "echo" } else { "slow" });
        harness.test_host.host.set_rules(rules(&[("dev", &[&*tool])])).await;
        harness.test_host.advance(ms(100)).await;
    }
    harness.test_host.advance(secs(2)).await;
    let mut pushes = 0;
    while tokio::time::timeout(ms(1), worker.progress.next()).await.is_ok() {
        pushes += 1;
    }
    assert!((1..=3).contains(&pushes), "{pushes} in two seconds");
}

#[tokio::test(start_paused = true)]
async fn two_hosts_share_the_calls_and_each_answers_for_its_own() {
    let harness = harness().await;
    let journal = Arc::clone(&harness.journal);
    let options = ServiceOptions { host_name: name("h2"), seed: Some(9), ..options(harness.clock) };
    let broker_user = harness.broker.for_user("host2", host_permissions());
    let _second = Service::start(harness.test_host.host.clone(), broker_user, journal, options);
    ostler_testkit::run_until_stalled().await;
    let mut worker = harness.worker("w1").await;
    let mut hosts = BTreeSet::new();
    for call in 1..=8 {
        worker.call(call, "a", "slow").await;
        match worker.next_progress().await.1 {
            RelayProgress::Accepted { host, .. } => hosts.insert(host.to_string()),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["h1", "h2"]);
    // Both hosts receive control messages; the one that has the call answers.
    worker.control(1, Control::Resume, "").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(2, Control::Cancel, "").await;
    for _ in 0..7 {
        assert_eq!(text(&worker.next_answer().await.1), "done");
    }
    worker.control(3, Control::Resume, "").await;
    assert_eq!(worker.next_answer().await.0, 3);
    assert!(worker.is_silent().await);
    assert_eq!(
        (harness.test_host.server("a").count("slow"), harness.test_host.server("a").cancelled()),
        (8, 1)
    );
}
