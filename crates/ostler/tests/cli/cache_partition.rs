//! Cached answers of two callers, at every entrance.

use ostler_testkit::fake_mcp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::Home;
use crate::{http, mcp};

/// Entrance: reads a resource as the caller whose token is in a file.
type ReadPath = fn(&Daemon<'_>, &str, &str) -> Value;

const WAYS: [(&str, ReadPath); 3] = [
    ("/mcp", |daemon, name, uri| over_http(daemon, "POST /mcp", name, uri)),
    ("/servers/fake/mcp", |daemon, name, uri| over_http(daemon, "POST /servers/fake/mcp", name, uri)),
    ("stdio", |daemon, name, uri| {
        let (_, request) = mcp::request("resources/read", json!({"uri": uri}));
        let args = ["stdio", "--token-file", &format!("{name}.token")];
        let run = daemon.home.run_with_input(&args, &format!("{request}\n"));
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
    }),
];

fn over_http(daemon: &Daemon<'_>, line: &str, name: &str, uri: &str) -> Value {
    let (mut headers, body) = mcp::request("resources/read", json!({"uri": uri}));
    let token = std::fs::read_to_string(daemon.home.path(&format!("{name}.token"))).unwrap();
    headers.push(format!("Mcp-Name: {uri}"));
    headers.push(format!("Authorization: Bearer {}", token.trim()));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    http::ask(daemon.port, line, &headers, &body).json()
}

/// Returns the number of requests to the server when two callers have read each resource twice, and the cache scope in
/// the last answer.
fn reads(scope: &str, more: &str) -> Vec<(&'static str, usize, Value)> {
    let home = Home::new();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.fake]\ncommand = {:?}\nargs = [\"--read-ttl\", \"600000:{scope}\", \"--requests\", {:?}]\n{more}\
             [roles.reader]\nallow = [\"fake/*\"]\n",
            fake_mcp(),
            home.path("requests")
        ),
    );
    for name in ["ada", "bob"] {
        let run = home.run(&["token", "create", "--name", name, "--role", "reader"]);
        assert_eq!(run.code, Some(0), "{run}");
        home.write(&format!("{name}.token"), &run.stdout);
    }
    let daemon = Daemon::start(&home);
    let read = |(number, (path, way)): (usize, (&'static str, ReadPath))| {
        // Each entrance has its own resource, since the cache is shared by all of them.
        let uri = format!("fake://item/{number}");
        let answers = ["ada", "bob", "ada", "bob"].map(|name| way(&daemon, name, &uri));
        for answer in &answers {
            assert_eq!(answer["result"]["contents"][0]["uri"], uri.as_str(), "{path}: {answer}");
        }
        let asked =
            home.lines("requests").into_iter().filter(|line| *line == format!("resources/read\t{uri}"));
        (path, asked.count(), answers[3]["result"]["cacheScope"].clone())
    };
    WAYS.into_iter().enumerate().map(read).collect()
}

#[test]
fn a_private_answer_never_crosses_from_one_token_to_another_on_any_way_in() {
    for (path, asked, scope) in reads("private", "") {
        assert_eq!((asked, scope), (2, json!("private")), "{path}");
    }
}

#[test]
fn a_public_answer_serves_both_tokens_on_every_way_in() {
    for (path, asked, scope) in reads("public", "") {
        assert_eq!((asked, scope), (1, json!("public")), "{path}");
    }
}

#[test]
fn a_server_that_calls_private_things_public_is_overruled_on_every_way_in() {
    for (path, asked, scope) in reads("public", "cache_scope = \"private\"\n") {
        assert_eq!((asked, scope), (2, json!("private")), "{path}");
    }
}
