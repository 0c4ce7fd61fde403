//! Leases: each lasts as long as its call, and its end starts the idle timeout.

use ostler_testkit::{Script, ScriptedReply, TestHost};

use crate::{ms, secs};

/// Idle timeout: the documented default.
const KEEP_ALIVE: std::time::Duration = secs(300);

fn varied() -> Script {
    Script::echo()
        .without_list_changed()
        .tool_replying("no", ScriptedReply::tool_error("no"))
        .tool_replying("broken", ScriptedReply::error(-32603, "broken"))
        .tool_replying("slow", ScriptedReply::text("done").after(secs(10)))
        .tool_replying("never", ScriptedReply::never())
        .tool_replying("die", ScriptedReply::crash())
}

#[tokio::test(start_paused = true)]
async fn after_whatever_a_caller_does_the_count_is_what_it_was() {
    let world = TestHost::new().server("a", varied()).start().await;
    let _bound = world.host.bind(&world.caller, "a").await.unwrap();
    let before = world.status("a").leases;
    for tool in ["echo", "no", "broken", "unknown", "never", "die", "echo"] {
        let _ = world.call("a", tool).await;
        assert_eq!(world.status("a").leases, before, "after {tool}");
    }
    let call = world.start_call("a", "slow").await;
    assert_eq!((world.status("a").leases, world.status("a").in_flight), (before + 1, 1));
    call.abort();
    world.advance(ms(1)).await;
    assert_eq!((world.status("a").leases, world.status("a").in_flight), (before, 0));
    world.call_within(secs(1), "a", "slow").await.unwrap_err();
    world.host.tools(&world.caller, "a").await.unwrap();
    world.host.discover(&world.caller).await;
    assert_eq!((world.status("a").leases, before), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_gone_exactly_keep_alive_after_its_last_use() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    world.advance(KEEP_ALIVE - ms(1)).await;
    assert_eq!((world.state("a"), world.server("a").open_sessions()), ("ready", 1));
    world.advance(ms(1)).await;
    assert_eq!((world.state("a"), world.server("a").open_sessions()), ("idle", 0));
    world.advance(KEEP_ALIVE * 10).await;
    assert_eq!(world.server("a").connects(), 1);
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_just_before_the_end_moves_the_end() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    world.advance(KEEP_ALIVE - ms(1)).await;
    world.call("a", "echo").await.unwrap();
    world.advance(KEEP_ALIVE - ms(1)).await;
    assert_eq!(world.state("a"), "ready");
    world.advance(ms(1)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("idle", 1));
}

#[tokio::test(start_paused = true)]
async fn the_clock_starts_with_the_end_of_a_long_call_and_not_with_its_beginning() {
    let script = Script::echo().tool_replying("long", ScriptedReply::text("done").after(secs(50)));
    let world = TestHost::new().server_with("a", script, |spec| spec.keep_alive = secs(10)).start().await;
    world.call("a", "long").await.unwrap();
    world.advance(secs(10) - ms(1)).await;
    assert_eq!(world.state("a"), "ready");
    world.advance(ms(1)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("idle", 1));
}

#[tokio::test(start_paused = true)]
async fn a_binding_keeps_a_server_up_and_dropping_it_starts_the_clock() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let binding = world.host.bind(&world.caller, "a").await.unwrap();
    world.advance(KEEP_ALIVE * 3).await;
    assert_eq!((world.state("a"), world.status("a").leases), ("ready", 1));
    world.crash("a");
    world.advance(secs(5)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("ready", 2));
    drop(binding);
    world.advance(KEEP_ALIVE - ms(1)).await;
    assert_eq!(world.state("a"), "ready");
    world.advance(ms(1)).await;
    assert_eq!((world.state("a"), world.status("a").leases), ("idle", 0));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_that_crashes_with_nobody_there_stays_down() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    world.crash("a");
    world.advance(secs(60)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("idle", 1));
    assert_eq!(world.server("a").closed(), [1]);
}
