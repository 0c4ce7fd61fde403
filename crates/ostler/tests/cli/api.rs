//! Admin API: authorization, its description, and its records in the audit.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::Home;
use crate::http;

/// Returns the description that is checked in and served.
fn described() -> Value {
    serde_json::from_str(include_str!("../../openapi.json")).unwrap()
}

/// Returns every operation of the description: `GET /api/v1/…`, with its status codes.
fn operations() -> BTreeMap<String, Vec<u16>> {
    let described = described();
    let paths = described["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters").map(
            move |(method, operation)| {
                let responses = operation["responses"].as_object().unwrap();
                let codes = responses.keys().map(|code| code.parse().unwrap()).collect();
                (format!("{} {path}", method.to_uppercase()), codes)
            },
        )
    });
    each.collect()
}

#[test]
fn every_route_of_the_daemon_refuses_a_foreign_host_and_a_foreign_origin() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    let described = described();
    let api = described["paths"].as_object().unwrap().keys().map(|path| path.replace(['{', '}'], ""));
    let others = [
        "/",
        "/healthz",
        "/readyz",
        "/mcp",
        "/sse",
        "/servers/none/mcp",
        "/servers/none/sse",
        "/mcp/server-card",
        "/servers/none/mcp/server-card",
        "/.well-known/mcp/catalog.json",
        "/.well-known/oauth-protected-resource/mcp",
        "/no/such/path",
    ];
    for path in api.chain(others.map(str::to_owned)) {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            for foreign in ["Host: evil.example", "Origin: https://evil.example", "Origin: null"] {
                let answer = http::ask(daemon.port, &format!("{method} {path}"), &[foreign], "");
                assert_eq!(answer.status, 403, "{method} {path} {foreign}");
            }
        }
    }
}

#[test]
fn nobody_comes_in_without_the_token_or_from_a_foreign_page() {
    let home = Home::with_servers(&[("fake", &["--starts", "starts"])]);
    let daemon = Daemon::start(&home);
    let good = format!("Authorization: Bearer {}", daemon.token());
    for line in operations().keys().filter(|line| line.contains("/api/")) {
        let line = line.replace("{name}", "fake");
        let ask = |headers: &[&str]| http::ask(daemon.port, &line, headers, "").status;
        // A daemon proves its identity to commands that have not shown a token yet, given a nonce.
        let refused = if line == "GET /api/v1/proof" { 400 } else { 401 };
        assert_eq!(ask(&[]), refused, "{line}");
        assert_eq!(ask(&["Authorization: Bearer wrong"]), refused, "{line}");
        assert_eq!(ask(&[&good, "Origin: https://evil.example"]), 403, "{line}");
        assert_eq!(ask(&[&good, "Host: evil.example"]), 403, "{line}");
    }
    assert!(home.lines("starts").is_empty());
}

#[test]
fn what_is_described_is_what_is_there() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    assert_eq!(daemon.ask("GET /api/v1/openapi.json", "").json(), described());
    let end = "POST /api/v1/shutdown";
    for (line, codes) in operations().into_iter().filter(|(line, _)| line != end) {
        // Only an upgrade is answered there, and that with another protocol.
        let expected = match line.as_str() {
            "GET /api/v1/attach" => 426,
            // A program without the key `card` has none.
            "GET /api/v1/servers/{name}/card" => 502,
            _ => 200,
        };
        let line = line.replace("/proof", &format!("/proof?nonce={}", "0".repeat(64)));
        let line = line.replace("/explain", "/explain?role=local&what=fake");
        let answer = daemon.ask(&line.replace("{name}", "fake"), "");
        assert_eq!(answer.status, expected, "{line}: {answer:?}");
        assert!(codes.contains(&answer.status), "{line} does not tell of {}", answer.status);
    }
    for line in [
        "GET /api/v1/servers/nope",
        "POST /api/v1/servers/nope/start",
        "POST /api/v1/servers/nope/stop",
        "POST /api/v1/servers/nope/reload",
        "GET /api/v1/servers/nope/logs",
        "GET /api/v1/servers/nope/card",
        "GET /api/v1/definitions?server=nope",
    ] {
        let answer = daemon.ask(line, "");
        let key = line.replace("/nope", "/{name}");
        let key = key.split('?').next().unwrap();
        assert!(answer.status >= 400, "{line}: {answer:?}");
        assert!(operations()[key].contains(&answer.status), "{key} does not tell of {}", answer.status);
        assert!(answer.json()["error"]["code"].is_string(), "{line}");
    }
    assert_eq!(daemon.ask("GET /api/v1/nothing", "").status, 404);
    assert_eq!(daemon.ask(&format!("{end}?calls_ms=soon"), "").status, 400);
    assert_eq!(daemon.ask(end, "").status, 202);
}
