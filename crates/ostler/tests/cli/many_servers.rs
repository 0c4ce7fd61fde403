//! Many servers, some of them broken, and many callers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;

fn table(name: &str, rest: &str) -> String {
    format!("[servers.{name}]\ncommand = {:?}\n{rest}\n", fake_mcp())
}

/// Returns the number of tools of a server in a list over all of them.
fn count(list: &Value, server: &str) -> usize {
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
    let prefix = format!("{server}__");
    tools.iter().filter(|tool| tool["name"].as_str().unwrap().starts_with(&prefix)).count()
}

#[test]
fn sick_servers_among_ten_spoil_neither_the_list_nor_its_deadline() {
    let home = Home::new();
    let mut config = String::from("[gateway]\nlist_patience = \"2s\"\n");
    config += &table("dead", "restart = { max = 0 }");
    config += &table("stuck", "");
    config += &table("slow", "args = [\"--slow-list\", \"600000\"]");
    config += &table("stillborn", "args = [\"--exit-at-start\", \"1:no licence\"]");
    let well: Vec<String> = (1..=6).map(|n| format!("well-{n}")).collect();
    config.extend(well.iter().map(|name| table(name, "")));
    home.write("ostler.toml", &config);
    let daemon = Daemon::start(&home);
    let list = || {
        let began = Instant::now();
        (mcp::ask(daemon.port, "tools/list", json!({})), began.elapsed())
    };

    let (before, _) = list();
    let whole = count(&before, "well-1");
    assert!(whole > 10, "{before}");
    assert_eq!((count(&before, "dead"), count(&before, "stuck")), (whole, whole));

    let pid = daemon.server("dead")["pid"].as_i64().unwrap();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    until("it is ejected", || daemon.server("dead")["state"] == "ejected");
    // It notifies of a changed list, and then sends nothing more.
    mcp::call(daemon.port, "stuck__list_changed", json!({"count": 1}));
    let pid = daemon.server("stuck")["pid"].as_i64().unwrap();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGSTOP).unwrap();

    let (after, took) = list();
    assert!(took < Duration::from_secs(10), "{took:?}");
    for name in well.iter().map(String::as_str).chain(["dead", "stuck"]) {
        assert_eq!(count(&after, name), whole, "{name}");
    }
    let unavailable = after["result"]["_meta"]["dev.ostler/unavailable"].as_array().unwrap();
    let sick: Vec<&str> = unavailable.iter().map(|entry| entry["server"].as_str().unwrap()).collect();
    assert!(sick.contains(&"slow") && sick.contains(&"stillborn"), "{sick:?}");
    assert!(!sick.iter().any(|name| name.starts_with("well")), "{sick:?}");
    let refused = mcp::call(daemon.port, "dead__echo", json!({}));
    assert_eq!(refused["error"]["data"]["state"], "ejected", "{refused}");
    let answered = mcp::call(daemon.port, "well-6__echo", json!({}));
    assert!(answered.get("result").is_some(), "{answered}");
}

#[test]
fn edits_under_64_callers_fail_no_call_and_leave_untouched_servers_alone() {
    let home = Home::new();
    let config = |rest: &str, more: &str| table("same", "") + &table("other", rest) + more;
    home.write("ostler.toml", &config("", ""));
    let daemon = Daemon::start(&home);
    mcp::call(daemon.port, "same__echo", json!({}));
    let identity = || {
        let server = daemon.server("same");
        (server["pid"].clone(), server["generation"].clone())
    };
    let before = identity();
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let last = || daemon.ask("GET /api/v1/config", "").json()["last_change"].clone();
    std::thread::scope(|scope| {
        for caller in 0..64 {
            let (is_over, calls, port) = (&is_over, &calls, daemon.port);
            scope.spawn(move || {
                let tool = if caller % 2 == 0 { "same__echo" } else { "other__echo" };
                while !is_over.load(Ordering::Relaxed) {
                    let answer = mcp::call(port, tool, json!({"caller": caller}));
                    let echoed = &answer["result"]["structuredContent"]["caller"];
                    assert_eq!(*echoed, caller, "{tool}: {answer}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Whatever the result of an edit, the callers end, so that the test does too.
        let _ended = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        let worked = || {
            let so_far = calls.load(Ordering::Relaxed);
            until("calls go on", || calls.load(Ordering::Relaxed) > so_far + 100);
        };
        for edit in 1..=5 {
            worked();
            home.write(
                "new.toml",
                &config(&format!("call_timeout = \"{edit}1s\""), &table(&format!("new-{edit}"), "")),
            );
            std::fs::rename(home.path("new.toml"), home.path("ostler.toml")).unwrap();
            until("the edit is applied", || last()["plan"]["added"] == json!([format!("new-{edit}")]));
            assert_eq!(last()["plan"]["untouched"], json!(["same"]));
        }
        worked();
        home.write("ostler.toml", &config("call_tmeout = \"1s\"", ""));
        until("the broken edit is seen", || last()["outcome"] == "broken");
        assert_eq!(daemon.ask("GET /api/v1/servers/new-5", "").status, 200, "it changes nothing");
        worked();
    });
    assert_eq!(identity(), before);
}

/// Guard that runs a function at the end, also of a test that fails.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
