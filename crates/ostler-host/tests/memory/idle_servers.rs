//! Idle servers: no server is started without a cause.

use std::time::Duration;

use ostler_testkit::{Script, ScriptedReply, TestHost};

use crate::secs;

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_kept_alive_sleeps_after_its_call_though_somebody_listens() {
    let at_once = |spec: &mut ostler_host::ServerSpec| {
        spec.lazy = true;
        spec.keep_alive = Duration::ZERO;
    };
    let world = TestHost::new().server_with("a", Script::echo(), at_once).start().await;
    let _events = world.host.notifications();
    for calls in 1..=3 {
        world.call("a", "echo").await.unwrap();
        let starts = world.server("a").connects();
        world.advance(secs(600)).await;
        assert_eq!((world.state("a"), world.server("a").connects()), ("idle", starts), "after {calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_of_its_list_is_not_started_again_to_be_asked() {
    let script = Script::echo().on("tools/list", |asked| match asked.nth {
        1 => ScriptedReply::result(r#"{"tools":[{"name":"echo"}]}"#),
        _ => ScriptedReply::crash(),
    });
    let world = TestHost::new().server_with("a", script, |spec| spec.lazy = true).start().await;
    let _events = world.host.notifications();
    world.call("a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    world.host.start("a").await.unwrap();
    world.advance(secs(600)).await;
    assert_eq!(world.server("a").connects(), 2, "the look at its list ended it, and nobody wants it");
}
