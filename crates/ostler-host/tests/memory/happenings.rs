//! What happens to servers is told to whoever observes them.

use std::sync::{Arc, Mutex};

use ostler_core::caller::Caller;
use ostler_core::fault::{Fault, FaultKind};
use ostler_host::{Happening, What};
use ostler_testkit::{Reply, Script, World, settle};

use crate::secs;

type Told = Arc<Mutex<Vec<String>>>;

fn word(happening: &Happening<'_>) -> String {
    let Happening { server, what, .. } = happening;
    match what {
        What::Started { generation, .. } => format!("{server} started {generation}"),
        What::StartFailed { generation, .. } => format!("{server} start-failed {generation}"),
        What::Lost { generation, .. } => format!("{server} lost {generation}"),
        What::Ended { generation } => format!("{server} ended {generation}"),
        What::RestartPlanned { .. } => format!("{server} restart-planned"),
        What::Ejected { .. } => format!("{server} ejected"),
        What::NeedsAuth { retry_in, .. } => format!("{server} needs-auth for {}s", retry_in.as_secs()),
        What::Readmitted => format!("{server} readmitted"),
        What::BreakerOpened { wait } => format!("{server} opened for {}s", wait.as_secs()),
        What::BreakerClosed => format!("{server} closed"),
        What::Operated { act, by } => {
            format!("{server} {} by {}", act.as_str(), by.map_or("?", |caller| caller.principal()))
        }
        What::ResourceShadowed { uri, owner } => format!("{server} {uri} shadowed by {owner}"),
        What::DefinitionChanged { tool, standing, .. } => format!("{server} {tool} {standing}"),
    }
}

fn observe(world: &World) -> Told {
    let told = Told::default();
    let kept = Arc::clone(&told);
    // A lock of the host that were held now would never come back.
    let host = world.host.clone();
    world.host.set_observer(Some(Arc::new(move |happening| {
        let _ = host.status();
        kept.lock().unwrap().push(word(happening));
    })));
    told
}

fn take(told: &Told) -> Vec<String> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_server_is_told_in_order() {
    let mut world = World::new().open().await;
    let told = observe(&world);
    world.spawn(World::spec("a").lazy(), Script::echo()).await.unwrap();
    world.call("a", "echo").await.unwrap();
    assert_eq!(take(&told), ["a register by local", "a started 1"]);
    world.crash("a");
    settle().await;
    world.call("a", "echo").await.unwrap();
    assert_eq!(take(&told), ["a lost 1", "a restart-planned", "a started 2"]);
    world.host.stop("a").await.unwrap();
    world.host.start("a").await.unwrap();
    assert_eq!(take(&told), ["a stop by ?", "a ended 2", "a start by ?", "a started 3"]);
    world.host.reload("a").await.unwrap();
    settle().await;
    assert_eq!(take(&told), ["a reload by ?", "a started 4", "a ended 3"]);
    world.spawn(World::spec("a"), Script::echo()).await.unwrap();
    world.host.remove("a").await.unwrap();
    let told = take(&told);
    assert_eq!(told[..2], ["a started 1", "a replace by local"]);
    assert!(told.contains(&"a remove by ?".into()) && told.contains(&"a ended 4".into()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_starts_is_told_of_until_it_is_out_and_in_again() {
    let script = Script::echo().failing_starts(|_| true);
    let world = World::new()
        .server_with("a", script, |spec| {
            spec.restart.max = 1;
            spec.restart.readmit_after = Some(secs(600));
            spec.breaker.failures = 0;
        })
        .open()
        .await;
    let told = observe(&world);
    world.call("a", "echo").await.unwrap_err();
    let expected = ["a start-failed 1", "a restart-planned", "a start-failed 2", "a ejected"];
    assert_eq!(take(&told), expected);
    world.advance(secs(601)).await;
    assert_eq!(take(&told), ["a readmitted"]);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_is_told_of_when_it_opens_and_closes() {
    let script = Script::echo().tool("work").on("work", |asked| match asked.nth {
        nth if nth <= 7 => Reply::fault(Fault::unknown(FaultKind::Status { code: 502, text: "down".into() })),
        _ => Reply::text("works"),
    });
    let world = World::new().server("a", script).open().await;
    let told = observe(&world);
    let callers = ["ada", "bob", "cyd"].map(|name| Caller::new(name, "local"));
    for caller in callers.iter().cycle().take(6) {
        world.call_as(caller, "a", "work").await.unwrap_err();
    }
    assert_eq!(take(&told), ["a started 1", "a opened for 30s"]);
    world.advance(secs(30)).await;
    for caller in &callers[..2] {
        world.call_as(caller, "a", "work").await.unwrap_err();
    }
    world.advance(secs(60)).await;
    world.call("a", "work").await.unwrap();
    assert_eq!(take(&told), ["a opened for 60s", "a closed"]);
}
