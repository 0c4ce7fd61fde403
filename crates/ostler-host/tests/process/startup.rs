//! Startup: one start for all callers, within a limit, with the server's output in errors.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ostler_core::error::UnavailableState;
use ostler_core::server_name::ServerName;
use ostler_core::status::{ServerState, ServerStatus, StartStage};
use ostler_host::{CallArguments, Caller, Request, ServerSpec};
use ostler_testkit::{Proc, fake_mcp_spec, read_processes};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, code_of, none, process_of, unavailable};

#[tokio::test]
async fn a_hundred_first_calls_start_one_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake_mcp_spec("fake", &["--starts", &stage.path("starts")]).lazy()).await;
    assert_eq!(stage.status("fake").state, ServerState::Idle);
    let outcomes = stage.calls(100, "fake", "echo", |n| json!({ "n": n }).into()).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.as_ref().unwrap().text(), json!({ "n": n }).to_string());
    }
    assert_eq!(stage.lines("starts").len(), 1);
    stage.close().await;
}

#[tokio::test]
async fn callers_of_every_kind_share_one_process() {
    let stage = ProcessFixture::guarded();
    stage.spawn(fake_mcp_spec("fake", &["--starts", &stage.path("starts")]).lazy()).await;
    for n in 0..50 {
        let caller = Caller::new(format!("agent-{n}"), "local").in_session(format!("session-{n}"));
        stage.host.call(&caller, "fake", "pid", none()).await.unwrap();
    }
    assert_eq!(stage.lines("starts").len(), 1);
    stage.close().await;
}

fn failing(stage: &ProcessFixture, more: &[&str]) -> ServerSpec {
    let starts = stage.path("starts");
    let args = ["--exit-at-start", "3:looking around\nmissing TOKEN", "--starts", &starts];
    let mut spec = fake_mcp_spec("fake", &[&args[..], more].concat()).lazy();
    spec.restart.first_delay = Duration::from_millis(1);
    spec.restart.max_delay = Duration::from_millis(5);
    spec
}

#[tokio::test]
async fn fifty_calls_to_a_server_that_fails_at_start_are_not_fifty_starts() {
    let stage = ProcessFixture::guarded();
    stage.spawn(failing(&stage, &[])).await;
    while !stage.status("fake").ejected {
        for outcome in stage.calls(50, "fake", "echo", |_| none().into()).await {
            assert_eq!(code_of(&outcome), "server-unavailable");
        }
    }
    assert_eq!(stage.status("fake").starts_total, 6, "five restarts, and the failure after the last ejects");
    assert_eq!(stage.lines("starts").len(), 6);

    let error = stage.call("fake", "echo", none()).await.unwrap_err();
    let (state, cause) = unavailable(&error);
    assert_eq!(state, UnavailableState::Ejected);
    assert!(cause.contains("code 3") && cause.contains("missing TOKEN"), "{cause}");
    assert_eq!(stage.lines("starts").len(), 6, "an ejected server is left alone");
    let last = stage.status("fake").last_error.unwrap();
    assert_eq!(last.stderr, ["looking around", "missing TOKEN"]);
    stage.close().await;
}

#[tokio::test]
async fn an_exit_before_the_first_read_says_nothing_about_the_era() {
    let stage = ProcessFixture::guarded();
    stage.spawn(failing(&stage, &["--exit-at-start-times", "1"])).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "up"})).await, "up");
    assert_eq!(stage.status("fake").protocol.as_deref(), Some("2026-07-28"));
    stage.close().await;
}

#[tokio::test]
async fn a_reload_brings_back_an_ejected_server_whose_cause_is_gone() {
    let stage = ProcessFixture::guarded();
    stage.spawn(failing(&stage, &["--exit-at-start-times", "6"])).await;
    while !stage.status("fake").ejected {
        stage.call("fake", "echo", none()).await.unwrap_err();
    }
    stage.host.reload("fake").await.unwrap();
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    let status = stage.status("fake");
    assert_eq!((status.restarts.used, status.consecutive_failures, status.last_error), (0, 0, None));
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_hangs_at_start_is_given_up_and_leaves_nothing() {
    let stage = ProcessFixture::guarded();
    let strays = [stage.path("setsid"), stage.path("twice")];
    let args = ["--hang-at-start", "--fork-setsid", &strays[0], "--double-fork", &strays[1]];
    let mut spec = fake_mcp_spec("fake", &args);
    spec.start_timeout = Duration::from_millis(500);
    let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
    let (state, cause) = unavailable(&error);
    assert_eq!(state, UnavailableState::StartFailed);
    assert!(cause.contains("not answered the MCP handshake within "), "{cause}");
    assert_eq!(stage.host.status_of("fake").unwrap_err().code(), "unknown-server");
    let gone = || strays.iter().all(|file| read_processes(file.as_ref()).is_empty());
    ostler_testkit::eventually("strays of a failed start are gone", crate::fixture::LONG, gone).await;
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_is_busy_beyond_its_limit_is_started_once() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &["--start-work", "5000", "--starts", &stage.path("starts")]);
    spec.start_timeout = Duration::from_secs(3);
    stage.spawn(spec).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "here"})).await, "here");
    assert_eq!((stage.lines("starts").len(), stage.status("fake").last_error), (1, None));
    stage.close().await;
}

#[tokio::test]
async fn a_start_that_hangs_shows_its_process_and_its_words() {
    let stage = ProcessFixture::guarded();
    let script = "echo looking for the database >&2; exec sleep 1000";
    let name = ServerName::new("fake").unwrap();
    stage.spawn(ServerSpec::stdio(name, "sh").args(["-c", script]).lazy()).await;
    let call = stage.spawn_call("fake", "echo", none());
    let start = |status: &ServerStatus| status.start.clone().filter(|start| !start.stderr.is_empty());
    stage.until("fake", "has spoken", |status| start(status).is_some()).await;
    let status = stage.status("fake");
    let start = status.start.unwrap();
    assert_eq!((status.state, start.stage), (ServerState::Starting, StartStage::Starting));
    assert_eq!((start.pid, &start.stderr[..]), (status.pid, &["looking for the database".to_owned()][..]));
    let process = Proc::find(start.pid.unwrap()).unwrap();
    ostler_testkit::eventually("the script goes on", crate::fixture::LONG, || process.name() == "sleep")
        .await;
    let lines = stage.host.logs("fake").unwrap().read().unwrap();
    assert_eq!(lines.iter().map(|line| line.is_start).collect::<Vec<_>>(), [true, false]);
    assert_eq!(lines[1].text, "looking for the database");
    let request = Request::tool_call(&stage.me, "echo", CallArguments::none()).unwrap();
    let error = stage.host.send_to("fake", request.with_timeout(Duration::from_millis(1))).await.unwrap_err();
    let (state, cause) = unavailable(&error);
    assert_eq!(state, UnavailableState::Starting);
    assert!(cause.contains("looking for the database") && cause.contains("pid"), "{cause}");
    assert!(!error.render().contains("executed"), "{}", error.render());
    call.abort();
    stage.close().await;
}

/// Returns the status of a program named like a package manager that becomes `script`, once it is reported as an HTTP
/// server.
async fn http_server(stage: &ProcessFixture, script: &str) -> ServerStatus {
    let program = stage.path("npx");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut spec = ServerSpec::stdio(ServerName::new("web").unwrap(), &program).args(["web"]).lazy();
    // Signs are checked at an eighth of the limit, which is far away.
    (spec.start_timeout, spec.fetch_timeout) = (Duration::from_secs(16), Duration::from_secs(16));
    stage.spawn(spec).await;
    let call = stage.spawn_call("web", "echo", none());
    let is_told = |status: &ServerStatus| status.start.as_ref().is_some_and(|start| start.serves_http);
    stage.until("web", "seems to be an HTTP server", is_told).await;
    let status = stage.status("web");
    assert_eq!((status.state, status.starts_total, call.is_finished()), (ServerState::Starting, 1, false));
    call.abort();
    status
}

#[tokio::test]
async fn a_program_that_says_that_it_listens_for_http_is_told_of_while_it_starts() {
    let stage = ProcessFixture::guarded();
    // A program that waits for a login is not ended early.
    let script = "echo please authorize this client >&2\n\
                  echo MCP Streamable HTTP Server listening on port 3001 >&2\nexec sleep 1000";
    let start = http_server(&stage, script).await.start.unwrap();
    assert_eq!(start.stage, StartStage::Starting);
    assert!(start.to_string().starts_with("seems to be an HTTP server and has not spoken MCP"), "{start}");
    let hint = start.hint.unwrap();
    assert!(
        hint.contains("url = \"http://127.0.0.1:PORT/mcp\"") && hint.contains("`streamableHttp`"),
        "{hint}"
    );
    let request = Request::tool_call(&stage.me, "echo", CallArguments::none()).unwrap();
    let error = stage.host.send_to("web", request.with_timeout(Duration::from_millis(1))).await.unwrap_err();
    let (state, cause) = unavailable(&error);
    assert_eq!(state, UnavailableState::Starting);
    assert!(cause.contains("seems to be an HTTP server"), "{cause}");
    assert!(error.render().contains(&hint), "{}", error.render());
    stage.close().await;
}

#[tokio::test]
async fn a_program_that_listens_on_a_port_and_says_nothing_is_told_of_with_the_port() {
    let stage = ProcessFixture::guarded();
    let listen = "import socket, time; s = socket.create_server((\"127.0.0.1\", 0)); \
                  open(\"port\", \"w\").write(str(s.getsockname()[1])); time.sleep(1000)";
    let script = format!("cd {}\nexec python3 -c '{listen}'", stage.path(""));
    let start = http_server(&stage, &script).await.start.unwrap();
    let port = &stage.lines("port")[0];
    assert!(start.hint.unwrap().contains(&format!("http://127.0.0.1:{port}/mcp")), "port {port}");
    stage.close().await;
}

/// Makes a program named like a package manager with the body of a script.
fn npx(stage: &ProcessFixture, body: &str) -> String {
    script(stage, "npx", &format!("#!/bin/sh\n{body}\n"))
}

#[tokio::test]
async fn a_program_that_says_that_it_listens_for_http_is_ended_early_and_tried_once() {
    let stage = ProcessFixture::guarded();
    let program = npx(&stage, "echo MCP Streamable HTTP Server listening on port 3001 >&2\nexec sleep 1000");
    let mut spec = ServerSpec::stdio(ServerName::new("web").unwrap(), &program).args(["web"]).lazy();
    // Far longer than the test may take.
    (spec.start_timeout, spec.fetch_timeout) = (Duration::from_secs(600), Duration::from_secs(600));
    spec.call_timeout = Duration::from_secs(600);
    stage.spawn(spec).await;
    let error = stage.spawn_call("web", "echo", none()).await.unwrap().unwrap_err();
    let (state, cause) = unavailable(&error);
    assert_eq!(state, UnavailableState::CannotStart);
    assert!(cause.starts_with("it serves HTTP in place of MCP on stdout"), "{cause}");
    assert!(error.render().contains("`streamableHttp`"), "{}", error.render());
    assert_eq!(stage.status("web").starts_total, 1);
    stage.close().await;
}

#[tokio::test]
async fn a_download_turn_ends_as_soon_as_the_program_itself_speaks_or_listens() {
    let listen = "exec python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 0)); time.sleep(1000)'";
    let bodies =
        ["echo looking for the database >&2\nexec sleep 1000", "echo hello\nexec sleep 1000", listen];
    for body in bodies {
        let stage = ProcessFixture::guarded();
        let server = ostler_testkit::fake_mcp();
        let body =
            format!("[ $1 = good ] && exec {}\necho npm notice new version >&2\n{body}", server.display());
        let program = npx(&stage, &body);
        for name in ["slow", "good"] {
            let spec = ServerSpec::stdio(ServerName::new(name).unwrap(), &program).args([name]).lazy();
            stage.spawn(spec).await;
        }
        let slow = stage.spawn_call("slow", "echo", none());
        stage.until("slow", "has begun", |status| status.pid.is_some()).await;
        stage.spawn_call("good", "echo", none()).await.unwrap().unwrap();
        let status = stage.status("slow");
        assert_eq!((status.state, status.starts_total), (ServerState::Starting, 1), "{body}");
        assert_eq!(status.start.unwrap().stage, StartStage::Starting, "{body}");
        slow.abort();
        stage.close().await;
    }
}

/// Makes a program named like a package manager that runs for a while, reports that, and becomes a server.
fn package_manager(stage: &ProcessFixture) -> String {
    let (program, log) = (stage.path("npx"), stage.path("log"));
    let server = ostler_testkit::fake_mcp();
    let script = format!(
        "#!/bin/sh\necho begin >>{log}\necho npm http fetch GET 200 $1 >&2\nsleep 1\necho end >>{log}\nexec {} \n",
        server.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

#[tokio::test]
async fn first_downloads_of_a_package_manager_come_one_after_the_other() {
    let stage = ProcessFixture::guarded();
    let program = package_manager(&stage);
    for name in ["a", "b", "c"] {
        let spec = ServerSpec::stdio(ServerName::new(name).unwrap(), &program).args([name]).lazy();
        stage.spawn(spec).await;
    }
    let calls: Vec<_> = ["a", "b", "c"].map(|name| stage.spawn_call(name, "echo", none())).into();
    let states = || ["a", "b", "c"].map(|name| stage.status(name).state);
    ostler_testkit::eventually("all are being fetched or wait for that", LONG, || {
        states() == [ServerState::Fetching; 3]
    })
    .await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(stage.lines("log"), ["begin", "end", "begin", "end", "begin", "end"]);
    // A package that started once is in the cache, and no start waits for it.
    for name in ["a", "b", "c"] {
        stage.host.stop(name).await.unwrap();
    }
    let (a, b, c) = tokio::join!(stage.host.start("a"), stage.host.start("b"), stage.host.start("c"));
    [a, b, c].into_iter().for_each(Result::unwrap);
    assert_eq!(stage.lines("log").len(), 12);
    stage.close().await;
}

#[tokio::test]
async fn a_server_that_hangs_at_start_does_not_keep_others_from_being_registered() {
    let stage = ProcessFixture::guarded();
    let hanging = {
        let (host, me) = (stage.host.clone(), stage.me.clone());
        let spec = fake_mcp_spec("hanging", &["--hang-at-start", "--starts", &stage.path("starts")]);
        tokio::spawn(async move { host.spawn(&me, spec).await })
    };
    stage.until_lines("starts", 1).await;
    stage.spawn_fake("fine", &[]).await;
    assert_eq!(stage.text("fine", "text", json!({"text": "here"})).await, "here");
    assert!(!hanging.is_finished());
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    stage.close().await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named_with_the_reason() {
    let stage = ProcessFixture::guarded();
    let plain = stage.path("plain-file");
    std::fs::write(&plain, "no program").unwrap();
    std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    let mut elsewhere = fake_mcp_spec("fake", &[]);
    process_of(&mut elsewhere).cwd = Some(stage.file("no-such-folder"));
    let spec_of = |program: &str| ServerSpec::stdio(elsewhere.name.clone(), program);
    let table = [
        (spec_of("no-such-program-anywhere"), vec!["`no-such-program-anywhere`", "was not found"]),
        (spec_of(&plain), vec!["plain-file", "not marked as executable"]),
        (elsewhere.clone(), vec!["working directory", "no-such-folder"]),
    ];
    for (spec, words) in table {
        let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
        let (state, cause) = unavailable(&error);
        assert_eq!(state, UnavailableState::CannotStart);
        for word in words {
            assert!(cause.contains(word), "{word:?} is not in {cause:?}");
        }
    }
    stage.close().await;
}

#[tokio::test]
async fn what_had_begun_to_start_is_gone_when_a_stop_or_a_shutdown_returns() {
    for stage in [ProcessFixture::guarded(), ProcessFixture::unguarded()] {
        for (starts, is_shutdown) in [("first", false), ("second", true)] {
            let (file, deaf) = (stage.path(starts), ["--hang-at-start", "--ignore-sigterm"]);
            let args = [&deaf[..], &["--ignore-stdin-close", "--starts", &file]].concat();
            stage.spawn(fake_mcp_spec(starts, &args).lazy()).await;
            let call = stage.spawn_call(starts, "echo", none());
            stage.until_lines(starts, 1).await;
            let process = Proc::find(stage.lines(starts)[0].parse().unwrap()).unwrap();
            assert_eq!(stage.host.process_count(), 1);
            match is_shutdown {
                true => assert!(stage.host.shutdown().await),
                false => stage.host.stop(starts).await.unwrap(),
            }
            assert!(process.is_reaped());
            assert_eq!(stage.host.process_count(), 0);
            assert_eq!(code_of(&call.await.unwrap()), "server-unavailable");
        }
        stage.close().await;
    }
}

/// Makes a program from a script.
fn script(stage: &ProcessFixture, name: &str, text: &str) -> String {
    let path = stage.file(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn what_only_a_change_removes_is_tried_once_and_is_the_headline() {
    for stage in [ProcessFixture::guarded(), ProcessFixture::unguarded()] {
        let file = stage.file("no-program");
        std::fs::write(&file, "").unwrap();
        let starts = stage.path("starts");
        let path = std::env::var("PATH").unwrap();
        let table = [
            ("no-such-program".to_owned(), "program `no-such-program` was not found".to_owned()),
            ("/no/such/program".to_owned(), "program `/no/such/program` was not found".to_owned()),
            (file.display().to_string(), "can't be executed: it is not marked as executable".to_owned()),
            (
                script(&stage, "odd", "#!/no/such/interpreter\n"),
                "the interpreter in its first line does not exist".to_owned(),
            ),
            (
                script(
                    &stage,
                    "usage",
                    &format!("#!/bin/sh\necho x >> {starts}\necho 'usage: it DIR' >&2\nexit 2\n"),
                ),
                "it printed its usage and ended (exit code 2), \"usage: it DIR\"".to_owned(),
            ),
        ];
        for (command, cause) in table {
            stage.spawn(ServerSpec::stdio(ServerName::new("fake").unwrap(), command).lazy()).await;
            let error = stage.call("fake", "echo", none()).await.unwrap_err();
            assert_eq!(unavailable(&error).0, UnavailableState::CannotStart);
            let said = error.to_string();
            assert!(said.starts_with("server `fake` can't be used: ") && said.contains(&cause), "{said}");
            let below = error.cause().unwrap();
            assert!(below.contains("it is not tried again for "), "{below}");
            assert_eq!(
                below.starts_with(&format!("PATH is {path}; ")),
                said.contains("no-such-program"),
                "{below}"
            );
            let status = stage.status("fake");
            assert_eq!((status.state, status.ejected, status.starts_total), (ServerState::Ejected, true, 1));
            assert!(status.retry_after_ms.is_some_and(|wait| (1..=60_000).contains(&wait)));
            stage.call("fake", "echo", none()).await.unwrap_err();
            assert_eq!(stage.status("fake").starts_total, 1);
            stage.host.remove("fake").await.unwrap();
        }
        assert_eq!(stage.lines("starts").len(), 1);
        stage.close().await;
    }
}

#[tokio::test]
async fn a_program_that_is_installed_later_is_found_without_an_operator() {
    let stage = ProcessFixture::guarded();
    let program = stage.file("later");
    let name = ServerName::new("fake").unwrap();
    let mut spec = ServerSpec::stdio(name, program.display().to_string()).lazy();
    spec.restart.readmit_after = Some(Duration::from_millis(20));
    stage.spawn(spec).await;
    stage.call("fake", "echo", none()).await.unwrap_err();
    let fake = ostler_testkit::fake_mcp().display().to_string();
    script(&stage, "later", &format!("#!/bin/sh\nexec '{fake}'\n"));
    let found = async {
        while stage.call("fake", "echo", none()).await.is_err() {
            let wait = stage.status("fake").retry_after_ms.unwrap_or(1);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    };
    tokio::time::timeout(LONG, found).await.unwrap();
    assert!(stage.status("fake").starts_total >= 2);
    stage.close().await;
}
