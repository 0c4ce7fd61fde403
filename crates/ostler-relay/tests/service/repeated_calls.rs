//! The same id again: the call runs once, whatever became of it before.

use ostler_relay::broker::BrokerMessage;
use ostler_relay::broker::memory::MessageAction;
use ostler_relay::envelope::Control;
use ostler_testkit::{Reconfigure, Script, ScriptedReply};

use crate::harness::{
    DisconnectingJournal, FailingJournal, HangingJournal, ServiceHarness, code, text, world,
};
use crate::{ms, secs};

fn slow() -> Script {
    Script::echo().tool_replying("work", ScriptedReply::text("done").after(secs(1)))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_that_is_under_way_is_accepted_again_and_runs_once() {
    let stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "work").await;
    worker.call(1, "a", "work").await;
    assert_eq!([worker.next_accepted().await, worker.next_accepted().await], [1, 1]);
    assert_eq!(text(&worker.next_answer().await.1), "done");
    assert!(worker.is_silent().await, "there is one answer");
    assert_eq!(stage.world.server("a").count("work"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_that_was_answered_gets_the_same_answer() {
    let stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "work").await;
    let first = worker.next_answer().await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer().await, first);
    assert_eq!(stage.world.server("a").count("work"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_refused_again_and_never_runs() {
    let stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    let mut worker = stage.worker("w1").await;
    stage.world.host.set_rules(crate::harness::rules(&[("other", &["*"])])).await;
    worker.call(1, "a", "work").await;
    let first = worker.next_answer().await;
    stage.world.host.set_rules(crate::harness::rules(&[("dev", &["*"])])).await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer().await, first);
    assert_eq!(stage.world.server("a").count("work"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_earlier_life_of_the_host_may_have_run_and_does_not_run_again() {
    let mut stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.call(2, "a", "echo").await;
    assert_eq!((worker.next_accepted().await, worker.next_answer().await.0), (2, 2));
    stage.restart().await;
    assert_eq!(stage.world.server("a").in_flight(), 0, "the calls went with their service");
    for call in [1, 2] {
        worker.call(call, "a", if call == 1 { "work" } else { "echo" }).await;
        let (answered, answer) = worker.next_answer().await;
        assert_eq!((answered, code(&answer)), (call, "outcome-unknown"));
    }
    assert!(worker.is_silent().await);
    assert_eq!((stage.world.server("a").count("work"), stage.world.server("a").count("echo")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_same_id_of_another_worker_is_another_call() {
    let stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    let mut worker = stage.worker("w1").await;
    let mut other = stage.worker("w2").await;
    worker.call(1, "a", "work").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
    other.control(1, Control::Resume, "").await;
    assert!(other.is_silent().await);
    other.call(1, "a", "work").await;
    assert_eq!(text(&other.next_answer().await.1), "done");
    assert_eq!(stage.world.server("a").count("work"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_journal_is_refused_unexecuted() {
    let world = world().server("a", slow()).start().await;
    let stage = ServiceHarness::open_on(world, |_| FailingJournal).await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "work").await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "overloaded");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("the journal of calls can't be written"), "{answer}");
    assert!(stage.world.server("a").requests().is_empty());
    assert!(worker.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_takes_too_long_begins_nothing() {
    let world = world().server("a", slow()).start().await;
    let stage = ServiceHarness::open_on(world, |_| HangingJournal).await;
    let mut worker = stage.worker("w1").await;
    let began = tokio::time::Instant::now();
    worker.call(1, "a", "work").await;
    assert_eq!(code(&worker.next_answer().await.1), "overloaded");
    assert_eq!(began.elapsed(), secs(2));
    assert!(stage.world.server("a").requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_twice_runs_nothing_twice() {
    let stage = ServiceHarness::open(world().server("a", slow()).start().await).await;
    for (call, apart) in [(1, ms(0)), (2, ms(100)), (3, ms(1_500)), (4, secs(3))] {
        let twice = move |_: &str, to: &str, _: &BrokerMessage| match to {
            "host" => MessageAction::Duplicate(apart),
            _ => MessageAction::Deliver,
        };
        stage.broker.set_fault_injector(Some(Box::new(twice)));
        let mut worker = stage.worker("w1").await;
        worker.call(call, "a", "work").await;
        assert_eq!(text(&worker.next_answer().await.1), "done");
        stage.world.advance(secs(4)).await;
        assert_eq!(worker.next_answer_within(ms(1)).await, None, "the broker lets us answer once");
    }
    assert_eq!(stage.world.server("a").count("work"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_not_be_accepted_does_not_begin_and_says_so_when_asked() {
    let world = world().server("a", slow()).start().await;
    let stage = ServiceHarness::open_on(world, |broker| DisconnectingJournal(broker.clone())).await;
    let mut worker = stage.worker("w1").await;
    worker.call(1, "a", "work").await;
    assert_eq!(worker.next_answer_within(secs(1)).await, None);
    // The host is back, and has announced that there is an answer.
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(1, Control::Resume, "").await;
    let (_, answer) = worker.next_answer().await;
    assert_eq!(code(&answer), "overloaded");
    assert!(stage.world.server("a").requests().is_empty());
}
