//! Concurrent calls.

use ostler_core::fault::{Delivery, FaultKind};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn each_of_256_calls_gets_its_own_answer_in_whatever_order() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let calls: Vec<SpawnedCall> = (0..256).map(|number| harness.call(&format!("t{number}"))).collect();
    let mut received = Vec::new();
    for _ in 0..256 {
        let call = manual_host.next_call().await;
        manual_host.accept(&call).await;
        received.push(call);
    }
    for call in received.iter().rev() {
        manual_host.answer(call, &call.body["params"]["name"].to_string()).await;
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.result().await, format!("\"t{number}\""));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_broker_waits_for_one_connection() {
    let harness = WorkerHarness::new().await;
    wait_until(|| harness.broker.link_count() == 1).await;
    assert_eq!(harness.counting_broker.count(), 1);
    harness.broker.go_down();
    let calls: Vec<SpawnedCall> = (0..256).map(|number| harness.call(&format!("t{number}"))).collect();
    tokio::time::sleep(ms(1)).await;
    let before = harness.counting_broker.count();
    harness.broker.come_up();
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    for _ in 0..256 {
        let received = manual_host.next_call().await;
        manual_host.answer(&received, "{}").await;
    }
    for call in calls {
        assert_eq!(call.result().await, "{}");
    }
    assert_eq!(harness.counting_broker.count(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn beyond_a_thousand_calls_at_once_one_more_is_not_sent() {
    let harness = WorkerHarness::new().await;
    let calls: Vec<SpawnedCall> = (0..1_024).map(|_| harness.call("echo")).collect();
    tokio::time::sleep(ms(1)).await;
    let (fault, after) = harness.call("echo").fault().await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::NotSent, FaultKind::Congested));
    assert_eq!(after, ms(0));
    drop(calls);
}
