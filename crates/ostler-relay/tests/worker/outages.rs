//! Hosts and connections that go away while a call is in flight.

use ostler_core::fault::{Delivery, FaultKind};
use ostler_relay::Instance;
use ostler_relay::broker::memory::BrokerPermissions;
use ostler_relay::envelope::Control;
use tokio::time::Instant;

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn a_host_of_another_life_ends_its_calls_at_once() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(ms(500)).await;
    manual_host.stop_heartbeat();
    manual_host.generation = Instance(2);
    let at = Instant::now();
    manual_host.send_heartbeat().await;
    let (fault, _) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::Unknown);
    assert_eq!(fault.to_string(), "out of reach: the host `h` was started anew meanwhile");
    assert_eq!(at.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_silent_for_three_heartbeats_ends_its_calls() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    for _ in 0..3 {
        tokio::time::sleep(secs(3)).await;
        manual_host.send_heartbeat().await;
    }
    let (fault, after) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::Unknown);
    assert_eq!(fault.to_string(), "out of reach: the host `h`, which has it, has not been heard for 3.2s");
    assert_eq!(after, secs(9) + ms(3_200));
}

#[tokio::test(start_paused = true)]
async fn the_heartbeat_of_another_host_says_nothing() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    let _other = ManualHost::connect_with_heartbeat(&harness.broker, "other").await;
    let (_, after) = call.fault().await;
    assert_eq!(after, ms(3_200));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_and_the_call_asked_about() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(secs(1)).await;
    harness.broker.disconnect("worker");
    // No host receives this.
    manual_host.answer(&received, "1").await;
    let (call_id, control, _) = manual_host.next_control().await;
    assert_eq!((call_id, control), (received.head.call, Control::Resume));
    manual_host.answer(&received, "2").await;
    assert_eq!(call.result().await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_asked_about_goes_on_when_its_host_has_it() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(secs(1)).await;
    harness.broker.disconnect("worker");
    assert_eq!(manual_host.next_control().await.1, Control::Resume);
    manual_host.accept(&received).await;
    tokio::time::sleep(secs(30)).await;
    assert!(!call.is_over());
    manual_host.answer(&received, "{}").await;
    assert_eq!(call.result().await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_host_knows_of_afterwards_is_unknown() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    tokio::time::sleep(secs(1)).await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    harness.broker.disconnect("worker");
    let (call_id, control, _) = manual_host.next_control().await;
    assert_eq!((call_id, control), (received.head.call, Control::Resume));
    let at = Instant::now();
    let (fault, _) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::Unknown);
    assert_eq!(fault.to_string(), "out of reach: the connection was lost meanwhile, and no host knows of it");
    // The next heartbeat triggers one more resume.
    assert!((secs(2)..=secs(3)).contains(&at.elapsed()), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_later_than_the_worker_is_asked_again() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(secs(1)).await;
    harness.broker.go_down();
    harness.broker.come_up();
    wait_until(|| harness.broker.link_count() == 1).await;
    tokio::time::sleep(ms(2_500)).await;
    let mut restarted = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    assert_eq!(restarted.next_control().await.1, Control::Resume);
    restarted.answer(&received, "{}").await;
    assert_eq!(call.result().await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_acceptance_was_lost_is_asked_when_it_comes_back_later_than_the_worker() {
    for is_announced in [false, true] {
        let harness = WorkerHarness::new().await;
        let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
        let call = harness.call("echo");
        let received = manual_host.next_call().await;
        harness.broker.go_down();
        harness.broker.come_up();
        wait_until(|| harness.broker.link_count() == 1).await;
        tokio::time::sleep(ms(500)).await;
        let mut restarted = ManualHost::connect(&harness.broker, "h").await;
        match is_announced {
            // Like a host with an answer that it could not send.
            true => restarted.accept(&received).await,
            false => restarted.send_heartbeat().await,
        }
        assert_eq!(restarted.next_control().await.1, Control::Resume);
        restarted.answer(&received, "{}").await;
        assert_eq!(call.result().await, "{}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_host_could_not_send_is_asked_for() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    manual_host.accept(&received).await;
    let (call_id, control, _) = manual_host.next_control().await;
    assert_eq!((call_id, control), (received.head.call, Control::Resume));
    manual_host.answer(&received, "{}").await;
    assert_eq!(call.result().await, "{}");
}

#[tokio::test(start_paused = true)]
async fn while_the_broker_is_away_a_call_ends_with_its_own_time() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let sent = harness.call("sent");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    harness.broker.go_down();
    let unsent = harness.call("unsent");
    let (fault, after) = sent.fault().await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::Unknown, FaultKind::TimedOut(secs(60))));
    assert_eq!(after, secs(60));
    let (fault, after) = unsent.fault().await;
    assert_eq!(fault.delivery, Delivery::NotSent);
    assert_eq!(fault.to_string(), "out of reach: the broker at memory can't be reached: the broker is down");
    assert_eq!(after, secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(ms(10)).await;
    let at = Instant::now();
    call.abort();
    let (cancelled, control, _) = manual_host.next_control().await;
    assert_eq!((cancelled, control), (received.head.call, Control::Cancel));
    assert_eq!(at.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_an_outage_is_cancelled_afterwards() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(ms(10)).await;
    harness.broker.disconnect("worker");
    tokio::time::sleep(ms(1)).await;
    call.abort();
    let (cancelled, control, _) = manual_host.next_control().await;
    assert_eq!((cancelled, control), (received.head.call, Control::Cancel));
}

#[tokio::test(start_paused = true)]
async fn the_worker_says_every_second_that_it_lives_while_a_call_is_out() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    assert_eq!(manual_host.count_alive(secs(3)).await, 0);
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    tokio::time::sleep(ms(10_500)).await;
    manual_host.answer(&received, "{}").await;
    call.result().await;
    let count = manual_host.count_alive(secs(3)).await;
    assert!((10..=11).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_cancels_what_is_out_and_sends_nothing_more() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    let at = Instant::now();
    harness.worker.shutdown().await;
    assert!(at.elapsed() <= ms(500));
    assert_eq!(call.fault().await.0.delivery, Delivery::Unknown);
    let (cancelled, control, _) = manual_host.next_control().await;
    assert_eq!((cancelled, control), (received.head.call, Control::Cancel));
    let (fault, after) = harness.call("late").fault().await;
    assert_eq!((fault.delivery, after), (Delivery::Rejected, ms(0)));
    wait_until(|| harness.broker.link_count() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_every_waiting_at_once() {
    for is_down in [true, false] {
        let broker = ostler_relay::broker::memory::MemoryBroker::new();
        let harness = WorkerHarness::on(broker.clone(), BrokerPermissions::all()).await;
        if is_down {
            broker.go_down();
        }
        tokio::time::sleep(secs(20)).await;
        let call = harness.call("echo");
        tokio::time::sleep(secs(20)).await;
        let at = Instant::now();
        harness.worker.shutdown().await;
        let (fault, _) = call.fault().await;
        assert_eq!(fault.delivery, Delivery::Rejected, "no other attempt is made");
        assert_eq!(at.elapsed(), ms(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_nobody_holds_leaves_the_broker() {
    let harness = WorkerHarness::new().await;
    wait_until(|| harness.broker.link_count() == 1).await;
    let WorkerHarness { broker, worker, host, session, .. } = harness;
    drop((worker, session));
    host.shutdown().await;
    drop(host);
    wait_until(|| broker.link_count() == 0).await;
}
