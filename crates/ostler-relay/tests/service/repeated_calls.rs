//! Repeated call ids: one execution, whatever happened to the first request.

use ostler_relay::broker::BrokerMessage;
use ostler_relay::broker::memory::MessageAction;
use ostler_relay::envelope::Control;
use ostler_testkit::{Reconfigure, Script, ScriptedReply};

use crate::harness::{
    DisconnectingJournal, FailingJournal, HangingJournal, ServiceHarness, code, test_host, text,
};
use crate::{ms, secs};

fn slow() -> Script {
    Script::echo().tool_replying("work", ScriptedReply::text("done").after(secs(1)))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_that_is_under_way_is_accepted_again_and_runs_once() {
    let harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "work").await;
    worker.call(1, "a", "work").await;
    assert_eq!([worker.next_accepted().await, worker.next_accepted().await], [1, 1]);
    assert_eq!(text(&worker.next_answer().await.1), "done");
    assert!(worker.is_silent().await, "there is one answer");
    assert_eq!(harness.test_host.server("a").count("work"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_that_was_answered_gets_the_same_answer() {
    let harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "work").await;
    let first = worker.next_answer().await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer().await, first);
    assert_eq!(harness.test_host.server("a").count("work"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_refused_again_and_never_runs() {
    let harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    let mut worker = harness.worker("w1").await;
    harness.test_host.host.set_rules(crate::harness::rules(&[("other", &["*"])])).await;
    worker.call(1, "a", "work").await;
    let first = worker.next_answer().await;
    harness.test_host.host.set_rules(crate::harness::rules(&[("dev", &["*"])])).await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer().await, first);
    assert_eq!(harness.test_host.server("a").count("work"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_earlier_life_of_the_host_may_have_run_and_does_not_run_again() {
    let mut harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.call(2, "a", "echo").await;
    assert_eq!((worker.next_accepted().await, worker.next_answer().await.0), (2, 2));
    harness.restart().await;
    assert_eq!(harness.test_host.server("a").in_flight(), 0, "the calls went with their service");
    for call in [1, 2] {
        worker.call(call, "a", if call == 1 { "work" } else { "echo" }).await;
        let (answered, answer) = worker.next_answer().await;
        assert_eq!((answered, code(&answer)), (call, "outcome-unknown"));
    }
    assert!(worker.is_silent().await);
    assert_eq!(
        (harness.test_host.server("a").count("work"), harness.test_host.server("a").count("echo")),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_id_of_another_worker_is_another_call() {
    let harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    let mut worker = harness.worker("w1").await;
    let mut other = harness.worker("w2").await;
    worker.call(1, "a", "work").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
    other.control(1, Control::Resume, "").await;
    assert!(other.is_silent().await);
    other.call(1, "a", "work").await;
    assert_eq!(text(&other.next_answer().await.1), "done");
    assert_eq!(harness.test_host.server("a").count("work"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_journal_is_refused_unexecuted() {
    let test_host = test_host().server("a", slow()).start().await;
    let harness = ServiceHarness::open_on(test_host, |_| FailingJournal).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "work").await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "overloaded");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("the journal of calls can't be written"), "{answer}");
    assert!(harness.test_host.server("a").requests().is_empty());
    assert!(worker.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_takes_too_long_begins_nothing() {
    let test_host = test_host().server("a", slow()).start().await;
    let harness = ServiceHarness::open_on(test_host, |_| HangingJournal).await;
    let mut worker = harness.worker("w1").await;
    let began = tokio::time::Instant::now();
    worker.call(1, "a", "work").await;
    assert_eq!(code(&worker.next_answer().await.1), "overloaded");
    assert_eq!(began.elapsed(), secs(2));
    assert!(harness.test_host.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_twice_runs_nothing_twice() {
    let harness = ServiceHarness::open(test_host().server("a", slow()).start().await).await;
    for (call, apart) in [(1, ms(0)), (2, ms(100)), (3, ms(1_500)), (4, secs(3))] {
        let twice = move |_: &str, to: &str, _: &BrokerMessage| match to {
            "host" => MessageAction::Duplicate(apart),
            _ => MessageAction::Deliver,
        };
        harness.broker.set_fault_injector(Some(Box::new(twice)));
        let mut worker = harness.worker("w1").await;
        worker.call(call, "a", "work").await;
        assert_eq!(text(&worker.next_answer().await.1), "done");
        harness.test_host.advance(secs(4)).await;
        assert_eq!(worker.next_answer_within(ms(1)).await, None, "the broker lets us answer once");
    }
    assert_eq!(harness.test_host.server("a").count("work"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_not_be_accepted_does_not_begin_and_says_so_when_asked() {
    let test_host = test_host().server("a", slow()).start().await;
    let harness = ServiceHarness::open_on(test_host, |broker| DisconnectingJournal(broker.clone())).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer_within(secs(1)).await, None);
    // The host has reconnected and announced its answer.
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(1, Control::Resume, "").await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "overloaded");
    assert!(harness.test_host.server("a").requests().is_empty());
}
