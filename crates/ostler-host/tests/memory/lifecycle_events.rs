//! Lifecycle events of servers, as observers receive them.

use std::sync::{Arc, Mutex};

use ostler_core::caller::Caller;
use ostler_core::fault::{Fault, FaultKind};
use ostler_host::{LifecycleEvent, LifecycleEventKind};
use ostler_testkit::{Script, ScriptedReply, TestHost, run_until_stalled};

use crate::secs;

type EventLog = Arc<Mutex<Vec<String>>>;

fn event_label(happening: &LifecycleEvent<'_>) -> String {
    let LifecycleEvent { server, kind: what, .. } = happening;
    match what {
        LifecycleEventKind::Started { generation, .. } => format!("{server} started {generation}"),
        LifecycleEventKind::StartFailed { generation, .. } => format!("{server} start-failed {generation}"),
        LifecycleEventKind::Lost { generation, .. } => format!("{server} lost {generation}"),
        LifecycleEventKind::Ended { generation } => format!("{server} ended {generation}"),
        LifecycleEventKind::RestartPlanned { .. } => format!("{server} restart-planned"),
        LifecycleEventKind::RestartOnDemand => format!("{server} restart-on-demand"),
        LifecycleEventKind::Ejected { .. } => format!("{server} ejected"),
        LifecycleEventKind::NeedsAuth { retry_in, .. } => {
            format!("{server} needs-auth for {}s", retry_in.as_secs())
        }
        LifecycleEventKind::Readmitted => format!("{server} readmitted"),
        LifecycleEventKind::BreakerOpened { wait } => format!("{server} opened for {}s", wait.as_secs()),
        LifecycleEventKind::BreakerClosed => format!("{server} closed"),
        LifecycleEventKind::Operated { action: act, by } => {
            format!("{server} {} by {}", act.as_str(), by.map_or("?", |caller| caller.principal()))
        }
        LifecycleEventKind::ResourceShadowed { uri, owner } => format!("{server} {uri} shadowed by {owner}"),
        LifecycleEventKind::DefinitionChanged { tool, pin_status: standing, .. } => {
            format!("{server} {tool} {standing}")
        }
    }
}

fn observe(world: &TestHost) -> EventLog {
    let told = EventLog::default();
    let kept = Arc::clone(&told);
    // A lock of the host that is held now would never be released.
    let host = world.host.clone();
    world.host.set_observer(Some(Arc::new(move |happening| {
        let _ = host.status();
        kept.lock().unwrap().push(event_label(happening));
    })));
    told
}

fn drain(told: &EventLog) -> Vec<String> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_server_is_told_in_order() {
    let mut world = TestHost::new().start().await;
    let told = observe(&world);
    world.spawn(TestHost::spec("a").lazy(), Script::echo()).await.unwrap();
    world.call("a", "echo").await.unwrap();
    assert_eq!(drain(&told), ["a register by local", "a started 1"]);
    world.crash("a");
    run_until_stalled().await;
    world.call("a", "echo").await.unwrap();
    assert_eq!(drain(&told), ["a lost 1", "a restart-on-demand", "a started 2"]);
    world.host.stop("a").await.unwrap();
    world.host.start("a").await.unwrap();
    assert_eq!(drain(&told), ["a stop by ?", "a ended 2", "a start by ?", "a started 3"]);
    world.host.reload("a").await.unwrap();
    run_until_stalled().await;
    assert_eq!(drain(&told), ["a reload by ?", "a started 4", "a ended 3"]);
    world.spawn(TestHost::spec("a"), Script::echo()).await.unwrap();
    world.host.remove("a").await.unwrap();
    let told = drain(&told);
    assert_eq!(told[..2], ["a started 1", "a replace by local"]);
    assert!(told.contains(&"a remove by ?".into()) && told.contains(&"a ended 4".into()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_told_as_planned_only_where_one_comes_without_a_call() {
    let mut world = TestHost::new().start().await;
    let told = observe(&world);
    world.spawn(TestHost::spec("lazy").lazy(), Script::echo()).await.unwrap();
    world.spawn(TestHost::spec("eager"), Script::echo()).await.unwrap();
    world.call("lazy", "echo").await.unwrap();
    drain(&told);
    world.crash("lazy");
    world.advance(secs(60)).await;
    assert_eq!(drain(&told), ["lazy lost 1", "lazy restart-on-demand"]);
    world.call("lazy", "echo").await.unwrap();
    assert_eq!(drain(&told), ["lazy started 2"]);
    world.crash("eager");
    world.advance(secs(60)).await;
    assert_eq!(drain(&told), ["eager lost 1", "eager restart-planned", "eager started 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_leaves_at_a_failed_start_plans_no_restart() {
    let script = Script::echo().failing_starts(|start| start > 1);
    let mut world = TestHost::new().start().await;
    let told = observe(&world);
    world.spawn(TestHost::spec("a").lazy(), script).await.unwrap();
    world.call("a", "echo").await.unwrap();
    world.crash("a");
    world.advance(secs(60)).await;
    drain(&told);
    world.host.definitions("a").await.unwrap_err();
    world.advance(secs(60)).await;
    assert_eq!(drain(&told), ["a start-failed 2", "a restart-on-demand"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_starts_is_told_of_until_it_is_out_and_in_again() {
    let script = Script::echo().failing_starts(|_| true);
    let world = TestHost::new()
        .server_with("a", script, |spec| {
            spec.restart.max = 1;
            spec.restart.readmit_after = Some(secs(600));
            spec.breaker.failures = 0;
        })
        .start()
        .await;
    let told = observe(&world);
    world.call("a", "echo").await.unwrap_err();
    let expected = ["a start-failed 1", "a restart-planned", "a start-failed 2", "a ejected"];
    assert_eq!(drain(&told), expected);
    world.advance(secs(601)).await;
    assert_eq!(drain(&told), ["a readmitted"]);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_is_told_of_when_it_opens_and_closes() {
    let script = Script::echo().tool("work").on("work", |asked| match asked.nth {
        nth if nth <= 7 => {
            ScriptedReply::fault(Fault::unknown(FaultKind::Status { code: 502, text: "down".into() }))
        }
        _ => ScriptedReply::text("works"),
    });
    let world = TestHost::new().server("a", script).start().await;
    let told = observe(&world);
    let callers = ["ada", "bob", "cyd"].map(|name| Caller::new(name, "local"));
    for caller in callers.iter().cycle().take(6) {
        world.call_as(caller, "a", "work").await.unwrap_err();
    }
    assert_eq!(drain(&told), ["a started 1", "a opened for 30s"]);
    world.advance(secs(30)).await;
    for caller in &callers[..2] {
        world.call_as(caller, "a", "work").await.unwrap_err();
    }
    world.advance(secs(60)).await;
    world.call("a", "work").await.unwrap();
    assert_eq!(drain(&told), ["a opened for 60s", "a closed"]);
}
