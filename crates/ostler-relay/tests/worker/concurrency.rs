//! Many calls at once.

use ostler_core::fault::{Delivery, FaultKind};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn each_of_256_calls_gets_its_own_answer_in_whatever_order() {
    let stage = WorkerHarness::new().await;
    let mut peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    let calls: Vec<SpawnedCall> = (0..256).map(|number| stage.call(&format!("t{number}"))).collect();
    let mut came = Vec::new();
    for _ in 0..256 {
        let call = peer.next_call().await;
        peer.accept(&call).await;
        came.push(call);
    }
    for call in came.iter().rev() {
        peer.answer(call, &call.body["params"]["name"].to_string()).await;
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.result().await, format!("\"t{number}\""));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_broker_waits_for_one_connection() {
    let stage = WorkerHarness::new().await;
    wait_until(|| stage.broker.link_count() == 1).await;
    assert_eq!(stage.counting_broker.count(), 1);
    stage.broker.go_down();
    let calls: Vec<SpawnedCall> = (0..256).map(|number| stage.call(&format!("t{number}"))).collect();
    tokio::time::sleep(ms(1)).await;
    let before = stage.counting_broker.count();
    stage.broker.come_up();
    let mut peer = ManualHost::connect_with_heartbeat(&stage.broker, "h").await;
    for _ in 0..256 {
        let came = peer.next_call().await;
        peer.answer(&came, "{}").await;
    }
    for call in calls {
        assert_eq!(call.result().await, "{}");
    }
    assert_eq!(stage.counting_broker.count(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn beyond_a_thousand_calls_at_once_one_more_is_not_sent() {
    let stage = WorkerHarness::new().await;
    let calls: Vec<SpawnedCall> = (0..1_024).map(|_| stage.call("echo")).collect();
    tokio::time::sleep(ms(1)).await;
    let (fault, after) = stage.call("echo").fault().await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::NotSent, FaultKind::Congested));
    assert_eq!(after, ms(0));
    drop(calls);
}
