//! URIs that are written to escape resource rules.
//!
//! The servers are programs that read files, each with the URL parser of its language, so a URI that passes the rules
//! and leads elsewhere shows the content of a forbidden file.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::client::{AttackClient, AttackClientEra, PipeAttackClient, entrances, token};
use crate::daemon::Daemon;
use crate::home::Home;
use crate::site::{Setup, worker_in_role};

/// Content of the file that no URI may reach.
const SECRET: &str = "the secret";

/// File servers: the program, its switch, and its script.
const READERS: [(&str, &str, &str); 3] =
    [("python3", "urlsplit", PYTHON), ("python3", "prefix", PYTHON), ("node", "", NODE)];

const PYTHON: &str = r#"
import json, sys
from urllib.parse import unquote, urlsplit
def path_of(uri):
    if sys.argv[1] == "urlsplit":
        return unquote(urlsplit(uri).path)
    return unquote(uri[len("file://"):] if uri.startswith("file://") else uri)
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    answer, error = {}, None
    match ask["method"]:
        case "initialize":
            answer = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {"subscribe": True}},
                      "serverInfo": {"name": "files", "version": "1"}}
        case "resources/list":
            answer = {"resources": []}
        case "resources/templates/list":
            answer = {"resourceTemplates": [{"name": "file", "uriTemplate": "file:///{+path}"}]}
        case "resources/read":
            try:
                with open(path_of(ask["params"]["uri"])) as file:
                    answer = {"contents": [{"uri": ask["params"]["uri"], "text": file.read()}]}
            except (OSError, ValueError) as failure:
                error = {"code": -32002, "message": str(failure)}
        case "resources/subscribe" | "ping":
            pass
        case _:
            error = {"code": -32601, "message": "no such method"}
    said = {"jsonrpc": "2.0", "id": ask["id"], **({"error": error} if error else {"result": answer})}
    print(json.dumps(said), flush=True)
"#;

const NODE: &str = r#"
const { readFileSync } = require("fs");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const ask = JSON.parse(line);
  if (!("id" in ask)) return;
  let said = {};
  const answers = {
    "initialize": { protocolVersion: "2025-11-25", capabilities: { resources: { subscribe: true } },
                    serverInfo: { name: "files", version: "1" } },
    "resources/list": { resources: [] },
    "resources/templates/list": { resourceTemplates: [{ name: "file", uriTemplate: "file:///{+path}" }] },
    "resources/subscribe": {}, "ping": {},
  };
  if (ask.method in answers) said = { result: answers[ask.method] };
  else if (ask.method === "resources/read") {
    try {
      const text = readFileSync(decodeURIComponent(new URL(ask.params.uri).pathname), "utf8");
      said = { result: { contents: [{ uri: ask.params.uri, text }] } };
    } catch (error) { said = { error: { code: -32002, message: String(error) } }; }
  } else said = { error: { code: -32601, message: "no such method" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id: ask.id, ...said }));
});
"#;

/// URIs that lead from an allowed folder to the secret for some reader; `BASE` is the folder of both.
const ESCAPES: [&str; 22] = [
    "file://BASE/public/.\t./secret/key",
    "file://BASE/public/.\n./secret/key",
    "file://BASE/public/.\r./secret/key",
    "file://BASE/public/../secret/key",
    "file://BASE/public/x?/../../secret/key",
    "file://BASE/public/x#/../../secret/key",
    "file://BASE/public/%2e%2E/secret/key",
    "file://BASE/public/..%2fsecret/key",
    "file://BASE/public/%252e%252e%252fsecret/key",
    "file://BASE/public/.%09./secret/key",
    "file://BASE/public/..\\secret\\key",
    "file://BASE/public/..%5csecret/key",
    "file://BASE/public/a%2fb/../..%2fsecret/key",
    "file://BASE/public//../secret/key",
    "file://BASE/public///..//secret/key",
    "file://BASE/public/x%3f/../../secret/key",
    "file://BASE/public/x%23/..%2f../secret/key",
    "file://BASE/public/../secret/key?x",
    "file://BASE/public/../secret/key#x",
    "file://BASE/public/.%00./secret/key",
    "file://BASE/public/.\u{0b}./secret/key",
    " file://BASE/public/../secret/key",
];

/// Other spellings of the denied URI `file://BASE/secret/key`.
const SPELLINGS: [&str; 18] = [
    "file://BASE/secret/key",
    "FILE://BASE/secret/key",
    "file:BASE/secret/key",
    "file://localhostBASE/secret/key",
    "file://LOCALHOSTBASE/secret/key",
    "file://elsewhereBASE/secret/key",
    "file://BASE/secret/key?x",
    "file://BASE/secret/key#x",
    "file://BASE/%73ecret/key",
    "file://BASE/%2573ecret/key",
    "file:///BASE//secret///key",
    "file://BASE/./secret/key",
    "file://BASE/x/../secret/key",
    "file://BASE/sec\tret/key",
    "file://BASE/secret/key ",
    "file://BASE/secret/key%20",
    "\tfile://BASE/secret/key",
    "file://BASE/public/..%2fsecret/key",
];

/// Methods that name a resource by its URI.
const METHODS: [&str; 2] = ["resources/read", "resources/subscribe"];

/// Returns the URIs with the folder of a home in them.
fn in_base(uris: &[&str], base: &str) -> Vec<String> {
    uris.iter().map(|uri| uri.replace("BASE", base)).collect()
}

/// Writes a public and a secret file into a home; returns their folder.
fn fill(home: &Home) -> String {
    home.write("public/a.txt", "hello");
    home.write("public/x", "hello");
    home.write("public/my docs/ä.txt", "hello");
    home.write("secret/key", SECRET);
    home.path("").to_str().unwrap().trim_end_matches('/').to_owned()
}

/// Returns the table of a file server.
fn server(home: &Home, (program, switch, script): (&str, &str, &str)) -> String {
    home.write("server.script", script);
    let script = home.path("server.script");
    let program = which(program);
    format!("[servers.files]\ncommand = {program:?}\nargs = [{script:?}, {switch:?}]\nlazy = false\n")
}

/// Returns the path of the program itself: shims of version managers need a home of their own.
fn which(program: &str) -> String {
    let ask = match program {
        "node" => ["-p", "process.execPath"],
        _ => ["-c", "import sys; print(sys.executable)"],
    };
    let output = std::process::Command::new(program).args(ask).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the rules of the first attack, which allow one folder alone; [`deny_rule`] denies one alone.
fn allow_rule(base: &str) -> String {
    // A worker finds the server of a URI by the lists that its role may see.
    format!("allow = [\"files/resource:file://{base}/public/*\", \"files/resource:file:///{{+path}}\"]\n")
}

fn deny_rule(base: &str) -> String {
    format!("allow = [\"files/*\"]\ndeny = [\"files/resource:file://{base}/secret/*\"]\n")
}

/// Returns an error without the URI that it names.
fn shape(answer: &Value) -> Value {
    let mut error = answer["error"].clone();
    error["message"] = error["message"].as_str().and_then(|text| text.split('`').next()).into();
    if let Some(data) = error["data"].as_object_mut() {
        data.remove("uri");
    }
    error
}

/// Asserts that no URI shows the secret, and that each is refused like one that does not exist.
fn assert_unknown(entrance: &str, client: &mut dyn AttackClient, method: &str, uris: &[String]) {
    let missing = client.ask(method, json!({"uri": "nothing://here"}));
    for uri in uris {
        let answer = client.ask(method, json!({"uri": uri}));
        assert!(!answer.to_string().contains(SECRET), "{entrance}: {uri:?} reads {answer}");
        assert!(answer["error"].is_object(), "{entrance}: {method} {uri:?}: {answer}");
        assert_eq!(shape(&answer), shape(&missing), "{entrance}: {method} {uri:?}: {answer}");
    }
}

fn assert_readable(entrance: &str, client: &mut dyn AttackClient, base: &str) {
    for path in ["public/a.txt", "public/my%20docs/%C3%A4.txt", "public/./a.txt"] {
        let answer = client.ask("resources/read", json!({"uri": format!("file://{base}/{path}")}));
        assert_eq!(answer["result"]["contents"][0]["text"], "hello", "{entrance}: {path}: {answer}");
    }
}

#[test]
fn no_uri_leads_out_of_an_allowed_folder() {
    for reader in READERS {
        let home = Home::new();
        let base = fill(&home);
        home.write("ostler.toml", &format!("{}[roles.guest]\n{}", server(&home, reader), allow_rule(&base)));
        let file = token(&home, "guest", "guest");
        let daemon = Daemon::start(&home);
        for (entrance, mut client) in entrances(&daemon, "files", Some(&file)) {
            let entrance = format!("{entrance}, {} {}", reader.0, reader.1);
            for method in METHODS {
                assert_unknown(&entrance, &mut *client, method, &in_base(&ESCAPES, &base));
                assert_unknown(&entrance, &mut *client, method, &in_base(&SPELLINGS, &base));
            }
            assert_readable(&entrance, &mut *client, &base);
        }
    }
}

#[test]
fn no_spelling_of_a_uri_passes_the_rule_that_denies_it() {
    for reader in READERS {
        let home = Home::new();
        let base = fill(&home);
        home.write("ostler.toml", &format!("{}[roles.guest]\n{}", server(&home, reader), deny_rule(&base)));
        let file = token(&home, "guest", "guest");
        let daemon = Daemon::start(&home);
        for (entrance, mut client) in entrances(&daemon, "files", Some(&file)) {
            let entrance = format!("{entrance}, {} {}", reader.0, reader.1);
            for method in METHODS {
                assert_unknown(&entrance, &mut *client, method, &in_base(&SPELLINGS, &base));
            }
            assert_readable(&entrance, &mut *client, &base);
        }
    }
}

#[test]
fn a_worker_escapes_no_rule_of_its_role() {
    let (broker, sites) = Setup::default().build();
    let home = &sites[0].home;
    let base = fill(home);
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    let config = config
        .replace("[roles.crew]\nallow = [\"*\"]\n", &format!("[roles.crew]\n{}", allow_rule(&base)))
        .replace("[roles.other]\nallow = [\"*\"]\n", &format!("[roles.other]\n{}", deny_rule(&base)));
    home.write("ostler.toml", &format!("{}{config}", server(home, READERS[0])));
    let _daemon = sites[0].start();
    let far = Home::new();
    for era in [AttackClientEra::Modern, AttackClientEra::Legacy] {
        for (name, role, uris) in [("w1", "crew", &ESCAPES[..]), ("w3", "other", &SPELLINGS[..])] {
            let mut client =
                PipeAttackClient::over(Agent::start_as(worker_in_role(&far, &broker, name, role)), era);
            let entrance = format!("{era:?} worker in {role}");
            assert_readable(&entrance, &mut client, &base);
            assert_unknown(&entrance, &mut client, "resources/read", &in_base(uris, &base));
        }
    }
}
