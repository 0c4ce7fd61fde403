//! Recorded tools: their answers and their lines in the file of executions.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{FakeMcpClient, eventually, read_lines, text_of};

/// Returns the lines of the file that record a begin or an end.
fn records_of(file: &Path, what: &str) -> Vec<Value> {
    let lines = read_lines(file).into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    lines.filter(|line| line["what"] == what).collect()
}

#[test]
fn a_deed_answers_its_number_and_the_stamp_of_its_execution() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("executions");
    let mut client = FakeMcpClient::legacy(&["--name", "a", "--executions", file.to_str().unwrap()]);
    let answer = client.call("deed", json!({"nonce": 42, "ms": 20}));
    let (begun, ended) = (records_of(&file, "begin"), records_of(&file, "end"));
    assert_eq!((begun.len(), ended.len()), (1, 1));
    let proof = &answer["result"]["structuredContent"];
    assert_eq!(proof, &json!({"nonce": 42, "stamp": begun[0]["stamp"]}));
    assert_eq!(begun[0]["stamp"], ended[0]["stamp"]);
    assert_eq!(begun[0]["call"], 42);
    assert_eq!(begun[0]["server"], "a");
    assert_eq!(begun[0]["pid"], client.pid());
    assert_eq!(ended[0]["has_failed"], false);
    let took = ended[0]["at"].as_u64().unwrap() - begun[0]["at"].as_u64().unwrap();
    assert!(took >= 20_000, "{took} µs");
    assert_ne!(text_of(&answer), text_of(&client.call("misdeed", json!({"nonce": 42}))));
}

#[test]
fn what_is_cut_short_has_begun_and_not_ended() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("executions");
    let mut client = FakeMcpClient::legacy(&["--executions", file.to_str().unwrap()]);
    let cancelled = client.send_call("deed", json!({"nonce": 1, "ms": 50}));
    client.cancel(cancelled);
    client.call("deed", json!({"nonce": 2, "ms": 100}));
    client.send_call("deed", json!({"nonce": 3, "ms": 60_000}));
    eventually("the third begins", || records_of(&file, "begin").len() == 3);
    drop(client);
    let calls: Vec<_> = records_of(&file, "begin").into_iter().map(|line| line["call"].clone()).collect();
    assert_eq!(calls, [1, 2, 3]);
    assert_eq!(records_of(&file, "end").len(), 1);
}

#[test]
fn the_sick_tool_is_not_answered_while_its_file_is_there() {
    let directory = tempdir().unwrap();
    let (file, sick) = (directory.path().join("executions"), directory.path().join("sick"));
    std::fs::write(&sick, "").unwrap();
    let switches = ["--executions", file.to_str().unwrap(), "--sick-while", sick.to_str().unwrap()];
    let mut client = FakeMcpClient::legacy(&switches);
    client.send_call("sick", json!({"nonce": 1, "ms": 5}));
    eventually("the first ends", || records_of(&file, "end").len() == 1);
    std::fs::remove_file(&sick).unwrap();
    assert_eq!(client.call("sick", json!({"nonce": 2}))["result"]["structuredContent"]["nonce"], 2);
    let failed: Vec<_> =
        records_of(&file, "end").into_iter().map(|line| line["has_failed"].clone()).collect();
    assert_eq!(failed, [true, false]);
}

#[test]
fn a_secret_may_be_remembered_for_its_caller_and_is_new_each_time() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("executions");
    let mut client = FakeMcpClient::legacy(&["--executions", file.to_str().unwrap()]);
    let first = client.call("secret", json!({"ttl_ms": 500}));
    let second = client.call("secret", json!({"ttl_ms": 500}));
    assert_eq!(first["result"]["ttlMs"], 500);
    assert_eq!(first["result"]["cacheScope"], "private");
    assert_ne!(first["result"]["structuredContent"]["stamp"], second["result"]["structuredContent"]["stamp"]);
    let begun = records_of(&file, "begin");
    assert_eq!((&begun[0]["ttl_ms"], &begun[0]["call"]), (&json!(500), &Value::Null));
}
