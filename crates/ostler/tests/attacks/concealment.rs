//! Concealment: a forbidden item looks exactly like a missing one, in every state of the server and the caller.

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::client::{AttackClient, AttackClientEra, entrances, modern_meta, token};
use crate::daemon::Daemon;
use crate::home::Home;

/// Returns a home with a server that has hidden items, and a role that may use the rest.
fn home(budget: &str) -> Home {
    let home = Home::new();
    let names = ["plan", "hush", "last"];
    let named =
        |shape: &dyn Fn(&str) -> Value| -> Vec<Value> { names.iter().map(|name| shape(name)).collect() };
    let catalog = json!({
        "tools": named(&|name| json!({"name": name, "inputSchema": {"type": "object"}})),
        "prompts": named(&|name| json!({"name": name})),
        "resources": named(&|name| json!({"name": name, "uri": format!("docs://{name}")})),
        "resourceTemplates": named(&|name| json!({"name": name, "uriTemplate": format!("tpl://{name}/{{id}}")})),
    });
    home.write("catalog.json", &catalog.to_string());
    let config = format!(
        r#"
[servers.fake]
command = {:?}
args = ["--catalog", "catalog.json", "--frames", "frames"]
[roles.guest]
allow = ["fake/*"]
deny = ["fake/*hush*"]
{budget}
"#,
        fake_mcp()
    );
    home.write("ostler.toml", &config);
    home
}

/// Returns every request that names an item or a method, for an item of this name.
fn requests(client: &dyn AttackClient, name: &str) -> Vec<(String, Value)> {
    let exposed = client.exposed("fake", name);
    let complete = |reference: Value| json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
    [
        ("tools/call", json!({"name": exposed, "arguments": {}})),
        ("prompts/get", json!({"name": exposed})),
        ("completion/complete", complete(json!({"type": "ref/prompt", "name": exposed}))),
        (
            "completion/complete",
            complete(json!({"type": "ref/resource", "uri": format!("tpl://{name}/{{id}}")})),
        ),
        (&format!("vendor/{name}"), json!({})),
    ]
    .into_iter()
    .map(|(method, params)| (method.to_owned(), params))
    .collect()
}

/// Requests hidden and missing items, and compares the answers.
fn compare(state: &str, clients: &mut [(String, Box<dyn AttackClient>)]) {
    for (entrance, client) in clients {
        let pairs: Vec<_> =
            requests(&**client, "hush").into_iter().zip(requests(&**client, "none")).collect();
        for (hidden, missing) in pairs {
            let what = format!("{state}, {entrance}: {} {}", hidden.0, hidden.1);
            let ask = |client: &mut Box<dyn AttackClient>, (method, params): &(String, Value)| {
                let mut params = params.clone();
                if entrance.starts_with("Modern") {
                    params["_meta"] = modern_meta();
                }
                client
                    .send(json!({"jsonrpc": "2.0", "id": 777, "method": method, "params": params}))
                    .to_string()
            };
            let of_hidden = ask(client, &hidden);
            let of_missing = ask(client, &missing);
            assert_eq!(steady(&of_hidden).replace("hush", "none"), steady(&of_missing), "{what}");
            assert!(of_hidden.contains("\"error\""), "{what}: {of_hidden}");
        }
    }
}

/// Returns the text without times, which differ from one request to the next.
fn steady(answer: &str) -> String {
    let mut value: Value = serde_json::from_str(answer).unwrap();
    if let Some(data) = value["error"]["data"].as_object_mut() {
        data.remove("retryAfterMs");
        data.remove("hint");
    }
    value.to_string()
}

#[test]
fn a_hidden_name_looks_missing_while_the_server_runs() {
    let home = home("");
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    compare("running", &mut entrances(&daemon, "fake", Some(&guest)));
    let frames = home.lines("frames").join("\n");
    assert!(!frames.contains("hush"), "{frames}");
}

#[test]
fn a_hidden_name_looks_missing_when_the_server_is_stopped() {
    let home = home("");
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    let mut clients = entrances(&daemon, "fake", Some(&guest));
    assert_eq!(home.run(&["stop", "fake"]).code, Some(0));
    compare("stopped", &mut clients);
}

#[test]
fn a_hidden_name_looks_missing_when_the_server_can_not_start() {
    let home = Home::new();
    let config = "[servers.fake]\ncommand = \"/nowhere/fake\"\n[roles.guest]\nallow = [\"fake/*\"]\ndeny = [\"fake/*hush*\"]\n";
    home.write("ostler.toml", config);
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances_of_one(&daemon, &guest) {
        for (hidden, missing) in requests(&*client, "hush").into_iter().zip(requests(&*client, "none")) {
            let mut of_hidden = client.ask(&hidden.0, hidden.1)["error"].take();
            let mut of_missing = client.ask(&missing.0, missing.1)["error"].take();
            // Both name the time until the next attempt, at two moments.
            let waits = [&mut of_hidden, &mut of_missing].map(|error| error["data"]["retryAfterMs"].take());
            assert!(waits.iter().all(Value::is_u64), "{waits:?}");
            let said = |error: Value| {
                let told =
                    error["message"].as_str().unwrap().split("; it is not tried").next().unwrap().to_owned();
                (told.replace("hush", "none"), error["code"].clone(), error["data"].clone())
            };
            assert!(of_hidden.to_string().contains("server-unavailable"), "{entrance} {of_hidden}");
            assert_eq!(said(of_hidden), said(of_missing), "{entrance} {}", hidden.0);
        }
    }
}

/// Returns modern clients only: a legacy one can't open its session at a server that does not start.
fn entrances_of_one(daemon: &Daemon<'_>, guest: &str) -> Vec<(String, Box<dyn AttackClient>)> {
    let secret = std::fs::read_to_string(daemon.home.path(guest)).unwrap();
    let path = "/servers/fake/mcp";
    let client =
        crate::client::HttpAttackClient::open(daemon.port, path, AttackClientEra::Modern, Some(&secret));
    vec![(format!("Modern {path}"), Box::new(client))]
}

#[test]
fn a_hidden_name_looks_missing_over_budget() {
    let home = home("budget = { calls = 1, per = \"1h\" }");
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    let mut clients = entrances(&daemon, "fake", Some(&guest));
    for call in ["within", "over"] {
        let answer = clients[1].1.ask("tools/call", json!({"name": "plan", "arguments": {}}));
        assert_eq!(answer.get("error").is_some(), call == "over", "{answer}");
    }
    compare("over budget", &mut clients);
}

#[test]
fn a_list_has_no_trace_of_a_hidden_name() {
    let home = home("");
    let guest = token(&home, "eve", "guest");
    let daemon = Daemon::start(&home);
    for (entrance, mut client) in entrances(&daemon, "fake", Some(&guest)) {
        for (method, member) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            let answer = client.ask(method, json!({}));
            assert_eq!(answer["result"][member].as_array().map(Vec::len), Some(2), "{entrance}: {answer}");
            let foreign = client.ask(method, json!({"cursor": "2"}));
            assert_eq!(foreign["error"]["code"], -32602, "{entrance}: {foreign}");
        }
    }
}
