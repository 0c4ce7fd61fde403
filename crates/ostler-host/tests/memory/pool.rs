//! The process pool.

use ostler_host::{CallArguments, CallError, Caller, HostOptions, Isolation, Request, ServerSpec};
use ostler_testkit::{Script, ScriptedReply, TestHost, TestHostBuilder};

use crate::{ms, secs};

fn process() -> Script {
    Script::echo().as_process().tool_replying("slow", ScriptedReply::text("done").after(secs(20)))
}

fn with_room_for(processes: usize) -> TestHostBuilder {
    let limit = move |options: &mut HostOptions| options.max_processes = processes;
    TestHost::new().options(limit).server("a", process()).server("b", process()).server("c", process())
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_idle_process_makes_room() {
    let world = with_room_for(2).start().await;
    for server in ["a", "b", "a"] {
        world.call(server, "echo").await.unwrap();
        world.advance(secs(1)).await;
    }
    world.call("c", "echo").await.unwrap();
    assert_eq!(["a", "b", "c"].map(|server| world.state(server)), ["ready", "idle", "ready"]);
    assert_eq!((world.server("b").closed(), world.host.process_count()), (vec![1], 2));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_finds_nobody_idle_is_told_at_its_deadline() {
    let world = with_room_for(2).start().await;
    let _calls = [world.start_call("a", "slow").await, world.start_call("b", "slow").await];
    let began = tokio::time::Instant::now();
    let error = world.call_within(secs(5), "c", "echo").await.unwrap_err();
    assert_eq!((error.code(), began.elapsed()), ("overloaded", secs(5)));
    assert!(error.retry_after().is_some());
    assert_eq!((world.server("c").connects(), world.host.process_count()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_in_when_somebody_becomes_idle() {
    let world = with_room_for(2).start().await;
    let slow = world.start_call("a", "slow").await;
    let _other = world.host.bind(&world.caller, "b").await.unwrap();
    let began = tokio::time::Instant::now();
    world.call("c", "echo").await.unwrap();
    assert_eq!(began.elapsed(), secs(20));
    slow.await.unwrap().unwrap();
    assert_eq!((world.state("a"), world.host.process_count()), ("idle", 2));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_until_the_evicted_process_is_really_gone() {
    let limit = |options: &mut HostOptions| options.max_processes = 1;
    let lingering = process().close_after(secs(3));
    let world = TestHost::new().options(limit).server("a", lingering).server("b", process()).start().await;
    world.call("a", "echo").await.unwrap();
    let began = tokio::time::Instant::now();
    world.call("b", "echo").await.unwrap();
    assert_eq!((began.elapsed(), world.server("a").open_sessions()), (secs(3), 0));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_leaves_gives_its_turn_up() {
    let world = with_room_for(1).start().await;
    let slow = world.start_call("a", "slow").await;
    let newcomer = world.start_call("b", "echo").await;
    newcomer.abort();
    slow.await.unwrap().unwrap();
    world.advance(ms(10)).await;
    assert_eq!((world.state("a"), world.state("b")), ("ready", "idle"));
    assert_eq!(world.server("b").connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn room_for_none_means_none() {
    let world = with_room_for(0).start().await;
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "overloaded");
    assert_eq!(world.server("a").connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_are_no_processes_take_no_room() {
    let limit = |options: &mut HostOptions| options.max_processes = 0;
    let world = TestHost::new().options(limit).server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    assert_eq!(world.host.process_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_finds_no_room_is_told_in_the_time_that_a_start_may_take() {
    let mut world = with_room_for(1).start().await;
    let _binding = world.host.bind(&world.caller, "a").await.unwrap();
    let overloaded = |result: Result<(), CallError>| assert_eq!(result.unwrap_err().code(), "overloaded");
    let began = tokio::time::Instant::now();
    overloaded(world.host.start("b").await);
    overloaded(world.host.reload("b").await);
    overloaded(world.host.bind(&world.caller, "b").await.map(drop));
    overloaded(world.spawn(TestHost::spec("d"), process()).await.map(drop));
    assert_eq!(began.elapsed(), 4 * secs(60));
    assert_eq!((world.server("b").connects(), world.host.status().len()), (0, 3));
}

/// Lets one caller open places without end; another caller still gets a process.
async fn opens_without_end(isolation: Isolation, place: impl Fn(Caller, usize) -> Caller) {
    let limit = |options: &mut HostOptions| options.max_processes = 4;
    let world = TestHost::new()
        .options(limit)
        .server_with("a", process(), |spec| spec.isolation = isolation)
        .server("b", process())
        .start()
        .await;
    let of_ada = |number: usize| place(Caller::new("ada", "researcher"), number);
    for number in 0..20 {
        world.call_as(&of_ada(number), "a", "echo").await.unwrap();
        assert!(world.host.process_count() <= 2, "idle ones make room for their owner's next");
    }
    let busy = [of_ada(30), of_ada(31)].map(|caller| {
        let host = world.host.clone();
        tokio::spawn(async move { host.call(&caller, "a", "slow", CallArguments::none()).await })
    });
    world.advance(ms(10)).await;
    let third = of_ada(32);
    let waiting = Request::tool_call(&third, "echo", CallArguments::none()).unwrap().with_timeout(secs(5));
    assert_eq!(world.host.send_to("a", waiting).await.unwrap_err().code(), "overloaded");
    let bob = place(Caller::new("bob", "researcher"), 1);
    world.call_as(&bob, "a", "echo").await.unwrap();
    world.call("b", "echo").await.unwrap();
    for call in busy {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_opens_sessions_without_end_has_half_of_the_processes() {
    opens_without_end(Isolation::Session, |caller, number| caller.in_session(number.to_string())).await;
}

// Bob wakes a workspace that ada has opened, and it counts for him.
#[tokio::test(start_paused = true)]
async fn a_caller_that_opens_workspaces_without_end_has_half_of_the_processes() {
    opens_without_end(Isolation::Workspace, |caller, number| caller.in_workspace(format!("/work{number}")))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_no_more_than_half_of_the_session_places_of_a_server() {
    let by_session = |spec: &mut ServerSpec| spec.isolation = Isolation::Session;
    let limit = |options: &mut HostOptions| options.max_processes = 2_000;
    let world = TestHost::new().options(limit).server_with("a", process(), by_session).start().await;
    let mut held = Vec::new();
    for number in 0..512 {
        let caller = Caller::new("ada", "researcher").in_session(number.to_string());
        held.push(world.host.bind(&caller, "a").await.unwrap());
    }
    let one_more = Caller::new("ada", "researcher").in_session("one more");
    assert_eq!(world.call_as(&one_more, "a", "echo").await.unwrap_err().code(), "overloaded");
    world.call_as(&Caller::new("bob", "researcher"), "a", "echo").await.unwrap();
    drop(held);
    world.advance(secs(301)).await;
    world.call_as(&one_more, "a", "echo").await.unwrap();
}
