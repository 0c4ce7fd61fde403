//! Requests that name two items: a rule that reads one of them, and a cache, a record or a server that reads the other,
//! would let a caller use a forbidden item.

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::client::{AttackClient, AttackClientEra, PipeAttackClient, entrances, modern_meta, token};
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::site::{Setup, worker};

const CATALOG: &str = r#"{"resources": [
    {"uri": "docs://public", "name": "public"},
    {"uri": "docs://board-only", "name": "board"},
    {"uri": "docs://other", "name": "other"}
]}"#;

/// Returns a home with a server whose answers are cached for all callers, and two roles: one may not read a resource
/// that the board reads.
fn home() -> Home {
    let home = Home::new();
    home.write("catalog.json", CATALOG);
    let config = format!(
        r#"
[servers.fake]
command = {:?}
args = ["--catalog", "catalog.json", "--read-ttl", "600000:public", "--frames", "frames"]
[roles.board]
allow = ["*"]
[roles.guest]
allow = ["*"]
deny = ["fake/resource:docs://board-only"]
"#,
        fake_mcp()
    );
    home.write("ostler.toml", &config);
    home
}

/// Returns the subjects of a principal's requests in the audit.
fn recorded(home: &Home, name: &str) -> Vec<String> {
    let run = home.run(&["audit", "--json", "--limit", "1000"]);
    let events = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_of = |event: &Value| event["principal"].as_str().is_some_and(|principal| principal.contains(name));
    events
        .filter(is_of)
        .map(|event| {
            let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}", word("action"), word("subject"))
        })
        .collect()
}

fn read(client: &mut dyn AttackClient, uri: &str) -> String {
    let answer = client.ask("resources/read", json!({"uri": uri}));
    answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_second_name_reads_poisons_and_forges_nothing() {
    let home = home();
    let (board, guest) = (token(&home, "ann", "board"), token(&home, "eve", "guest"));
    let daemon = Daemon::start(&home);
    let mut ann = entrances(&daemon, "fake", Some(&board)).remove(0).1;
    assert_eq!(read(&mut *ann, "docs://board-only"), "fake-mcp read docs://board-only");
    for (entrance, mut eve) in entrances(&daemon, "fake", Some(&guest)) {
        let stolen = eve.ask("resources/read", json!({"uri": "docs://public", "name": "docs://board-only"}));
        assert_eq!(stolen["error"]["code"], -32602, "{entrance}: {stolen}");
        let poison = eve.ask("resources/read", json!({"uri": "docs://public", "name": "docs://other"}));
        assert_eq!(poison["error"]["code"], -32602, "{entrance}: {poison}");
        let message = poison["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("`name`") && message.contains("resources/read"), "{entrance}: {poison}");
        assert_eq!(read(&mut *eve, "docs://public"), "fake-mcp read docs://public", "{entrance}");
    }
    assert_eq!(read(&mut *ann, "docs://other"), "fake-mcp read docs://other");
    until("the reads are on record", || {
        recorded(&home, "eve").iter().filter(|row| *row == "resources/read docs://public").count() >= 6
    });
    let forged = ["resources/read docs://board-only", "resources/read docs://other"];
    let rows = recorded(&home, "eve");
    assert!(rows.iter().all(|row| !forged.contains(&row.as_str())), "{rows:#?}");
}

#[test]
fn no_method_takes_a_member_that_names_an_item_of_another_method() {
    let home = home();
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "fake", None) {
        let echo = client.exposed("fake", "echo");
        let greet = client.exposed("fake", "greet");
        let prompt = json!({"type": "ref/prompt", "name": greet});
        let argument = json!({"name": "who", "value": "x"});
        let table = [
            ("tools/call", json!({"name": echo, "uri": "docs://public"})),
            ("tools/call", json!({"name": echo, "taskId": "t1"})),
            ("tools/call", json!({"name": echo, "ref": prompt})),
            ("tools/call", json!({"name": echo, "cursor": "2"})),
            ("prompts/get", json!({"name": greet, "uri": "docs://public"})),
            ("resources/read", json!({"uri": "docs://public", "taskId": "t1"})),
            ("resources/read", json!({"uri": "docs://public", "ref": prompt})),
            ("tools/list", json!({"name": "echo"})),
            ("resources/list", json!({"uri": "docs://public"})),
            ("prompts/list", json!({"cursor": 7})),
            ("completion/complete", json!({"ref": prompt, "argument": argument, "name": "greet"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": greet, "uri": "docs://x"}, "argument": argument}),
            ),
            ("tasks/get", json!({"taskId": "t1", "name": "echo"})),
        ];
        for (method, params) in table {
            let answer = client.ask(method, params.clone());
            assert_eq!(answer["error"]["code"], -32602, "{entrance}: {method} {params}: {answer}");
        }
        // A vendor's own member names no item for Ostler, and is forwarded.
        let vendor = json!({"name": echo, "arguments": {}, "vendor": {"deep": [1]}});
        let answer = client.ask("tools/call", vendor);
        assert!(answer.get("result").is_some(), "{entrance}: {answer}");
    }
    let frames = home.lines("frames").join("\n");
    assert!(!frames.contains("\"ref\"") && !frames.contains("\"taskId\":\"t1\""), "{frames}");
    assert!(frames.contains(r#""vendor":{"deep":[1]}"#), "{frames}");
}

#[test]
fn a_worker_reads_nothing_by_a_second_name() {
    let args = ["--catalog", "catalog.json", "--read-ttl", "600000:public"];
    let (broker, sites) = Setup { args: &args, ..Setup::default() }.build();
    sites[0].home.write("catalog.json", CATALOG);
    let _daemon = sites[0].start();
    let far = Home::new();
    for era in [AttackClientEra::Modern, AttackClientEra::Legacy] {
        let mut pipe = PipeAttackClient::over(Agent::start_as(worker(&far, &broker, "w1")), era);
        let answer = pipe.ask("resources/read", json!({"uri": "docs://public", "name": "docs://board-only"}));
        assert_eq!(answer["error"]["code"], -32602, "{era:?}: {answer}");
        assert_eq!(read(&mut pipe, "docs://public"), "fake-mcp read docs://public");
    }
}

#[test]
fn a_name_that_nothing_can_have_goes_nowhere() {
    let home = home();
    let long = "n".repeat(1_100);
    let named = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let catalog = json!({
        "tools": [named("good"), named("bell\u{7}"), named("esc\u{1b}[2J"), named(&long)],
        "prompts": [{"name": "good"}, {"name": "line\nbreak"}],
        "resources": [{"uri": "docs://good", "name": "good"}, {"uri": "docs://tab\tbed", "name": "bad"}],
    });
    home.write("catalog.json", &catalog.to_string());
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "fake", None) {
        for (method, member) in
            [("tools/list", "tools"), ("prompts/list", "prompts"), ("resources/list", "resources")]
        {
            let answer = client.ask(method, json!({}));
            let listed =
                answer["result"][member].as_array().unwrap_or_else(|| panic!("{entrance}: {answer}"));
            assert_eq!(listed.len(), 1, "{entrance}: {answer}");
        }
        for name in [long.as_str(), "bell\u{7}", "esc\u{1b}[2J"] {
            let name = client.exposed("fake", name);
            let answer = client.ask("tools/call", json!({"name": name, "arguments": {}}));
            assert_eq!(answer["error"]["data"]["code"], "unknown-tool", "{entrance}: {answer}");
        }
        let answer = client.ask("resources/read", json!({"uri": format!("docs://{}", "u".repeat(9 << 10))}));
        assert!([-32602, -32002].iter().any(|code| answer["error"]["code"] == *code), "{entrance}: {answer}");
        let answer = client.ask("resources/read", json!({"uri": "docs://good", "na\u{0}me": "docs://bad"}));
        assert_eq!(answer["error"]["code"], -32602, "{entrance}: {answer}");
    }
    let frames = home.lines("frames").join("\n");
    assert!(!frames.contains("tools/call") && !frames.contains("resources/read"), "{frames}");
    let run = home.run(&["audit", "--json", "--limit", "1000"]);
    assert!(run.stdout.lines().all(|line| line.len() < 3_000), "{run}");
}

#[test]
fn an_entry_of_meta_that_only_the_server_knows_is_never_shared() {
    let home = home();
    let (eve, ada) = (token(&home, "eve", "guest"), token(&home, "ada", "board"));
    let daemon = Daemon::start(&home);
    let pairs =
        entrances(&daemon, "fake", Some(&eve)).into_iter().zip(entrances(&daemon, "fake", Some(&ada)));
    for (number, ((entrance, mut eve), (_, mut ada))) in pairs.enumerate() {
        let uri = ["docs://public", "docs://other"][number % 2];
        let asked = || home.lines("frames").iter().filter(|frame| frame.contains("EVIL")).count();
        let before = asked();
        let mut meta = if entrance.starts_with("Modern") { modern_meta() } else { json!({}) };
        meta["com.example/locale"] = "EVIL".into();
        let reads = || home.lines("frames").iter().filter(|frame| frame.contains("resources/read")).count();
        let answer = eve.ask("resources/read", json!({"uri": uri, "_meta": meta}));
        assert_eq!(answer["result"]["contents"][0]["uri"], uri, "{entrance}: {answer}");
        assert_eq!(asked(), before + 1, "{entrance}: her request was answered from what others had asked");
        let after = reads();
        read(&mut *ada, uri);
        // The first reader of each resource asks the server; no answer of the other request was cached for it.
        assert_eq!(reads() - after, usize::from(number < 2), "{entrance}");
    }
}
