//! Registration of servers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::UnavailableState;
use ostler_host::{Caller, Host, HostOptions, ServerSpec, SpawnOutcome, Verdict};
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, TestHost, run_until_stalled};

use crate::{secs, state_of};

#[tokio::test(start_paused = true)]
async fn a_failed_eager_spawn_leaves_nothing_behind() {
    let mut world = TestHost::new().start().await;
    let stage = ScriptedServer::new(Script::echo().failing_starts(|_| true));
    let spawn = world.host.spawn_with(&world.caller, TestHost::spec("a"), Arc::new(stage.clone()));
    assert_eq!(state_of(&spawn.await.unwrap_err()), UnavailableState::StartFailed);
    world.advance(secs(60)).await;
    assert_eq!((stage.connects(), stage.open_sessions()), (1, 0));
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "unknown-server");
    assert!(world.host.status().is_empty());
    assert_eq!(world.spawn(TestHost::spec("a"), Script::echo()).await.unwrap(), SpawnOutcome::New);
}

#[tokio::test(start_paused = true)]
async fn a_failed_replacement_leaves_the_old_server_in_place() {
    let mut world = TestHost::new().server("a", Script::echo()).start().await;
    world.spawn(TestHost::spec("a"), Script::echo().failing_starts(|_| true)).await.unwrap_err();
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lazy_spawn_only_registers() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    world.advance(secs(60)).await;
    assert_eq!((world.state("a"), world.server("a").connects()), ("idle", 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_spec_again_does_nothing() {
    let mut world = TestHost::new().server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    let again = world.spawn(TestHost::spec("a").lazy(), Script::echo()).await.unwrap();
    assert_eq!(again, SpawnOutcome::Unchanged);
    world.call("a", "echo").await.unwrap();
    assert_eq!((world.server("a").connects(), world.server("a").count("echo")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn another_spec_replaces_and_the_old_server_finishes_its_calls() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("old").after(secs(3)));
    let mut world = TestHost::new().server("a", script).start().await;
    let call = world.start_call("a", "slow").await;
    let old = world.server("a").clone();
    let newer = Script::echo().tool_replying("slow", ScriptedReply::text("new"));
    assert_eq!(world.spawn(TestHost::spec("a"), newer).await.unwrap(), SpawnOutcome::Replaced);
    assert_eq!(world.call("a", "slow").await.unwrap().text(), "new");
    assert_eq!(call.await.unwrap().unwrap().text(), "old");
    run_until_stalled().await;
    assert_eq!((old.open_sessions(), world.host.status().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_can_not_work_is_refused_by_the_name_of_its_key() {
    const NO_TIME: &str = "`start_timeout`, `fetch_timeout` and `call_timeout` must be above zero";
    const ENDLESS: &str = "no time may be longer than a century";
    type SpecMutation = fn(&mut ServerSpec);
    let cases: [(SpecMutation, &str); 9] = [
        (|spec| spec.max_in_flight = 0, "`max_in_flight` must be at least 1"),
        (|spec| spec.max_in_flight = usize::MAX, "`max_in_flight` is too large"),
        (|spec| spec.max_line = 0, "`max_line` must be at least 1 byte"),
        (|spec| spec.call_timeout = Duration::ZERO, NO_TIME),
        (|spec| spec.start_timeout = Duration::ZERO, NO_TIME),
        (|spec| spec.max_call_time = Duration::MAX, ENDLESS),
        (|spec| spec.restart.readmit_after = Some(Duration::MAX), ENDLESS),
        (|spec| spec.breaker.reset = Duration::MAX, ENDLESS),
        (
            |spec| spec.transport = ServerSpec::stdio(spec.name.clone(), "").transport,
            "`command` must not be empty",
        ),
    ];
    let mut world = TestHost::new().start().await;
    for (spoil, why) in cases {
        let mut spec = TestHost::spec("a");
        spoil(&mut spec);
        let refusal = world.spawn(spec, Script::echo()).await.unwrap_err();
        assert_eq!(refusal.code(), "invalid-argument");
        assert!(refusal.to_string().contains(&format!("server `a`: {why}")), "{refusal}");
    }
    assert!(world.host.status().is_empty());
}

/// A server that must not be connected; a hook delays the policy verdict about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_is_asked_before_anything_is_started() {
    let host = Host::new(HostOptions::default());
    let stage = ScriptedServer::new(Script::echo());
    let watched = stage.clone();
    host.set_policy_hook(Some(Box::new(move |_, _, _| {
        let patience = std::time::Instant::now() + Duration::from_millis(50);
        while watched.connects() == 0 && std::time::Instant::now() < patience {
            std::thread::yield_now();
        }
        Verdict::Deny { reason: "not here".into() }
    })));
    let spawned = host.spawn_with(&Caller::local(), TestHost::spec("a"), Arc::new(stage.clone())).await;
    assert_eq!(spawned.unwrap_err().code(), "unknown-server");
    assert_eq!((stage.connects(), host.status().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_denied_spawn_tells_nothing_of_a_server_of_that_name() {
    let mut world = TestHost::new().server("a", Script::echo()).start().await;
    world.host.set_policy_hook(Some(Box::new(|_, _, _| Verdict::Deny { reason: "not you".into() })));
    let same = world.spawn(TestHost::spec("a").lazy(), Script::echo()).await.unwrap_err();
    let other = world.spawn(TestHost::spec("a"), Script::echo()).await.unwrap_err();
    assert_eq!((same.code(), &same), ("unknown-server", &other));
    world.host.set_policy_hook(None);
    world.call("a", "echo").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spawn_that_is_given_up_half_way_leaves_nothing() {
    let world = TestHost::new().start().await;
    let stage = ScriptedServer::new(Script::echo().start_after(secs(10)));
    let (host, connector) = (world.host.clone(), Arc::new(stage.clone()));
    let spawn =
        tokio::spawn(async move { host.spawn_with(&Caller::local(), TestHost::spec("a"), connector).await });
    world.advance(secs(1)).await;
    assert_eq!(stage.connects(), 1);
    spawn.abort();
    world.advance(secs(60)).await;
    assert_eq!((stage.connects(), stage.open_sessions()), (1, 0));
    assert!(world.host.status().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_eager_spawn_does_not_hold_up_another() {
    let world = TestHost::new().start().await;
    let spawn = |name: &str, script: Script| {
        let (host, spec) = (world.host.clone(), TestHost::spec(name));
        tokio::spawn(async move {
            host.spawn_with(&Caller::local(), spec, Arc::new(ScriptedServer::new(script))).await
        })
    };
    let slow = spawn("slow", Script::echo().start_after(secs(15)));
    run_until_stalled().await;
    let began = tokio::time::Instant::now();
    spawn("fast", Script::echo()).await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    slow.await.unwrap().unwrap();
    assert_eq!(world.host.status().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_spawns_of_one_name_leave_one_server() {
    let world = TestHost::new().start().await;
    let stages = [1, 2].map(|_| ScriptedServer::new(Script::echo().start_after(secs(1))));
    let spawns = stages.clone().map(|stage| {
        let (host, spec) = (world.host.clone(), TestHost::spec("a"));
        tokio::spawn(async move { host.spawn_with(&Caller::local(), spec, Arc::new(stage)).await })
    });
    let [first, second] = spawns;
    assert_eq!(first.await.unwrap().unwrap(), SpawnOutcome::New);
    assert_eq!(second.await.unwrap().unwrap(), SpawnOutcome::Unchanged);
    world.call("a", "echo").await.unwrap();
    assert_eq!(stages.map(|stage| stage.open_sessions()), [1, 0]);
}
