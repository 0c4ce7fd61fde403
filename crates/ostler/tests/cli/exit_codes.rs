//! Exit codes, each reached by a real command.

use std::fs::File;
use std::process::Stdio;

use crate::home::Home;

#[test]
fn every_exit_code_is_reached() {
    let endless: &[&str] = &["--page-size", "2", "--repeat-cursor"];
    let home =
        Home::with_servers(&[("fake", &[]), ("broken", &["--exit-at-start", "1"]), ("endless", endless)]);
    home.write("wrong.toml", "nonsense = 1\n");
    let table: [(i32, &[&str]); 11] = [
        (0, &["call", "fake__echo"]),
        (2, &["call", "fake__echo", "novalue"]),
        (2, &["call", "fake__text", "text:=7"]),
        (2, &["nothing"]),
        (3, &["tools", "--config", "wrong.toml"]),
        (5, &["call", "fake__nothing"]),
        (6, &["call", "broken__echo"]),
        (6, &["call", "endless__echo"]),
        (7, &["call", "fake__fail"]),
        (8, &["call", "fake__exit", "code=1"]),
        (8, &["call", "fake__hang", "--timeout", "200ms"]),
    ];
    for (code, args) in table {
        let run = home.run(args);
        assert_eq!(run.code, Some(code), "{run}");
        assert_eq!(run.stderr.is_empty(), code == 0, "{run}");
    }
}

#[test]
fn with_json_every_error_is_a_document_on_stdout() {
    let home = Home::with_servers(&[("fake", &[]), ("broken", &["--exit-at-start", "1"])]);
    home.write("wrong.toml", "nonsense = 1\n");
    let table: [(i32, &str, &[&str]); 16] = [
        (2, "usage", &["call", "fake__text", "text:=", "--json"]),
        (2, "usage", &["tools", "--json", "--fulll"]),
        (2, "usage", &["nothing", "--json"]),
        (3, "config-invalid", &["tools", "--json", "--config", "wrong.toml"]),
        (3, "config-unreadable", &["list", "--json", "--config", "gone.toml"]),
        (4, "daemon-unreachable", &["status", "--json", "--daemon", "http://127.0.0.1:1"]),
        (5, "unknown-tool", &["call", "fake__nothing", "--json"]),
        (5, "unknown-tool", &["tools", "fake__nothing", "--json"]),
        (5, "unknown-server", &["call", "gone__nothing", "--json"]),
        (5, "unknown-server", &["prompts", "gone", "--json"]),
        (5, "unknown-server", &["status", "gone", "--json"]),
        (5, "unknown-server", &["card", "gone", "--json"]),
        (6, "card-unreadable", &["card", "fake", "--json"]),
        (6, "server-unavailable", &["call", "broken__echo", "--json"]),
        (7, "upstream-error", &["call", "fake__rpc_error", "code=-32000", "message=no", "--json"]),
        (8, "outcome-unknown", &["call", "fake__exit", "code=1", "--json"]),
    ];
    for (exit, code, args) in table {
        let run = home.run(args);
        let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run}"));
        let error = &json["error"];
        assert_eq!(
            (&error["code"], &error["exit"], run.code),
            (&code.into(), &exit.into(), Some(exit)),
            "{run}"
        );
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{run}");
        assert!(!run.stderr.is_empty(), "people are told too: {run}");
    }
    insta::assert_snapshot!(home.run(&["call", "fake.ehco", "--json"]));
    insta::assert_snapshot!(home.run(&["tools", "--jsn", "--json"]));
}

#[test]
fn a_result_or_a_list_in_json_is_followed_by_no_second_document() {
    let home = Home::with_servers(&[("fake", &[]), ("broken", &["--exit-at-start", "1"])]);
    let table: [(i32, &[&str]); 4] = [
        (7, &["call", "fake__fail", "--json"]),
        (6, &["tools", "--json"]),
        (6, &["prompts", "--json"]),
        (6, &["status", "--probe", "--json"]),
    ];
    for (exit, args) in table {
        let run = home.run(args);
        let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run}"));
        assert_eq!((run.code, json.get("error")), (Some(exit), None), "{run}");
    }
}

#[test]
fn a_command_fails_if_one_server_failed_and_prints_what_the_others_have() {
    let home = Home::with_servers(&[("fake", &[]), ("broken", &["--exit-at-start", "1"])]);
    for args in [&["tools"][..], &["tools", "*echo"], &["resources"], &["prompts"], &["status", "--probe"]] {
        let run = home.run(args);
        assert_eq!(run.code, Some(6), "{run}");
        assert!(run.stdout.contains("fake"), "{run}");
        assert!(run.stderr.contains("1 of 2 servers could not be used"), "{run}");
    }
    let run = home.run(&["tools", "fake__*"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "the broken one was not asked for: {run}");
}

#[test]
fn output_that_can_not_be_written_is_an_error() {
    let home = Home::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = home.command(&["schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: the output could not be written:"), "{said}");
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let home = Home::with_servers(&[("fake", &["--tools", "2000"])]);
    for args in [&["schema"][..], &["tools", "fake", "--json"], &["call", "fake__blob", "size=1000000"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home.command(args).stdout(Stdio::from(writer)).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}

#[test]
fn only_the_verbose_see_the_log() {
    let home = Home::with_servers(&[("fake", &["--bad-tool"])]);
    assert_eq!(home.run(&["tools", "fake"]).stderr, "");
    let said = home.run(&["tools", "fake", "-v"]).stderr;
    assert!(said.contains("a tool was left out"), "{said}");
}

/// Runs every command with a config that is missing or with invalid arguments.
#[test]
fn with_json_every_command_tells_its_failure_as_one_document() {
    let home = Home::new();
    let commands: [&[&str]; 22] = [
        &["call", "x__y"],
        &["tools"],
        &["prompts"],
        &["prompts", "get", "x__y"],
        &["resources"],
        &["resources", "read", "x://y"],
        &["list"],
        &["status"],
        &["status", "--probe"],
        &["warm"],
        &["logs"],
        &["check"],
        &["lock"],
        &["diff"],
        &["approve", "x"],
        &["explain", "local", "x__y"],
        &["token", "revoke", "nobody"],
        &["token", "create", "--name", "x", "--role", "y z"],
        &["audit", "--since", "yesterday-ish"],
        &["trust"],
        &["start", "x"],
        &["reload"],
    ];
    for words in commands {
        let run = home.run(&[words, &["--json", "--config", "gone.toml"]].concat());
        assert_ne!(run.code, Some(0), "{run}");
        let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run}"));
        let error = &json["error"];
        assert_eq!(error["exit"], run.code.unwrap(), "{run}");
        assert!(["code", "message"].iter().all(|key| error[key].is_string()), "{run}");
        assert!(!run.stderr.is_empty(), "people are told too: {run}");
    }
}
