//! `ostler prompts` and `ostler resources`.

use crate::daemon::Daemon;
use crate::home::Home;

#[test]
fn a_prompt_is_got_by_any_spelling_of_its_name() {
    let home = Home::with_servers(&[("fake", &[])]);
    insta::assert_snapshot!(home.run(&["prompts", "get", "fake__greet", "who=Ada"]));
    for name in ["fake.greet", "fake/greet", "greet"] {
        let run = home.run(&["prompts", "get", name]);
        assert_eq!((run.stdout.as_str(), run.code), ("user: Hello, world\n", Some(0)), "{run}");
    }
    let run = home.run(&["prompts", "get", "greet", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["messages"][0]["content"]["text"], "Hello, world");
    insta::assert_snapshot!(home.run(&["prompts", "get", "greeet"]));
    insta::assert_snapshot!(home.run(&["prompts", "get", "fake__nothing"]));
}

#[test]
fn a_resource_is_read_from_the_server_that_has_it() {
    let home = Home::with_servers(&[("fake", &[]), ("empty", &["--catalog", "empty.json"])]);
    home.write("empty.json", r#"{"tools": [], "prompts": [], "resources": [], "resourceTemplates": []}"#);
    let listed = home.run(&["resources", "fake", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let uri = json["resources"][0]["name"].as_str().unwrap();
    let run = home.run(&["resources", "read", uri]);
    assert_eq!((run.stdout.as_str(), run.code), ("static text", Some(0)), "{run}");
    let template = json["templates"][0]["name"].as_str().unwrap().replace("{id}", "seven");
    assert_eq!(home.run(&["resources", "read", &template]).stdout, "seven");
    let run = home.run(&["resources", "read", uri, "--out", "copy.txt"]);
    assert_eq!((run.code, home.lines("copy.txt")), (Some(0), vec!["static text".to_owned()]), "{run}");
    let run = home.run(&["resources", "read", uri, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["contents"][0]["uri"], uri);
    insta::assert_snapshot!(home.run(&["resources", "read", "gone://1"]));
    insta::assert_snapshot!(home.run(&["resources", "read", "gone://1", "--server", "fka"]));
}

#[test]
fn a_resource_that_two_servers_list_is_the_owners_as_over_mcp() {
    let home = Home::with_servers(&[("one", &[]), ("two", &[])]);
    let listed = home.run(&["resources", "one", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let uri = json["resources"][0]["name"].as_str().unwrap();
    let all: serde_json::Value = serde_json::from_str(&home.run(&["resources", "--json"]).stdout).unwrap();
    let rows = all["resources"].as_array().unwrap().iter().filter(|row| row["name"] == uri);
    assert_eq!(rows.map(|row| row["server"].as_str().unwrap()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(home.run(&["resources", "read", uri]).stdout, "static text");
    assert_eq!(home.run(&["resources", "read", uri, "--server", "two"]).stdout, "static text");
}

#[test]
fn servers_called_like_a_command_can_be_listed() {
    let home = Home::with_servers(&[("get", &[]), ("read", &[])]);
    assert!(home.run(&["prompts", "--server", "get"]).stdout.contains("get__greet"));
    assert!(home.run(&["resources", "--server", "read"]).stdout.contains("read"));
}

#[test]
fn a_role_that_may_not_reads_and_gets_nothing_and_the_audit_says_so() {
    let home = Home::with_servers(&[("fake", &[])]);
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{config}\n[roles.local]\nallow = [\"fake/echo\"]\n"));
    let daemon = Daemon::start(&home);
    for args in [&["prompts", "get", "fake__greet"][..], &["resources", "read", "fake://static"]] {
        let run = home.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(5), ""), "{run}");
    }
    drop(daemon);
    let denied = home.run(&["audit", "--denied", "--json"]).stdout;
    assert!(denied.contains("prompts/get") && denied.contains("resources/read"), "{denied}");
}

#[test]
fn a_server_that_is_named_is_the_only_one_that_is_asked() {
    for has_daemon in [false, true] {
        let home = Home::with_servers(&[("fake", &[])]);
        let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
        let other = r#"command = "sh"
args = ["-c", "echo begun >> started; exit 1"]
lazy = true"#;
        home.write("ostler.toml", &format!("{config}\n[servers.other]\n{other}\n"));
        let daemon = has_daemon.then(|| Daemon::start(&home));
        for (args, found) in [(["prompts", "fake"], "fake__greet"), (["resources", "fake"], "fake://static")]
        {
            let run = home.run(&args);
            assert!(run.code == Some(0) && run.stdout.contains(found), "{run}");
            assert!(!home.path("started").exists(), "{has_daemon} {args:?}: {:?}", home.lines("started"));
        }
        let run = home.run(&["prompts", "other"]);
        assert!(run.code != Some(0) && home.path("started").exists(), "the check would see a start: {run}");
        drop(daemon);
    }
}
