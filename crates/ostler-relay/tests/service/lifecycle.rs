//! Lives of workers, hosts and connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_relay::envelope::{Control, RelayProgress};
use ostler_relay::service::{Service, ServiceOptions, ServiceState};
use ostler_testkit::{Reconfigure, Script, ScriptedReply};
use serde_json::json;

use crate::harness::{ServiceHarness, code, host_permissions, meta, name, options, rules, text, world};
use crate::{ms, secs};

fn script() -> Script {
    Script::echo()
        .tool_replying("never", ScriptedReply::never())
        .tool_replying("slow", ScriptedReply::text("done").after(secs(3)))
        .tool_replying("slower", ScriptedReply::text("done").after(secs(20)))
}

async fn stage() -> ServiceHarness {
    ServiceHarness::open(world().server("a", script()).start().await).await
}

#[tokio::test(start_paused = true)]
async fn a_host_says_every_second_that_it_lives_and_at_once_when_it_connects() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    let first = worker.next_heartbeat().await;
    worker.call(1, "a", "slower").await;
    let second = worker.next_heartbeat().await;
    assert_eq!((second.time - first.time, second.generation), (1_000, first.generation));
    assert_eq!((first.in_flight, second.in_flight, second.is_draining), (0, 1, false));
    stage.broker.disconnect("host");
    let lost = stage.clock.now();
    let third = worker.next_heartbeat().await;
    assert!(third.time - lost <= 100, "the first pause is at most 100 ms");
    assert_eq!(third.generation, first.generation, "the connection is not the life");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_gone_has_its_calls_cancelled() {
    let stage = stage().await;
    let worker = stage.worker("w1").await;
    let other = stage.worker("w2").await;
    worker.call(1, "a", "never").await;
    other.call(2, "a", "never").await;
    for _ in 0..6 {
        stage.world.advance(ms(500)).await;
        other.alive().await;
    }
    assert_eq!((stage.world.server("a").in_flight(), stage.service.status().workers.len()), (2, 2));
    for _ in 0..2 {
        stage.world.advance(ms(500)).await;
        other.alive().await;
    }
    assert_eq!((stage.world.server("a").in_flight(), stage.world.server("a").cancelled()), (1, 1));
    assert_eq!(stage.service.status().in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_life_of_a_worker_does_not_keep_the_calls_of_the_old_one() {
    let stage = stage().await;
    let worker = stage.worker("w1").await;
    worker.call(1, "a", "never").await;
    let again = stage.worker_as("w1", "dev", 2).await;
    for _ in 0..8 {
        stage.world.advance(ms(500)).await;
        again.alive().await;
    }
    assert_eq!(stage.world.server("a").in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_no_fault_of_the_worker_and_the_answer_waits_for_it() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    stage.broker.go_down();
    stage.world.advance(secs(30)).await;
    assert_eq!((stage.world.server("a").answered(), stage.world.server("a").cancelled()), (2, 0));
    stage.broker.come_up();
    stage.world.advance(secs(5)).await;
    let mut worker = stage.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    let (call, answer) = worker.next_answer().await;
    assert_eq!((call, text(&answer)), (1, "done"));
    assert_eq!(stage.world.server("a").count("slow"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_still_under_way_after_an_outage_is_accepted_again() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "slower").await;
    assert_eq!(worker.next_accepted().await, 1);
    stage.broker.go_down();
    stage.world.advance(secs(5)).await;
    stage.broker.come_up();
    stage.world.advance(secs(3)).await;
    let mut worker = stage.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    assert_eq!(worker.next_accepted().await, 1);
    for _ in 0..14 {
        stage.world.advance(secs(1)).await;
        worker.alive().await;
    }
    assert_eq!(text(&worker.next_answer().await.1), "done");
    assert_eq!(stage.world.server("a").count("slower"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_open_is_asked_again_after_an_outage() {
    let reply = ScriptedReply::text("done").asking("roots/list", json!({}));
    let stage =
        ServiceHarness::open(world().server("a", Script::echo().tool_replying("ask", reply)).start().await)
            .await;
    let mut worker = stage.worker("w1").await;
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"roots": {}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "_meta": meta}});
    worker.send(worker.head(1), body.to_string()).await;
    assert_eq!(worker.next_accepted().await, 1);
    assert_eq!(worker.next_progress().await.1, RelayProgress::ServerRequest(0));
    worker.control(1, Control::Resume, "").await;
    let again = [worker.next_progress().await.1, worker.next_progress().await.1];
    assert!(again.contains(&RelayProgress::ServerRequest(0)), "{again:?}");
    worker.control(1, Control::Answer(0), r#"{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}"#).await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_another_connection_is_announced_so_that_it_is_asked_for() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    // The host alone is cut off: nothing tells the worker.
    stage.broker.disconnect("host");
    stage.world.advance(secs(2)).await;
    worker.alive().await;
    // The broker does not let the new connection answer what came over the old one.
    assert_eq!((worker.next_accepted().await, worker.next_answer_within(ms(1)).await), (1, None));
    worker.control(1, Control::Resume, "").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn what_a_host_does_not_know_it_says_nothing_about() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.control(1, Control::Resume, "").await;
    worker.control(1, Control::Ack(3), "").await;
    worker.control(1, Control::Answer(0), "{}").await;
    assert!(worker.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_are_refused_before_anything_happens() {
    let world = world().server("a", script()).start().await;
    let stage = ServiceHarness::open_with(world, |options| options.max_in_flight = 4).await;
    let mut worker = stage.worker("w1").await;
    let mut other = stage.worker("w2").await;
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
    let mut third = stage.worker("w3").await;
    third.call(21, "a", "echo").await;
    let (_, answer) = third.next_answer().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("the host has 4"), "{answer}");
    // A repeated call that is under way is not told that it was refused.
    worker.call(1, "a", "never").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(1, Control::Cancel, "").await;
    third.call(22, "a", "echo").await;
    assert_eq!(text(&third.next_answer().await.1), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_draining_host_takes_nothing_new_and_finishes_what_is_under_way() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    let service = stage.service.clone();
    let draining = tokio::spawn(async move { service.drain(secs(10)).await });
    ostler_testkit::run_until_stalled().await;
    stage.world.advance(ms(1)).await;
    while !worker.next_heartbeat().await.is_draining {}
    worker.call(2, "a", "echo").await;
    let unheard = worker.answers.next().await.unwrap();
    assert!(unheard.is_no_responders, "nobody listens any more");
    assert_eq!(text(&worker.next_answer().await.1), "done");
    draining.await.unwrap();
    assert_eq!((stage.service.status().state, stage.broker.link_count()), (ServiceState::Over, 1));
    assert_eq!(stage.world.server("a").count("echo"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_in_its_time_whatever_is_under_way() {
    let stage = stage().await;
    let worker = stage.worker("w1").await;
    worker.call(1, "a", "never").await;
    let began = tokio::time::Instant::now();
    stage.service.drain(secs(2)).await;
    assert!(began.elapsed() >= secs(2) && began.elapsed() < ms(2_100), "{:?}", began.elapsed());
    ostler_testkit::run_until_stalled().await;
    assert_eq!(stage.world.server("a").in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_everything_at_once() {
    let stage = stage().await;
    let worker = stage.worker("w1").await;
    worker.call(1, "a", "never").await;
    let again = stage.service.clone();
    let ServiceHarness { world, broker, service, .. } = stage;
    drop(service);
    ostler_testkit::run_until_stalled().await;
    assert_eq!((broker.link_count(), world.server("a").in_flight()), (2, 1));
    drop(again);
    ostler_testkit::run_until_stalled().await;
    assert_eq!((broker.link_count(), world.server("a").in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_a_broker_ends_at_once() {
    let stage = stage().await;
    stage.broker.go_down();
    stage.world.advance(secs(60)).await;
    assert_eq!(stage.service.status().state, ServiceState::Waiting);
    let began = tokio::time::Instant::now();
    stage.service.drain(secs(10)).await;
    assert_eq!(began.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn a_change_while_a_manifest_is_made_is_in_it_or_is_pushed() {
    let slow = Script::echo().on("tools/list", |_| ScriptedReply::result(r#"{"tools":[]}"#).after(secs(5)));
    let world = world().server("a", Script::echo()).server("b", slow).start().await;
    let stage = ServiceHarness::open(world).await;
    let mut worker = stage.worker("w1").await;
    worker.ask_manifest(1).await;
    stage.world.advance(secs(1)).await;
    assert_eq!(worker.next_accepted().await, 1);
    stage.world.host.set_rules(rules(&[("dev", &["b/*"])])).await;
    stage.world.advance(secs(1)).await;
    let (_, answer) = worker.next_answer().await;
    let has_a = answer["result"]["servers"].as_array().unwrap().iter().any(|server| server["name"] == "a");
    stage.world.advance(secs(3)).await;
    assert_ne!(has_a, worker.is_silent().await, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_what_a_worker_may_use_is_pushed_to_it() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.ask_manifest(1).await;
    worker.next_answer().await;
    stage.world.advance(secs(2)).await;
    assert!(worker.is_silent().await);
    stage.world.host.set_rules(rules(&[("dev", &["a/echo"]), ("other", &["*"])])).await;
    assert_eq!(worker.next_progress().await.1, RelayProgress::ManifestChanged);
    stage.world.advance(secs(2)).await;
    assert!(worker.is_silent().await, "said once");
    // What is no change for the role is none for the worker.
    stage.world.host.set_rules(rules(&[("dev", &["a/echo"]), ("other", &["b/*"])])).await;
    stage.world.advance(secs(2)).await;
    assert!(worker.is_silent().await);
    stage.world.host.set_rules(rules(&[("other", &["b/*"])])).await;
    assert_eq!(worker.next_progress().await.1, RelayProgress::ManifestChanged, "the role is gone");
    worker.ask_manifest(2).await;
    assert_eq!(code(&worker.next_answer().await.1), "invalid-argument");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_with_its_list_does_not_delay_the_news_of_others() {
    let slow = Script::echo().on("tools/list", |_| ScriptedReply::result(r#"{"tools":[]}"#).after(secs(50)));
    let world = world().server("a", Script::echo()).server("b", slow).start().await;
    let stage = ServiceHarness::open(world).await;
    let mut worker = stage.worker("w1").await;
    worker.ask_manifest(1).await;
    stage.world.advance(secs(9)).await;
    worker.next_accepted().await;
    worker.next_answer().await;
    stage.world.host.set_rules(rules(&[("dev", &["b/*"])])).await;
    let news = tokio::time::timeout(ms(1_500), worker.next_progress()).await;
    assert_eq!(news.expect("told within seconds").1, RelayProgress::ManifestChanged);
}

#[tokio::test(start_paused = true)]
async fn many_changes_in_a_row_are_pushed_together() {
    let stage = stage().await;
    let mut worker = stage.worker("w1").await;
    worker.ask_manifest(1).await;
    worker.next_answer().await;
    stage.world.advance(secs(2)).await;
    for round in 0..20 {
        let tool = format!("a/{}", if round % 2 == 0 { "echo" } else { "slow" });
        stage.world.host.set_rules(rules(&[("dev", &[&*tool])])).await;
        stage.world.advance(ms(100)).await;
    }
    stage.world.advance(secs(2)).await;
    let mut pushes = 0;
    while tokio::time::timeout(ms(1), worker.progress.next()).await.is_ok() {
        pushes += 1;
    }
    assert!((1..=3).contains(&pushes), "{pushes} in two seconds");
}

#[tokio::test(start_paused = true)]
async fn two_hosts_share_the_calls_and_each_answers_for_its_own() {
    let stage = stage().await;
    let journal = Arc::clone(&stage.journal);
    let options = ServiceOptions { host_name: name("h2"), seed: Some(9), ..options(stage.clock) };
    let door = stage.broker.for_user("host2", host_permissions());
    let _second = Service::start(stage.world.host.clone(), door, journal, options);
    ostler_testkit::run_until_stalled().await;
    let mut worker = stage.worker("w1").await;
    let mut hosts = BTreeSet::new();
    for call in 1..=8 {
        worker.call(call, "a", "slow").await;
        match worker.next_progress().await.1 {
            RelayProgress::Accepted { host, .. } => hosts.insert(host.to_string()),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["h1", "h2"]);
    // Both hear what is about a call, and the one that has it answers.
    worker.control(1, Control::Resume, "").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(2, Control::Cancel, "").await;
    for _ in 0..7 {
        assert_eq!(text(&worker.next_answer().await.1), "done");
    }
    worker.control(3, Control::Resume, "").await;
    assert_eq!(worker.next_answer().await.0, 3);
    assert!(worker.is_silent().await);
    assert_eq!((stage.world.server("a").count("slow"), stage.world.server("a").cancelled()), (8, 1));
}
