//! Restarts: a thousand of them leak nothing.

use ostler_testkit::{Proc, eventually, fake_mcp_spec};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, code_of, none, restarting_forever};

async fn restart(stage: &ProcessFixture, times: u64) {
    for _ in 0..times {
        let generation = stage.status("fake").generation;
        let outcome = stage.call("fake", "exit", json!({"code": 1})).await;
        assert_eq!(code_of(&outcome), "outcome-unknown");
        stage.until("fake", "is up again", |status| status.generation > generation && status.active).await;
    }
}

#[tokio::test]
async fn a_thousand_restarts_leak_nothing() {
    let stage = ProcessFixture::guarded();
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &[]))).await;
    // The first ones fill caches and grow tables to their final size.
    restart(&stage, 50).await;
    let this = Proc::current();
    let settled = || this.descendants().len() == 3 && this.zombies().is_empty();
    eventually("warden, guard and server are all there is", LONG, settled).await;
    let warden = stage.guard("fake").parent().unwrap();
    let before = [this, warden].map(|proc| (proc.descriptors(), proc.anonymous_kib()));

    restart(&stage, 1_000).await;
    eventually("warden, guard and server are all there is", LONG, settled).await;
    for (proc, (descriptors, memory)) in [this, warden].into_iter().zip(before) {
        let now = (proc.descriptors(), proc.anonymous_kib());
        println!(
            "{}: descriptors {descriptors} to {}, anonymous KiB {memory} to {}",
            proc.name(),
            now.0,
            now.1
        );
        assert!(
            now.0.abs_diff(descriptors) <= 4,
            "{}: {descriptors} descriptors became {}",
            proc.name(),
            now.0
        );
        assert!(now.1 <= memory + 5 * 1_024, "{}: {memory} KiB became {}", proc.name(), now.1);
    }
    assert_eq!(stage.status("fake").starts_total, 1_051);
    assert_eq!(stage.text("fake", "pid", none()).await, stage.process("fake").pid.to_string());
    stage.close().await;
}
