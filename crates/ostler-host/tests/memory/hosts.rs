//! Hosts as values: several in one process share no state.

use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use ostler_core::error::UnavailableState;
use ostler_core::spec::Isolation;
use ostler_host::{CallArguments, Caller, CredentialState, Request, Verdict};
use ostler_testkit::{Script, ScriptedReply, ScriptedServer, TestHost, run_until_stalled};
use ostler_wire::Params;

use crate::{codes, secs, state_of};

fn slow() -> Script {
    Script::echo()
        .as_process()
        .tool_replying("slow", ScriptedReply::cacheable("done", secs(60), "public").after(secs(3)))
}

#[tokio::test(start_paused = true)]
async fn several_hosts_in_one_process_share_nothing() {
    let one = TestHost::new().options(|options| options.max_processes = 1).server("a", slow()).start().await;
    let two = TestHost::new().options(|options| options.max_processes = 1).server("a", slow()).start().await;
    one.call("a", "slow").await.unwrap();
    assert!(!two.call("a", "slow").await.unwrap().is_cached());
    one.host.stop("a").await.unwrap();
    two.call("a", "echo").await.unwrap();
    assert_eq!((one.state("a"), two.state("a")), ("stopped", "ready"));
    let keys = |world: &TestHost| world.server("a").requests_for("slow")[0].key.clone();
    assert_ne!(keys(&one), keys(&two));
    assert!(one.host.shutdown().await);
    two.call("a", "echo").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_closes_every_session() {
    let world = TestHost::new().server("a", slow()).server("b", slow()).start().await;
    let call = world.start_call("a", "slow").await;
    world.call("b", "echo").await.unwrap();
    let stages = ["a", "b"].map(|server| world.server(server).clone());
    drop(world);
    assert_eq!(call.await.unwrap().unwrap().text(), "done", "a call holds a handle");
    run_until_stalled().await;
    assert_eq!(stages.map(|stage| stage.open_sessions()), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drains_closes_and_returns() {
    let world = TestHost::new().server("a", slow()).server("b", slow()).start().await;
    let calls = world.start_calls(5, "a", "slow").await;
    world.call("b", "echo").await.unwrap();
    assert!(world.host.shutdown().await);
    assert_eq!(codes(&calls.join_all().await), [("ok", 5)]);
    assert_eq!(["a", "b"].map(|server| world.server(server).open_sessions()), [0, 0]);
    assert_eq!((world.host.status().len(), world.host.process_count()), (0, 0));
    assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "unknown-server");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_ever() {
    let world = TestHost::new().server("a", Script::echo().close_after(secs(3_600))).start().await;
    world.call("a", "echo").await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(!world.host.shutdown().await);
    assert!(began.elapsed() <= secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_being_spawned_during_a_shutdown_is_not_registered() {
    let world = TestHost::new().start().await;
    let stage = ScriptedServer::new(Script::echo().as_process().start_after(secs(10)));
    let (host, me, connector) = (world.host.clone(), world.caller.clone(), Arc::new(stage.clone()));
    let spawn = tokio::spawn(async move { host.spawn_with(&me, TestHost::spec("a"), connector).await });
    run_until_stalled().await;
    assert_eq!(stage.connects(), 1);
    assert!(world.host.shutdown().await);
    assert_eq!(world.host.process_count(), 0);
    assert_eq!(spawn.await.unwrap().unwrap_err().code(), "server-unavailable");
    assert_eq!((stage.open_sessions(), world.host.status().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_shut_down_takes_no_servers() {
    let mut world = TestHost::new().start().await;
    assert!(world.host.shutdown().await);
    for spec in [TestHost::spec("a"), TestHost::spec("a").lazy()] {
        let error = world.spawn(spec, Script::echo()).await.unwrap_err();
        assert_eq!(state_of(&error), UnavailableState::Stopped);
    }
    assert!(world.host.status().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_servers_that_were_replaced_or_removed_before() {
    let mut world = TestHost::new().server("a", slow()).server("b", slow()).start().await;
    let _calls = [world.start_call("a", "slow").await, world.start_call("b", "slow").await];
    let stages = ["a", "b"].map(|server| world.server(server).clone());
    world.spawn(TestHost::spec("a"), Script::echo()).await.unwrap();
    let host = world.host.clone();
    tokio::spawn(async move { host.remove("b").await });
    run_until_stalled().await;
    assert!(world.host.shutdown().await);
    assert_eq!(stages.map(|stage| stage.open_sessions()), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_sent_when_its_record_has_room_and_recorded_if_its_caller_leaves_before() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&outcomes);
    world.host.set_recorder(Some(Arc::new(move |record| kept.lock().unwrap().push(record.outcome))));
    world.host.set_record_backpressure(Some(Arc::new(|_| Some(Box::pin(tokio::time::sleep(secs(5)))))));
    let began = tokio::time::Instant::now();
    world.call("a", "echo").await.unwrap();
    assert_eq!(began.elapsed(), secs(5));
    let left = tokio::time::timeout(secs(1), world.call("a", "echo")).await;
    assert!(left.is_err());
    assert_eq!(*outcomes.lock().unwrap(), ["ok", "cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn every_request_is_recorded_once_also_when_its_caller_leaves() {
    let script = slow().tool_replying("wrong", ScriptedReply::tool_error("it went wrong"));
    let world = TestHost::new().server("a", script).start().await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        kept.lock().unwrap().push((record.subject.to_owned(), record.outcome, record.generation));
    })));
    let call = world.start_call("a", "slow").await;
    call.abort();
    world.advance(secs(1)).await;
    world.call("a", "slow").await.unwrap();
    world.call("a", "slow").await.unwrap();
    world.call("a", "nothing").await.unwrap_err();
    world.call("a", "wrong").await.unwrap();
    let expected = [
        ("slow", "cancelled", None),
        ("slow", "ok", Some(1)),
        ("slow", "cached", None),
        ("nothing", "unknown-tool", None),
        ("wrong", "tool-error", Some(1)),
    ];
    let expected: Vec<_> =
        expected.map(|(subject, outcome, generation)| (subject.to_owned(), outcome, generation)).into();
    assert_eq!(*records.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_with_its_token_is_recorded_with_the_reason() {
    let world = TestHost::new().server("a", slow()).start().await;
    let details = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&details);
    world.host.set_recorder(Some(Arc::new(move |record| {
        kept.lock().unwrap().push((record.outcome, record.detail.map(str::to_owned)));
    })));
    for state in [CredentialState::Valid, CredentialState::Expired, CredentialState::Revoked] {
        let zed = Caller::new("token:zed", "researcher").with_ending_credential();
        let mut call = pin!(world.call_as(&zed, "a", "slow"));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        zed.end_credential(state);
    }
    let revoked = Some("the token was revoked".to_owned());
    assert_eq!(*details.lock().unwrap(), [("cancelled", None), ("cancelled", None), ("cancelled", revoked)]);
}

#[tokio::test(start_paused = true)]
async fn an_isolated_server_has_a_session_for_each_caller() {
    let table = [(Isolation::Shared, 1), (Isolation::Caller, 2), (Isolation::Session, 3)];
    for (isolation, connects) in table {
        let world = TestHost::new().server_with("a", slow(), |spec| spec.isolation = isolation).start().await;
        let ada = Caller::new("ada", "researcher");
        let callers = [ada.clone().in_session("1"), ada.in_session("2"), Caller::new("bob", "researcher")];
        for caller in &callers {
            world.host.call(caller, "a", "echo", CallArguments::none()).await.unwrap();
        }
        assert_eq!(world.server("a").connects(), connects, "{isolation:?}");
        world.host.stop("a").await.unwrap();
        assert_eq!(world.server("a").open_sessions(), 0);
        assert_eq!(world.call("a", "echo").await.unwrap_err().code(), "server-unavailable");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_of_one_name_are_kept_apart_by_who_asks() {
    let by_session = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Session;
    let world = TestHost::new().server_with("a", slow(), by_session).start().await;
    for who in ["ada", "bob"] {
        let caller = Caller::new(who, "researcher").in_session("1");
        world.call_as(&caller, "a", "echo").await.unwrap();
    }
    world.call_as(&Caller::new("1", "researcher"), "a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_process_of_a_session_ends_with_it_and_is_not_started_again() {
    let by_session = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Session;
    let world = TestHost::new().server_with("a", slow(), by_session).server("b", slow()).start().await;
    let [one, two] = ["1", "2"].map(|session| Caller::local().in_session(session));
    for caller in [&one, &two] {
        world.call_as(caller, "a", "echo").await.unwrap();
        world.call_as(caller, "b", "echo").await.unwrap();
    }
    world.host.end_session(&one);
    world.advance(secs(1)).await;
    assert_eq!((world.server("a").open_sessions(), world.server("b").open_sessions()), (1, 1));
    world.call_as(&one, "a", "echo").await.unwrap_err();
    assert_eq!(world.server("a").connects(), 2);
    world.call_as(&one, "b", "echo").await.unwrap();
    world.call_as(&two, "a", "echo").await.unwrap();
    assert_eq!(world.server("a").connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_processes_of_a_caller_end_with_its_credential_and_are_not_started_again() {
    for isolation in [Isolation::Caller, Isolation::Session] {
        let world = TestHost::new().server_with("a", slow(), |spec| spec.isolation = isolation).start().await;
        let token = |name: &str| Caller::new(name, "researcher").with_ending_credential().in_session("1");
        let (zed, ada) = (token("token:zed"), token("token:ada"));
        for caller in [&zed, &ada] {
            world.call_as(caller, "a", "echo").await.unwrap();
        }
        zed.end_credential(CredentialState::Revoked);
        world.host.end_caller(&zed);
        world.advance(secs(1)).await;
        assert_eq!(world.server("a").open_sessions(), 1, "{isolation:?}");
        world.call_as(&zed, "a", "echo").await.unwrap_err();
        world.host.stop("a").await.unwrap();
        world.host.start("a").await.unwrap();
        world.host.reload("a").await.unwrap();
        assert_eq!(
            world.server("a").open_sessions(),
            1,
            "{isolation:?}: nothing is started for a principal that has gone"
        );
        let connects = world.server("a").connects();
        world.call_as(&token("token:zed"), "a", "echo").await.unwrap();
        assert_eq!(
            world.server("a").connects(),
            connects + 1,
            "{isolation:?}: the next holder gets a process of its own"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_has_gone_leaves_no_private_answer_to_the_next_of_its_name() {
    let script = || {
        let reply = ScriptedReply::cacheable("mine", secs(60), "private").after(secs(1));
        Script::echo().tool_replying("work", reply)
    };
    for isolation in [Isolation::Shared, Isolation::Caller, Isolation::Session, Isolation::Workspace] {
        let world =
            TestHost::new().server_with("a", script(), |spec| spec.isolation = isolation).start().await;
        let token = || Caller::new("token:zed", "researcher").with_ending_credential().in_workspace("/one");
        let zed = token();
        world.call_as(&zed, "a", "work").await.unwrap();
        assert!(world.call_as(&zed, "a", "work").await.unwrap().is_cached(), "{isolation:?}");
        zed.end_credential(CredentialState::Expired);
        world.host.end_caller(&zed);
        let next = token();
        assert!(!world.call_as(&next, "a", "work").await.unwrap().is_cached(), "{isolation:?}");
        assert!(world.call_as(&next, "a", "work").await.unwrap().is_cached(), "{isolation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_outlasts_the_credential_of_its_caller_is_not_remembered() {
    let reply = ScriptedReply::cacheable("mine", secs(60), "private").after(secs(1));
    let world = TestHost::new().server("a", Script::echo().tool_replying("work", reply)).start().await;
    let zed = Caller::new("token:zed", "researcher").with_ending_credential();
    let (answer, ()) = tokio::join!(world.call_as(&zed, "a", "work"), async {
        run_until_stalled().await;
        assert_eq!(world.server("a").in_flight(), 1);
        zed.end_credential(CredentialState::Expired);
        world.host.end_caller(&zed);
    });
    answer.unwrap();
    let next = Caller::new("token:zed", "researcher");
    assert!(!world.call_as(&next, "a", "work").await.unwrap().is_cached());
}

#[tokio::test(start_paused = true)]
async fn a_process_of_a_session_or_workspace_ends_when_unused_though_its_server_is_not_lazy() {
    for (isolation, left) in [(Isolation::Session, 0), (Isolation::Workspace, 0), (Isolation::Caller, 2)] {
        let eager = |spec: &mut ostler_host::ServerSpec| {
            (spec.isolation, spec.lazy) = (isolation, false);
        };
        let world = TestHost::new().server_with("a", slow(), eager).start().await;
        world.call_as(&Caller::new("ada", "researcher"), "a", "echo").await.unwrap();
        world.advance(secs(301)).await;
        assert_eq!(world.server("a").open_sessions(), left, "{isolation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_in_one_workspace_share_a_process_and_callers_without_one_that_of_the_config() {
    let by_workspace = |spec: &mut ostler_host::ServerSpec| {
        spec.isolation = Isolation::Workspace;
        spec.workspace = Some("/config".into());
    };
    let world = TestHost::new().server_with("a", slow(), by_workspace).start().await;
    let ada = Caller::new("ada", "researcher");
    for caller in [
        ada.clone().in_workspace("/one").in_session("1"),
        Caller::local().in_workspace("/one").in_session("2"),
        ada.clone().in_workspace("/two"),
        ada.in_workspace("/config"),
        Caller::new("bob", "researcher"),
        Caller::operator(),
    ] {
        world.call_as(&caller, "a", "echo").await.unwrap();
    }
    assert_eq!(world.server("a").connects(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_told_in_one_workspace_is_not_told_in_another_nor_to_others_in_it() {
    let script = |scope| {
        let reply = ScriptedReply::cacheable("here", secs(60), scope);
        Script::echo().tool_replying("work", reply)
    };
    for scope in ["public", "private"] {
        let by_workspace = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Workspace;
        let world = TestHost::new().server_with("a", script(scope), by_workspace).start().await;
        let ada = Caller::new("ada", "researcher");
        for caller in [
            ada.clone().in_workspace("/one"),
            ada.in_workspace("/two"),
            Caller::new("bob", "researcher").in_workspace("/one"),
        ] {
            assert!(!world.call_as(&caller, "a", "work").await.unwrap().is_cached(), "{scope}");
            assert!(world.call_as(&caller, "a", "work").await.unwrap().is_cached(), "{scope}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_session_was_told_is_not_told_to_another() {
    let private = ScriptedReply::cacheable("mine", secs(60), "private").after(secs(1));
    let script = Script::echo().tool_replying("work", private).on("resources/read", |asked| {
        ScriptedReply::result(format!(r#"{{"contents":[],"from":{}}}"#, asked.number)).after(secs(1))
    });
    let by_session = |spec: &mut ostler_host::ServerSpec| spec.isolation = Isolation::Session;
    let world = TestHost::new().server_with("a", script, by_session).start().await;
    let ada = Caller::new("ada", "researcher");
    let callers = ["1", "2"].map(|session| ada.clone().in_session(session));
    for caller in &callers {
        assert!(!world.call_as(caller, "a", "work").await.unwrap().is_cached());
        assert!(world.call_as(caller, "a", "work").await.unwrap().is_cached());
    }
    let read = |caller| Request::new(caller, "resources/read", Params::resource_read("file:///x"));
    let [one, two] = callers.each_ref().map(|caller| world.host.send_to("a", read(caller)));
    let (one, two) = tokio::join!(one, two);
    assert_ne!(one.unwrap().body, two.unwrap().body, "each is read by its own process");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_found_a_server_just_before_it_was_removed_starts_nothing() {
    for isolation in [Isolation::Shared, Isolation::Caller] {
        let change = |spec: &mut ostler_host::ServerSpec| spec.isolation = isolation;
        let world = TestHost::new().server_with("a", slow(), change).start().await;
        let host = world.host.clone();
        // Rules are asked after the server is found and before its slot is.
        world.host.set_policy_hook(Some(Box::new(move |_, _, _| {
            let _ = pin!(host.remove("a")).poll(&mut Context::from_waker(Waker::noop()));
            Verdict::Allow
        })));
        world.call("a", "echo").await.unwrap_err();
        world.host.set_policy_hook(None);
        assert_eq!((world.server("a").connects(), world.host.process_count()), (0, 0), "{isolation:?}");
    }
}
