//! Budgets: calls of one dispatch, and calls per window of roles and tokens.

use ostler_core::caller::CallWindow;
use ostler_core::spec::Isolation;
use ostler_host::{Caller, Limits, Request, RoleLimits, ServerSpec};
use ostler_testkit::{Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::{ItemParam, Params};

use crate::{codes, secs};

#[tokio::test(start_paused = true)]
async fn of_a_hundred_parallel_calls_with_a_budget_of_ten_exactly_ten_reach_the_server() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(1)));
    let mut world = TestHost::new().server("a", script).start().await;
    world.caller = Caller::new("ada", "researcher").with_budget(10);
    let results = world.call_many(100, "a", "slow").await;
    assert_eq!(codes(&results), [("ok", 10), ("over-budget", 90)]);
    assert_eq!(world.server("a").count("slow"), 10);
}

#[tokio::test(start_paused = true)]
async fn refused_and_unknown_calls_are_free() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    for _ in 0..5 {
        assert_eq!(world.call_as(&ada, "a", "nothing").await.unwrap_err().code(), "unknown-tool");
        assert_eq!(world.call_as(&ada, "b", "echo").await.unwrap_err().code(), "unknown-server");
    }
    world.call_as(&ada, "a", "echo").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_left_is_free_and_one_of_unknown_outcome_is_not() {
    let script = Script::echo().tool_replying("die", ScriptedReply::crash());
    let world = TestHost::new().server("a", script).start().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    world.call("a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    for _ in 0..5 {
        assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "server-unavailable");
    }
    world.host.start("a").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "die").await.unwrap_err().code(), "outcome-unknown");
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_sent_and_lost_is_not_free() {
    let script = Script::new().on("resources/read", |_| ScriptedReply::crash());
    let world = TestHost::new().server("a", script).start().await;
    let ada = Caller::new("ada", "researcher").with_budget(1);
    let read =
        || world.host.send_to("a", Request::new(&ada, "resources/read", Params::resource_read("file:///x")));
    assert_eq!(read().await.unwrap_err().code(), "server-unavailable");
    assert_eq!(read().await.unwrap_err().code(), "over-budget");
}

/// Budget of a role.
fn budget(role: &str, calls: u64, per: std::time::Duration) -> Limits {
    let budget = Some(CallWindow { calls, per });
    Limits { roles: [(role.to_owned(), RoleLimits { budget, ..RoleLimits::default() })].into() }
}

#[tokio::test(start_paused = true)]
async fn a_role_has_one_budget_for_all_of_its_callers() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(1)));
    let limits = budget("researcher", 10, secs(60));
    let mut world =
        TestHost::new().options(|options| options.limits = limits).server("a", script).start().await;
    let mut results = Vec::new();
    let mut crowd = Vec::new();
    for principal in ["ada", "bob", "eve", "joe"] {
        world.caller = Caller::new(principal, "researcher");
        crowd.push(world.start_calls(25, "a", "slow").await);
    }
    for calls in crowd {
        results.extend(calls.join_all().await);
    }
    assert_eq!(codes(&results), [("ok", 10), ("over-budget", 90)]);
    assert_eq!(world.server("a").count("slow"), 10);
    world.caller = Caller::new("ann", "writer");
    world.call("a", "echo").await.expect("another role has no part in it");
}

#[tokio::test(start_paused = true)]
async fn the_window_slides_and_the_error_says_whose_it_is_and_when_the_next_call_fits() {
    let limits = budget("researcher", 2, secs(60));
    let world =
        TestHost::new().options(|options| options.limits = limits).server("a", Script::echo()).start().await;
    let ada = Caller::new("ada", "researcher");
    world.call_as(&ada, "a", "echo").await.unwrap();
    world.advance(secs(20)).await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    let error = world.call_as(&ada, "a", "echo").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(40)));
    assert_eq!(
        error.render(),
        "error: the call budget of your role is used up\n  hint: the next call fits in 40s"
    );
    assert_eq!((error.exit_code(), error.data()["budget"].as_str()), (9, Some("role")));
    world.advance(secs(40)).await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    let error = world.call_as(&ada, "a", "echo").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(20)));
}

#[tokio::test(start_paused = true)]
async fn a_call_costs_every_budget_or_none() {
    let limits = budget("researcher", 3, secs(60));
    let world =
        TestHost::new().options(|options| options.limits = limits).server("a", Script::echo()).start().await;
    let ada = Caller::new("ada", "researcher").with_window(2, secs(600)).with_budget(10);
    world.call_as(&ada, "a", "echo").await.unwrap();
    world.call_as(&ada, "a", "echo").await.unwrap();
    for _ in 0..5 {
        let error = world.call_as(&ada, "a", "echo").await.unwrap_err();
        assert_eq!(error.data()["budget"], "token");
    }
    let bob = Caller::new("bob", "researcher").with_window(2, secs(600));
    world.call_as(&bob, "a", "echo").await.expect("what the token refused has not cost the role");
    let error = world.call_as(&bob, "a", "echo").await.unwrap_err();
    assert_eq!((error.data()["budget"].as_str(), error.retry_after()), (Some("role"), Some(secs(60))));
    world.advance(secs(60)).await;
    world.call_as(&bob, "a", "echo").await.expect("what the role refused has not cost the token");
    assert_eq!(world.call_as(&bob, "a", "echo").await.unwrap_err().data()["budget"], "token");
    // Two of ten were made.
    world.advance(secs(600)).await;
    let ada = ada.with_window(100, secs(600));
    for _ in 0..3 {
        world.call_as(&ada, "a", "echo").await.unwrap();
    }
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().data()["budget"], "role");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_left_costs_no_window() {
    let limits = budget("researcher", 1, secs(60));
    let script = Script::echo().tool_replying("die", ScriptedReply::crash());
    let world = TestHost::new().options(|options| options.limits = limits).server("a", script).start().await;
    let ada = Caller::new("ada", "researcher").with_window(1, secs(60));
    world.call("a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    for _ in 0..5 {
        assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "server-unavailable");
        assert_eq!(world.call_as(&ada, "b", "echo").await.unwrap_err().code(), "unknown-server");
    }
    world.host.start("a").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "die").await.unwrap_err().code(), "outcome-unknown");
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test(start_paused = true)]
async fn asking_what_there_is_is_free_and_whatever_makes_a_server_work_is_not() {
    let free =
        ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"];
    let free =
        free.into_iter().chain(["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]);
    let counted = ["prompts/get", "resources/read", "completion/complete", "acme/unknown", "acme/list"];
    let all: Vec<(&str, bool)> = free.map(|it| (it, false)).chain(counted.map(|it| (it, true))).collect();
    for (method, is_counted) in all {
        let script = Script::echo().on(method, |_| ScriptedReply::result("{}"));
        let limits = budget("researcher", 1, secs(60));
        // Tasks are listed only where all of them are the caller's.
        let own = |spec: &mut ServerSpec| spec.isolation = Isolation::Caller;
        let world = TestHost::new().options(|options| options.limits = limits).server_with("a", script, own);
        let world = world.start().await;
        let ada = Caller::new("ada", "researcher");
        let params = match ItemParam::for_method(method) {
            ItemParam::Name => Params::prompt_get("x", None).unwrap(),
            ItemParam::Uri => Params::resource_read("x:1"),
            ItemParam::Ref => Params::parse(r#"{"ref":{"type":"ref/prompt","name":"x"}}"#.into()).unwrap(),
            _ => Params::empty(),
        };
        let _ = world.host.send_to("a", Request::new(&ada, method, params)).await;
        assert_eq!(world.host.budgets()[0].used, u64::from(is_counted), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_budget_keeps_what_was_charged() {
    let limits = budget("researcher", 5, secs(60));
    let world =
        TestHost::new().options(|options| options.limits = limits).server("a", Script::echo()).start().await;
    let ada = Caller::new("ada", "researcher");
    for _ in 0..3 {
        world.call_as(&ada, "a", "echo").await.unwrap();
    }
    world.host.set_limits(budget("researcher", 3, secs(60))).await;
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
    world.host.set_limits(Limits::default()).await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    world.host.set_limits(budget("researcher", 4, secs(60))).await;
    world.call_as(&ada, "a", "echo").await.expect("what was called without a budget was not counted");
    let status = world.host.budgets();
    assert_eq!((status.len(), status[0].used, status[0].calls, status[0].resets_ms), (1, 4, 4, Some(60_000)));
}

#[tokio::test(start_paused = true)]
async fn whoever_runs_the_host_has_no_budget() {
    let limits = budget("operator", 0, secs(60));
    let world =
        TestHost::new().options(|options| options.limits = limits).server("a", Script::echo()).start().await;
    world.call_as(&Caller::operator(), "a", "echo").await.unwrap();
    let claimed = Caller::new("operator", "operator");
    assert_eq!(world.call_as(&claimed, "a", "echo").await.unwrap_err().code(), "over-budget");
}

#[tokio::test]
async fn charges_outlive_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        let (file, limits) = (folder.path().join("x.budgets"), budget("researcher", 3, secs(3_600)));
        let options = |options: &mut ostler_host::HostOptions| {
            (options.budget_file, options.limits) = (Some(file), limits);
        };
        TestHost::new().options(options).server("a", Script::echo()).start().await
    };
    let ada = Caller::new("ada", "researcher").with_window(2, secs(3_600));
    let world = open().await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    world.host.stop("a").await.unwrap();
    world.call_as(&ada, "a", "echo").await.unwrap_err();
    world.host.start("a").await.unwrap();
    assert!(world.host.shutdown().await);
    let world = open().await;
    assert_eq!(world.host.budgets()[0].used, 1, "what was given back stays given back");
    world.call_as(&ada, "a", "echo").await.unwrap();
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().data()["budget"], "token");
    assert!(world.host.shutdown().await);
    let world = open().await;
    let bob = Caller::new("bob", "researcher");
    world.call_as(&bob, "a", "echo").await.unwrap();
    let error = world.call_as(&bob, "a", "echo").await.unwrap_err();
    assert_eq!(error.data()["budget"], "role");
    assert!(!world.host.is_budget_journal_failing());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_stops_no_call_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let limits = budget("researcher", 2, secs(3_600));
    let options = |options: &mut ostler_host::HostOptions| {
        (options.budget_file, options.limits) = (Some(file.join("x.budgets")), limits);
    };
    let world = TestHost::new().options(options).server("a", Script::echo()).start().await;
    let ada = Caller::new("ada", "researcher");
    for _ in 0..2 {
        world.call_as(&ada, "a", "echo").await.unwrap();
    }
    assert_eq!(world.call_as(&ada, "a", "echo").await.unwrap_err().code(), "over-budget");
    assert!(world.host.is_budget_journal_failing());
}
