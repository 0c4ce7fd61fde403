//! Fairness between callers: one caller's flood does not starve the others.

use std::thread::available_parallelism;

use ostler_host::{
    CallArguments, Caller, Kind, Limits, Request, RoleLimits, Scope, ServerListing, ServerSpec,
};
use ostler_testkit::{Reconfigure, Result, Script, ScriptedReply, TestHost, run_until_stalled};
use ostler_wire::Params;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::{codes, ms, secs};

fn ada() -> Caller {
    Caller::new("ada", "researcher")
}

/// Two tools, so that the server can tell the callers apart; each takes a tenth of a second.
fn server() -> Script {
    Script::echo()
        .tool_replying("flood", ScriptedReply::text("done").after(ms(100)))
        .tool_replying("careful", ScriptedReply::text("done").after(ms(100)))
}

fn narrow(places: usize) -> impl FnOnce(&mut ServerSpec) {
    move |spec| spec.max_in_flight = places
}

/// Begins many calls of one caller at once.
async fn flood(world: &TestHost, caller: &Caller, count: usize) -> JoinSet<Result> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (host, caller) = (world.host.clone(), caller.clone());
        calls.spawn(async move { host.call(&caller, "a", "flood", CallArguments::none()).await });
    }
    run_until_stalled().await;
    calls
}

#[tokio::test(start_paused = true)]
async fn a_careful_caller_waits_for_at_most_one_round_of_a_flood() {
    let world = TestHost::new().server_with("a", server(), narrow(4)).start().await;
    world.call("a", "echo").await.unwrap();
    let (host, flooder) = (world.host.clone(), Caller::new("flooder", "researcher"));
    let flooding = tokio::spawn(async move {
        let mut calls = JoinSet::new();
        for _ in 0..1_000 {
            let (host, flooder) = (host.clone(), flooder.clone());
            // A shed caller retries when the error says so.
            calls.spawn(async move {
                while host.call(&flooder, "a", "flood", CallArguments::none()).await.is_err() {
                    tokio::time::sleep(secs(1)).await;
                }
            });
        }
        calls.join_all().await
    });
    run_until_stalled().await;
    for _ in 0..20 {
        // Calls that were admitted by now are at the server.
        run_until_stalled().await;
        let before = world.server("a").count("flood");
        // A task like those of the flood: the first to be admitted runs first.
        let (host, ada) = (world.host.clone(), ada());
        let call = async move { host.call(&ada, "a", "careful", CallArguments::none()).await };
        tokio::spawn(call).await.unwrap().unwrap();
        let asked = world.server("a").requests();
        let at = asked.iter().rposition(|asked| asked.name.as_deref() == Some("careful")).unwrap();
        let between =
            asked[..at].iter().filter(|asked| asked.name.as_deref() == Some("flood")).count() - before;
        assert!(between <= 1, "{between} calls of the flood were let in before");
    }
    flooding.await.unwrap();
    assert_eq!(world.server("a").count("flood"), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_lone_caller_has_the_whole_queue_until_somebody_else_comes() {
    let world = TestHost::new().server_with("a", server(), narrow(1)).start().await;
    world.call("a", "echo").await.unwrap();
    let calls = flood(&world, &world.caller, 300).await;
    assert_eq!(world.status("a").queued, 256);
    let began = tokio::time::Instant::now();
    let (host, ada) = (world.host.clone(), ada());
    let hers = tokio::spawn(async move { host.call(&ada, "a", "careful", CallArguments::none()).await });
    run_until_stalled().await;
    assert_eq!((world.status("a").queued, began.elapsed()), (256, ms(0)));
    hers.await.unwrap().unwrap();
    assert!(began.elapsed() <= ms(300), "{:?}", began.elapsed());
    let results = calls.join_all().await;
    assert_eq!(codes(&results), [("ok", 256), ("overloaded", 44)]);
    let told = results.iter().filter_map(|result| result.as_ref().err()).map(ToString::to_string);
    assert_eq!(told.filter(|text| text.contains("you have the most")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_caller_cannot_take_all_calls_of_the_host() {
    let opening =
        TestHost::new().options(|options| (options.max_in_flight, options.max_per_caller) = (10, 6));
    let world = opening.server("a", server()).start().await;
    world.call("a", "echo").await.unwrap();
    let calls = flood(&world, &world.caller, 20).await;
    world.call_as(&ada(), "a", "careful").await.unwrap();
    let results = calls.join_all().await;
    assert_eq!(codes(&results), [("ok", 6), ("overloaded", 14)]);
    let error = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.retry_after(), Some(secs(1)));
    assert!(error.to_string().contains("6 of your calls are in flight"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_role_bounds_the_calls_of_each_of_its_callers_and_no_lists() {
    let limits = Limits {
        roles: [("researcher".to_owned(), RoleLimits { max_in_flight: Some(2), ..RoleLimits::default() })]
            .into(),
    };
    let world =
        TestHost::new().options(|options| options.limits = limits).server("a", server()).start().await;
    world.call("a", "echo").await.unwrap();
    let (hers, his) =
        (flood(&world, &ada(), 5).await, flood(&world, &Caller::new("bob", "researcher"), 5).await);
    let mine = flood(&world, &world.caller, 5).await;
    world.host.tools(&ada(), "a").await.unwrap();
    assert!(world.host.list(&ada(), &ostler_host::Scope::All, Kind::Tools, secs(1)).await[0].error.is_none());
    for calls in [hers, his] {
        assert_eq!(codes(&calls.join_all().await), [("ok", 2), ("overloaded", 3)]);
    }
    assert_eq!(codes(&mine.join_all().await), [("ok", 5)]);
    world.host.set_limits(Limits::default()).await;
    assert_eq!(codes(&flood(&world, &ada(), 5).await.join_all().await), [("ok", 5)]);
}

#[tokio::test(start_paused = true)]
async fn lists_work_while_somebody_else_floods() {
    let script = server().capabilities(r#"{"tools":{},"prompts":{}}"#);
    let world = TestHost::new().server_with("a", script, narrow(1)).start().await;
    world.call("a", "echo").await.unwrap();
    let _calls = flood(&world, &world.caller, 3_000).await;
    let began = tokio::time::Instant::now();
    ostler_testkit::list_one(&world.host, &ada(), "a", Kind::Prompts, secs(60)).await.unwrap();
    assert!(began.elapsed() <= ms(300), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_read_something_can_read_again_at_once() {
    let limits = Limits {
        roles: [("researcher".to_owned(), RoleLimits { max_in_flight: Some(1), ..RoleLimits::default() })]
            .into(),
    };
    let script = Script::new().on("resources/read", |_| ScriptedReply::result(r#"{"contents":[]}"#));
    let world = TestHost::new().options(|options| options.limits = limits).server("a", script).start().await;
    for n in 0..5_000 {
        let params = Params::resource_read("x:1");
        let read = world.host.send_to("a", Request::new(&ada(), "resources/read", params)).await;
        assert!(read.is_ok(), "the {n}th: {read:?}");
    }
}

#[tokio::test]
async fn long_lists_are_written_a_few_at_once_and_callers_take_turns() {
    let long = serde_json::json!({"name": "long", "description": "x".repeat(1 << 20), "inputSchema": {"type": "object"}});
    let world = TestHost::new().server("a", Script::new().definition(long)).start().await;
    assert_eq!(world.host.tools(&world.caller, "a").await.unwrap().len(), 1);
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (open, gate) = tokio::sync::watch::channel(false);
    let list = |name: &'static str| {
        let (host, begun, mut gate) = (world.host.clone(), begun.clone(), gate.clone());
        let write = move |listings: Vec<ServerListing>, _turn| {
            begun.send(name).unwrap();
            // A failed test opens no gate.
            let _ = Handle::current().block_on(gate.wait_for(|is_open| *is_open));
            listings[0].items.len()
        };
        async move { host.list_with(&Caller::new(name, "any"), &Scope::All, (Kind::Tools, secs(10)), write).await }
    };
    let turns = available_parallelism().unwrap().get().max(2);
    let mut lists = JoinSet::new();
    (0..2 * turns).for_each(|_| drop(lists.spawn(list("ada"))));
    for _ in 0..turns / 2 {
        assert_eq!(begins.recv().await, Some("ada"));
    }
    run_until_stalled().await;
    lists.spawn(list("bob"));
    assert_eq!(begins.recv().await, Some("bob"), "one caller has at most half of the turns");
    open.send_replace(true);
    assert_eq!(lists.join_all().await, vec![1; 2 * turns + 1]);
}
