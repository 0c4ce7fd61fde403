//! A config in the working directory without the user's consent.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};

/// Returns a server whose start leaves the file `ran` behind.
fn config(extra: &str) -> String {
    let script = format!("touch ran; exec {} {extra}", fake_mcp().display());
    format!("[servers.fake]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n")
}

fn home_with(name: &str) -> Home {
    let home = Home::new();
    match name {
        "ostler.toml" => home.write(name, &config("")),
        _ => {
            let script = format!("touch ran; exec {}", fake_mcp().display());
            let servers = json!({"mcpServers": {"fake": {"command": "sh", "args": ["-c", script]}}});
            home.write(name, &servers.to_string());
        }
    }
    home
}

fn has_run(home: &Home) -> bool {
    home.path("ran").exists()
}

#[test]
fn no_command_starts_servers_of_a_found_config_before_it_is_trusted() {
    for name in ["ostler.toml", ".mcp.json"] {
        let home = home_with(name);
        let commands: [&[&str]; 11] = [
            &["tools"],
            &["tools", "fake"],
            &["call", "fake__echo"],
            &["stdio"],
            &["serve", "--listen", "127.0.0.1:0"],
            &["status", "--probe"],
            &["prompts"],
            &["resources"],
            &["lock"],
            &["lock", "--all"],
            &["tools", "--json"],
        ];
        for args in commands {
            let run = home.run_finding(args);
            assert_eq!(run.code, Some(5), "{run}");
            assert!(run.stderr.contains("is not trusted") && run.stderr.contains("ostler trust"), "{run}");
            assert!(run.stderr.contains("touch ran"), "it says what would run: {run}");
            assert!(!has_run(&home), "{run}");
        }
        assert!(home.run_finding(&["trust"]).stdout.contains("touch ran"));
        assert_eq!(home.run_finding(&["call", "fake__text", "text=hello"]).stdout, "hello\n");
        assert!(has_run(&home));
    }
}

#[test]
fn commands_that_start_nothing_need_no_trust() {
    let home = home_with("ostler.toml");
    for args in
        [&["check"][..], &["list"], &["explain", "local", "fake__echo"], &["status"], &["token", "list"]]
    {
        let run = home.run_finding(args);
        assert_eq!(run.code, Some(0), "{run}");
    }
    assert!(!has_run(&home));
    assert_eq!(
        Home::new().run_finding(&["call", "demo__add", "a=2", "b=40"]).code,
        Some(0),
        "the built-in server"
    );
}

#[test]
fn a_named_config_and_the_users_own_are_consent() {
    let home = Home::new();
    home.write("other/mcp.toml", &config(""));
    assert_eq!(home.run_finding(&["call", "fake__echo", "--config", "other/mcp.toml"]).code, Some(0));
    let home = Home::new();
    home.write(".config/ostler/ostler.toml", &config(""));
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(0));
}

#[test]
fn an_edit_of_commands_asks_again_and_an_edit_of_limits_does_not() {
    let home = home_with("ostler.toml");
    assert_eq!(home.run_finding(&["trust"]).code, Some(0));
    let call = || home.run_finding(&["call", "fake__echo"]);
    home.write("ostler.toml", &format!("{}call_timeout = \"30s\"\n[roles.ci]\nallow = []\n", config("")));
    assert_eq!(call().code, Some(0), "limits and roles run nothing");
    let edits = [
        config("--tools 1"),
        format!("{}env = {{ LD_PRELOAD = \"./evil.so\" }}\n", config("")),
        format!("{}cwd = \"/tmp\"\n", config("")),
        format!("{}isolation = \"workspace\"\nworkspace = \"/tmp\"\n", config("")),
        format!("{}[servers.more]\nurl = \"https://eve.example/mcp\"\n", config("")),
        format!("include = [\"more.toml\"]\n{}", config("")),
        format!("{}[relay]\nnats = \"nats://127.0.0.1:1\"\n", config("")),
        format!("listen = \"0.0.0.0:7777\"\n{}", config("")),
    ];
    home.write("more.toml", "[servers.more]\ncommand = \"sh\"\n");
    for edit in &edits {
        let _ = fs::remove_file(home.path("ran"));
        home.write("ostler.toml", edit);
        let run = call();
        assert_eq!(run.code, Some(5), "{edit}\n{run}");
        assert!(run.stderr.contains("has changed since it was trusted"), "{run}");
        assert!(!has_run(&home), "{edit}");
    }
    home.write("ostler.toml", &edits[5]);
    assert_eq!(home.run_finding(&["trust"]).code, Some(0));
    assert_eq!(call().code, Some(0));
    home.write("more.toml", "[servers.more]\ncommand = \"sh\"\nargs = [\"-x\"]\n");
    assert_eq!(call().code, Some(5), "an included file is part of it");
}

#[test]
fn trust_is_of_one_path_kept_private_and_can_be_taken_back() {
    let home = home_with("ostler.toml");
    home.write("copy/ostler.toml", &config(""));
    assert_eq!(home.run_finding(&["trust", "copy"]).code, Some(0));
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(5), "another path is another config");
    assert_eq!(home.run_finding(&["trust", "."]).code, Some(0));
    let mode = fs::metadata(home.path("state/ostler/trusted.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        home.run_finding(&["trust", "--list"]).stdout,
        "[HOME]/copy/ostler.toml\n[HOME]/ostler.toml\n"
    );
    assert_eq!(home.run_finding(&["trust", "--revoke"]).code, Some(0));
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(5));
    home.write("state/ostler/trusted.json", "spoilt");
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(5));
    assert_eq!(home.run_finding(&["trust", "--config", "ostler.toml"]).code, Some(0));
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(0));
    assert_eq!(Home::new().run_finding(&["trust"]).code, Some(3), "there is nothing to trust");
}

#[test]
fn trust_is_given_to_the_typed_path_and_to_no_other_config() {
    let home = home_with(".mcp.json");
    home.write("other.json", "{}");
    let listed = || home.run_finding(&["trust", "--list"]).stdout;
    for (path, said) in [
        ("other.json", "`other.json` is not a config that commands find by themselves; .mcp.json is"),
        ("nonexist", "there is no directory `nonexist`"),
        ("./typo/dir", "there is no directory `./typo/dir`"),
    ] {
        let run = home.run_finding(&["trust", path]);
        assert_eq!((run.code, listed().as_str()), (Some(2), ""), "{run}");
        assert!(run.stderr.contains(said) && run.stderr.contains("hint: "), "{run}");
    }
    let run = home.run_finding(&["trust", ".mcp.json"]);
    assert!(run.code == Some(0) && run.stdout.starts_with("trusted .mcp.json\n"), "{run}");
    for path in ["other.json", "nonexist"] {
        let run = home.run_finding(&["trust", "--revoke", path]);
        assert_eq!((run.code, listed().as_str()), (Some(2), "[HOME]/.mcp.json\n"), "{run}");
    }
    // A config that is gone can be revoked by its path.
    fs::remove_file(home.path(".mcp.json")).unwrap();
    let run = home.run_finding(&["trust", "--revoke", ".mcp.json"]);
    assert_eq!((run.code, listed().as_str()), (Some(0), ""), "{run}");
}

#[test]
fn a_running_daemon_applies_an_edit_of_commands_only_when_it_is_trusted() {
    let home = home_with("ostler.toml");
    assert_eq!(home.run_finding(&["trust"]).code, Some(0));
    let command = home.finding_command(&["serve", "--listen", "127.0.0.1:0", "--port-file", "port"]);
    let daemon = Daemon::spawn(&home, command);
    let last = || daemon.ask("GET /api/v1/config", "").json()["last_change"]["outcome"].clone();
    assert_eq!(home.run_finding(&["call", "fake__text", "text=hi"]).stdout, "hi\n");
    home.write(
        "ostler.toml",
        &format!(
            "{}[servers.evil]\ncommand = \"sh\"\nlazy = false\nargs = [\"-c\", \"touch evil\"]\n",
            config("")
        ),
    );
    until("the edit is seen", || last() == "untrusted");
    assert_eq!(daemon.server("evil")["name"], json!(null), "it is not hosted");
    let run = home.run_finding(&["reload"]);
    assert!(run.code == Some(5) && run.stderr.contains("ostler trust"), "{run}");
    let told = "warning: the config has changed and is not trusted, so the daemon runs the one before it";
    assert!(home.run_finding(&["status"]).stdout.contains(told));
    for command in ["tools", "list"] {
        let run = home.run_finding(&[command]);
        assert!(run.stderr.contains(told), "{run}");
    }
    let status: Value = serde_json::from_str(&home.run_finding(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["refused_change"]["outcome"], "untrusted", "{status}");
    let run = home.run_finding(&["call", "evil__x"]);
    assert!(run.stderr.contains("the config has changed and is not trusted"), "{run}");
    // The daemon runs the trusted servers, and a command that goes through it starts nothing else.
    assert_eq!(home.run_finding(&["call", "fake__echo"]).code, Some(0));
    assert!(!home.path("evil").exists());
    assert_eq!(home.run_finding(&["trust"]).code, Some(0));
    until("the trusted edit is applied", || last() == "applied" && home.path("evil").exists());
    assert!(!home.run_finding(&["status"]).stdout.contains("warning: the config has changed"));
    home.write("ostler.toml", "[servers");
    until("the broken edit is seen", || last() == "broken");
    assert!(
        home.run_finding(&["status"])
            .stdout
            .contains("can't be used, so the daemon runs the one before it: `ostler check`")
    );
}

#[test]
fn a_daemon_that_stdio_starts_applies_no_untrusted_edit_either() {
    let home = home_with("ostler.toml");
    assert_eq!(home.run_finding(&["trust"]).code, Some(0));
    let mut client = home.finding_command(&["stdio"]).stdin(Stdio::piped()).spawn().unwrap();
    until("the daemon comes up", || home.run_finding(&["reload"]).code == Some(0));
    home.write("ostler.toml", &format!("{}[servers.evil]\ncommand = \"sh\"\n", config("")));
    until("the edit is refused", || home.run_finding(&["reload"]).code == Some(5));
    assert!(!home.run_finding(&["list"]).stdout.contains("evil"));
    drop(client.stdin.take());
    client.wait().unwrap();
    let files = fs::read_dir(home.path(".local/state/ostler")).unwrap().map(|entry| entry.unwrap().path());
    let notes = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    let pid = notes.filter_map(|file| {
        let note: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        note["pid"].as_i64()
    });
    let pid = i32::try_from(pid.last().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).unwrap();
}

#[test]
fn a_terminal_is_asked_and_only_yes_is_consent() {
    for (answer, code) in [("n\n", 5), ("\n", 5), ("y\n", 0)] {
        let home = home_with("ostler.toml");
        // `script` gives the command a terminal of its own.
        let ostler = home.finding_command(&["call", "fake__echo"]);
        let line = format!("{} call fake__echo", ostler.get_program().display());
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(home.path(".")).env_clear();
        command.envs(ostler.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes()).unwrap();
        let run = home.finish(child);
        assert_eq!(run.code, Some(code), "{run}");
        assert!(run.stdout.contains("touch ran") && run.stdout.contains("[y/N]"), "{run}");
        assert_eq!(has_run(&home), code == 0);
    }
}
