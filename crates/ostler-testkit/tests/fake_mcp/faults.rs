//! Tools that misbehave.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{FakeMcpClient, eventually, stat_field, text_of};

#[test]
fn a_crash_before_the_answer_leaves_nothing() {
    let mut client = FakeMcpClient::legacy(&[]);
    client.send_call("crash", json!({}));
    client.expect_eof();
    assert_eq!(client.wait().code(), Some(1));
}

#[test]
fn a_crash_after_the_answer_leaves_all_of_it() {
    let mut client = FakeMcpClient::legacy(&[]);
    assert_eq!(client.text("crash", json!({"when": "after"})), "survived");
    client.expect_eof();
    assert_eq!(client.wait().code(), Some(1));
}

#[test]
fn a_crash_in_the_middle_leaves_half_a_line() {
    let mut client = FakeMcpClient::legacy(&[]);
    client.send_call("crash", json!({"when": "middle"}));
    let line = client.read_raw();
    assert!(line.starts_with(b"{\"jsonrpc\"") && !line.ends_with(b"\n"));
    assert!(serde_json::from_slice::<Value>(&line).is_err());
    assert_eq!(client.wait().code(), Some(1));
}

#[test]
fn a_crash_that_happens_once_spares_the_next_process() {
    let directory = tempdir().unwrap();
    let arguments = json!({"once": directory.path().join("crashed")});
    let mut first = FakeMcpClient::legacy(&[]);
    first.send_call("crash_safe", arguments.clone());
    first.expect_eof();
    assert_eq!(FakeMcpClient::legacy(&[]).text("crash_safe", arguments), "survived");
}

#[test]
fn earlier_answers_are_out_before_a_crash() {
    let mut client = FakeMcpClient::legacy(&[]);
    let call = |id: u64, tool: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}});
    client.send(&format!("{}\n{}", call(50, "pid"), call(51, "crash")));
    assert_eq!(client.read()["id"], 50);
    client.expect_eof();
}

#[test]
fn exit_ends_with_the_code_it_is_given() {
    let mut client = FakeMcpClient::legacy(&[]);
    client.send_call("exit", json!({"code": 42}));
    assert_eq!(client.wait().code(), Some(42));
}

#[test]
fn stderr_gets_every_byte_before_the_answer() {
    let mut client = FakeMcpClient::legacy(&[]);
    assert_eq!(client.text("stderr", json!({"bytes": 300_001})), "written");
    client.close_stdin();
    client.wait();
    assert_eq!(client.stderr().len(), 300_001);
}

#[test]
fn a_flood_comes_before_the_answer() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("flood_notifications", json!({"count": 5000}));
    for number in 1..=5000 {
        let notice = client.read();
        assert_eq!(notice["method"], "notifications/message");
        assert_eq!(notice["params"]["data"], format!("flood {number}"));
    }
    assert_eq!(client.read()["id"], id);
}

#[test]
fn a_huge_line_is_as_long_as_asked_and_proper_json() {
    let mut client = FakeMcpClient::legacy(&[]);
    for (place, head) in [
        ("first", r#"{"jsonrpc":"2.0","id":"#),
        ("last", r#"{"jsonrpc":"2.0","result":"#),
        ("none", r#"{"jsonrpc":"2.0","result":"#),
    ] {
        let id = client.send_call("huge_line", json!({"bytes": 1_000_000, "id": place}));
        let line = client.read_raw();
        assert_eq!(line.len(), 1_000_001, "{place}");
        assert!(line.starts_with(head.as_bytes()), "{place}");
        let answer: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(answer.get("id"), (place != "none").then_some(&json!(id)), "{place}");
    }
}

#[test]
fn a_huge_line_may_lack_its_end() {
    let mut client = FakeMcpClient::legacy(&[]);
    client.send_call("huge_line", json!({"bytes": 1000, "newline": false}));
    client.close_stdin();
    assert_eq!(client.read_raw().len(), 1000);
}

#[test]
fn garbage_comes_before_the_answer() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("garbage", json!({}));
    let mut rubbish = Vec::new();
    let answer = loop {
        let line = client.read_raw();
        match serde_json::from_slice::<Value>(&line) {
            Ok(answer) => break answer,
            Err(_) => rubbish.push(line),
        }
    };
    assert_eq!(answer["id"], id);
    assert!(rubbish.iter().any(|line| line == b"\n"), "a blank line");
    assert!(rubbish.iter().any(|line| line.starts_with(b"INFO")), "a log line");
    assert!(rubbish.iter().any(|line| std::str::from_utf8(line).is_err()), "invalid UTF-8");
    assert!(rubbish.iter().any(|line| line.starts_with(b"{")), "half a message");
}

#[test]
fn ids_come_back_twice_foreign_or_as_strings() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("twice", json!({}));
    assert_eq!((client.read()["id"].as_u64(), client.read()["id"].as_u64()), (Some(id), Some(id)));
    let id = client.send_call("foreign_id", json!({}));
    assert_ne!(client.read()["id"], id);
    assert_eq!(client.read()["id"], id);
    let id = client.send_call("string_id", json!({}));
    assert_eq!(client.read()["id"], id.to_string());
}

#[test]
fn a_stopped_process_answers_when_it_is_continued() {
    let mut client = FakeMcpClient::legacy(&[]);
    let id = client.send_call("stop_self", json!({}));
    eventually("the process is stopped", || stat_field(client.pid(), 0).as_deref() == Some("T"));
    client.signal(Signal::SIGCONT);
    let answer = client.read();
    assert_eq!(answer["id"], id);
    assert_eq!(text_of(&answer), "continued");
}

#[test]
fn a_hanging_call_holds_up_nobody_else() {
    let mut client = FakeMcpClient::legacy(&[]);
    let hanging = client.send_call("hang", json!({}));
    assert_eq!(client.text("text", json!({"text": "next"})), "next");
    client.cancel(hanging);
    assert_eq!(client.text("text", json!({"text": "still here"})), "still here");
}

#[test]
fn a_process_that_closed_stdout_lives_on() {
    let directory = tempdir().unwrap();
    let ledger = directory.path().join("ledger");
    let mut client = FakeMcpClient::legacy(&["--ledger", ledger.to_str().unwrap()]);
    client.send_call("close_stdout", json!({}));
    client.expect_eof();
    client.send_call("counter", json!({}));
    eventually("a later call is executed", || crate::client::read_lines(&ledger).len() == 2);
    assert!(client.is_running());
}
