//! Processes that ignore signals, and strays that they leave behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::tempdir;

use crate::client::{FakeMcpClient, StrayProcess, eventually, read_lines, stat_field};

#[test]
fn sigterm_ends_the_plain_server_and_not_the_stubborn_one() {
    let mut plain = FakeMcpClient::legacy(&[]);
    plain.signal(Signal::SIGTERM);
    assert_eq!(plain.wait().signal(), Some(Signal::SIGTERM as i32));

    let mut stubborn = FakeMcpClient::legacy(&["--ignore-sigterm"]);
    stubborn.signal(Signal::SIGTERM);
    assert_eq!(stubborn.text("text", json!({"text": "here"})), "here");
}

#[test]
fn a_closed_stdin_ends_the_plain_server_and_not_the_stubborn_one() {
    let mut plain = FakeMcpClient::legacy(&[]);
    plain.send_call("sleep", json!({"ms": 60_000}));
    plain.close_stdin();
    plain.expect_eof();
    assert_eq!(plain.wait().code(), Some(0));

    let mut stubborn = FakeMcpClient::legacy(&["--ignore-stdin-close"]);
    let id = stubborn.send_call("sleep", json!({"ms": 100}));
    stubborn.close_stdin();
    assert_eq!(stubborn.read()["id"], id);
    assert!(stubborn.is_running());
}

#[test]
fn a_server_that_stops_reading_still_finishes_what_it_read() {
    let directory = tempdir().unwrap();
    let requests = directory.path().join("requests");
    let mut client =
        FakeMcpClient::legacy(&["--no-read-after", "2", "--requests", requests.to_str().unwrap()]);
    let last = client.send_call("sleep", json!({"ms": 200}));
    client.send_call("pid", json!({}));
    assert_eq!(client.read()["id"], last);
    assert_eq!(read_lines(&requests), ["initialize\t", "tools/call\tsleep"]);
    assert!(client.is_running());
}

#[test]
fn detached_strays_survive_their_server_and_are_deaf_to_polite_signals() {
    for switch in ["--fork-setsid", "--double-fork", "--clear-env-child"] {
        let directory = tempdir().unwrap();
        let file = directory.path().join("pid");
        let client = FakeMcpClient::legacy(&[switch, file.to_str().unwrap()]);
        let stray = StrayProcess::read_from(&file);
        assert_eq!(stray.stat_field(3), stray.0.to_string(), "{switch}: a session of its own");
        let is_child = stray.stat_field(1) == client.pid().to_string();
        assert_eq!(is_child, switch != "--double-fork", "{switch}: its parent");
        let environment = fs::read(format!("/proc/{}/environ", stray.0)).unwrap();
        assert_eq!(environment.is_empty(), switch == "--clear-env-child", "{switch}: its environment");
        let stdout = fs::read_link(format!("/proc/{}/fd/1", stray.0)).unwrap();
        assert_eq!(stdout.to_str(), Some("/dev/null"), "{switch}: no stdio");

        assert!(stray.ignores(Signal::SIGTERM) && stray.ignores(Signal::SIGHUP), "{switch}: deaf");

        drop(client);
        assert_ne!(stray.stat_field(0), "Z", "{switch}: alive after its server");
        let pid = stray.0;
        drop(stray);
        eventually("the stray is dead", || stat_field(pid, 0).is_none_or(|state| state == "Z"));
    }
}

#[test]
fn a_child_that_holds_stdio_keeps_the_pipes_open() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("pid");
    let client = FakeMcpClient::legacy(&["--fork-holding-stdio", file.to_str().unwrap()]);
    let stray = StrayProcess::read_from(&file);
    for fd in 0..=2 {
        let link = |pid: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!(link(stray.0), link(client.pid()), "descriptor {fd}");
    }
    assert_ne!(stray.stat_field(3), stray.0.to_string(), "the server's session");
    assert!(!stray.ignores(Signal::SIGTERM));
}

#[test]
fn several_strays_can_be_left_by_one_server() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("pids");
    let path = file.to_str().unwrap();
    let _client = FakeMcpClient::legacy(&["--fork-setsid", path, "--double-fork", path, "--ignore-sigterm"]);
    let strays: Vec<StrayProcess> =
        read_lines(&file).iter().map(|pid| StrayProcess(pid.parse().unwrap())).collect();
    assert_eq!(strays.len(), 2);
    assert!(strays.iter().all(|stray| stat_field(stray.0, 0).is_some()));
}
