//! Server cards, through a daemon and without one.

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, Run};
use crate::http;

/// Returns a home whose server `fake` has this card.
fn home_with(card: &Value) -> Home {
    let home = Home::new();
    home.write("ostler.toml", &format!("[servers.fake]\ncommand = {:?}\ncard = \"card.json\"\n", fake_mcp()));
    home.write("card.json", &card.to_string());
    home
}

fn card() -> Value {
    json!({
        "name": "com.example/fake", "version": "7", "title": "Fake", "description": "Pretends.",
        "remotes": [{
            "type": "streamable-http", "url": "https://example.com/mcp",
            "supportedProtocolVersions": ["2026-07-28"],
            "headers": [{"name": "Authorization", "isSecret": true}],
        }],
    })
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
}

#[test]
fn check_warns_of_a_card_file_that_does_not_exist() {
    let home = Home::with_servers(&[("fake", &[])]);
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{config}card = \"card.json\"\n"));
    let run = home.run(&["check"]);
    assert_eq!(run.code, Some(0), "{run}");
    assert!(run.stderr.contains("card.json of `fake` can't be read: it does not exist (`card`)"), "{run}");
    home.write("card.json", "{}");
    assert!(!home.run(&["check"]).stderr.contains("card"), "it is there");
}

#[test]
fn a_card_is_shown_with_and_without_a_daemon() {
    let home = home_with(&card());
    let shown = |home: &Home| {
        for command in ["list", "status"] {
            let shown = json(&home.run(&[command, "--json"]));
            assert_eq!(shown["servers"][0]["card"]["title"], "Fake", "{command}");
        }
    };
    shown(&home);
    let alone = home.run(&["card", "fake"]);
    assert!(alone.stdout.starts_with("com.example/fake 7\n"), "{alone}");
    for line in [
        "  title:        Fake\n",
        "  description:  Pretends.\n",
        "  remote:       https://example.com/mcp (streamable-http), MCP 2026-07-28, headers Authorization\n",
        "so it is not compared\n",
    ] {
        assert!(alone.stdout.contains(line), "{line}{alone}");
    }
    assert_eq!((alone.code, alone.stderr.as_str()), (Some(0), ""));
    let daemon = Daemon::start(&home);
    // A card in a file needs no fetch, so it is there before the first request.
    shown(&home);
    assert_eq!(home.run(&["card", "fake"]).stdout, alone.stdout);
    let report = json(&home.run(&["card", "fake", "--json"]));
    assert_eq!((&report["card"]["version"], &report["compared"]), (&json!("7"), &json!(false)));
    let server = daemon.server("fake");
    assert_eq!((&server["state"], &server["card"]["title"]), (&json!("idle"), &json!("Fake")));
    assert_eq!(json(&home.run(&["status", "--json"]))["servers"][0]["card"]["name"], "com.example/fake");
    assert_eq!(json(&home.run(&["list", "--json"]))["servers"][0]["card"]["description"], "Pretends.");
    assert_eq!(daemon.ask("GET /api/v1/servers/fake/card", "").json()["card"], report["card"]);
}

#[test]
fn a_running_server_that_says_otherwise_is_warned_about() {
    let home = home_with(&card());
    let _daemon = Daemon::start(&home);
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
    let run = home.run(&["card", "fake"]);
    assert!(run.stderr.starts_with("warning: the card says "), "{run}");
    assert_eq!(run.code, Some(0), "{run}");
    let status = home.run(&["status"]);
    assert!(status.stdout.contains("fake: the card says version `7`"), "{status}");
}

#[test]
fn words_of_a_card_can_t_control_a_terminal() {
    let mut evil = card();
    evil["title"] = json!("\u{1b}]0;owned\u{7}");
    evil["description"] = json!("a\u{202e}b\u{9b}2J\nerror: no");
    evil["remotes"][0]["url"] = json!("https://\u{1b}[31m");
    let home = home_with(&evil);
    let run = home.run(&["card", "fake"]);
    assert_eq!(run.code, Some(0), "{run}");
    let is_plain = |c: char| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(run.stdout.chars().all(is_plain), "{run}");
    assert!(!run.stdout.contains("\nerror: no"), "{run}");
}

#[test]
fn a_card_that_can_t_be_read_is_told_with_a_hint_and_affects_nothing_else() {
    let home = home_with(&json!({"name": "\u{1b}[2J"}));
    for has_daemon in [false, true] {
        let _daemon = has_daemon.then(|| Daemon::start(&home));
        let run = home.run(&["card", "fake"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(6), ""), "{run}");
        assert!(run.stderr.starts_with("error: the card of server `fake` can't be read\n"), "{run}");
        assert!(
            run.stderr.contains("missing field `description`") || run.stderr.contains("missing field"),
            "{run}"
        );
        assert!(run.stderr.contains("  hint: correct the file, or set `card` of `fake`"), "{run}");
        let unknown = home.run(&["card", "fakr"]);
        assert_eq!(unknown.code, Some(5), "{unknown}");
        assert!(unknown.stderr.contains("did you mean `fake`?"), "{unknown}");
        assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
    }
}

#[test]
fn one_ostler_reads_the_cards_of_another() {
    let home = home_with(&card());
    let daemon = Daemon::start(&home);
    let port = daemon.port;
    let own = http::ask(port, "GET /mcp/server-card", &[], "");
    assert!(own.head.contains("application/mcp-server-card+json"), "{own:?}");
    let catalog = http::ask(port, "GET /.well-known/mcp/catalog.json", &[], "").json();
    assert_eq!(catalog["entries"][1]["url"], format!("{}/servers/fake/mcp/server-card", daemon.url()));
    assert_eq!(http::ask(port, "GET /servers/none/mcp/server-card", &[], "").status, 404);
    assert_eq!(http::ask(port, "GET /mcp/server-card", &["Host: evil.example"], "").status, 403);
    let other = Home::new();
    other.write("ostler.toml", &format!("[servers.far]\nurl = \"{}/servers/fake/mcp\"\n", daemon.url()));
    let run = other.run(&["card", "far"]);
    assert!(run.stdout.starts_with("dev.ostler/fake "), "{run}");
    assert!(!run.stdout.contains("Pretends."), "no text of a server that nobody has approved: {run}");
}
