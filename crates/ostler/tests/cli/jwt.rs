//! JSON web tokens, as an identity provider issues them.

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::issuer::{IdentityProvider, JwksServer, now};
use crate::{http, mcp};

/// Returns a home whose daemon takes tokens of the issuer, and whose only role is `local`.
fn home(jwks: &str) -> Home {
    let home = Home::with_servers(&[("fake", &[])]);
    let servers = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write(
        "ostler.toml",
        &format!(
            "{servers}\n[roles.local]\nallow = [\"*\"]\n[auth]\nlocal = false\n[auth.jwt]\nissuer = \"https://id.example\"\n\
             audience = \"ostler\"\njwks = \"{jwks}\"\nleeway = \"0s\"\n"
        ),
    );
    home
}

fn ask(daemon: &Daemon<'_>, token: &str) -> http::Answer {
    mcp::ask_with(daemon.port, "tools/list", json!({}), &[&format!("Authorization: Bearer {token}")])
}

#[test]
fn only_a_token_that_is_signed_for_us_now_opens() {
    let issuer = IdentityProvider::new("one");
    let told = JwksServer::new(issuer.jwks());
    let home = home(&told.url);
    let daemon = Daemon::start(&home);
    let good = issuer.token(json!({}));
    let answer = ask(&daemon, &good);
    assert_eq!(answer.status, 200, "{answer:?}");
    let unsigned = issuer.token_with(&json!({"alg": "none", "kid": "one"}), json!({}));
    let bare = format!("{}.", unsigned.rsplit_once('.').unwrap().0);
    let hs256 = issuer.token_with(&json!({"alg": "HS256", "kid": "one"}), json!({}));
    let stranger = IdentityProvider::new("one").token(json!({}));
    let bad: [(&str, String); 11] = [
        ("expired", issuer.token(json!({"exp": now() - 1}))),
        ("not yet", issuer.token(json!({"nbf": now() + 60}))),
        ("endless", issuer.token(json!({"exp": Value::Null}))),
        ("issuer", issuer.token(json!({"iss": "https://evil.example"}))),
        ("audience", issuer.token(json!({"aud": "somebody"}))),
        ("no audience", issuer.token(json!({"aud": Value::Null}))),
        ("no role", issuer.token(json!({"role": Value::Null}))),
        ("alg none", unsigned),
        ("no signature", bare),
        ("alg HS256", hs256),
        ("another's key", stranger),
    ];
    for (what, token) in bad {
        let answer = ask(&daemon, &token);
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
        assert!(answer.head.contains("error=\"invalid_token\""), "{what}: {answer:?}");
        let metadata =
            format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", daemon.url());
        assert!(answer.head.contains(&metadata), "{what}: {answer:?}");
    }
    assert_eq!(mcp::ask_with(daemon.port, "tools/list", json!({}), &[]).status, 401, "nobody is local here");
    let metadata = http::ask(daemon.port, "GET /.well-known/oauth-protected-resource/mcp", &[], "").json();
    assert_eq!(metadata["authorization_servers"], json!(["https://id.example"]));
    assert_eq!(metadata["resource"], format!("{}/mcp", daemon.url()));
    assert_eq!(daemon.ask("GET /api/v1/version", "").status, 200);
    let admin =
        http::ask(daemon.port, "GET /api/v1/version", &[&format!("Authorization: Bearer {good}")], "");
    assert_eq!(admin.status, 401, "a caller is no operator");
    assert_eq!(ask(&daemon, &daemon.token()).status, 401, "an operator is no caller");
}

#[test]
fn a_new_key_is_looked_for_once_and_the_old_ones_stay_when_that_fails() {
    let first = IdentityProvider::new("one");
    let told = JwksServer::new(first.jwks());
    let home = home(&told.url);
    let daemon = Daemon::start(&home);
    assert_eq!(ask(&daemon, &first.token(json!({}))).status, 200);
    assert_eq!(told.request_count(), 1);
    for _ in 0..5 {
        // The key set was fetched at the start, which is less than ten seconds ago.
        assert_eq!(ask(&daemon, &IdentityProvider::new("two").token(json!({}))).status, 401);
    }
    assert_eq!(told.request_count(), 1);
    told.set_jwks("rubbish".into());
    assert_eq!(ask(&daemon, &first.token(json!({"sub": "bob"}))).status, 200);
}

#[test]
fn keys_in_a_file_are_read_again_when_they_have_changed() {
    let (first, second) = (IdentityProvider::new("one"), IdentityProvider::new("two"));
    let home = home("keys.json");
    home.write("keys.json", &first.jwks());
    let daemon = Daemon::start(&home);
    assert_eq!(ask(&daemon, &first.token(json!({}))).status, 200);
    assert_eq!(ask(&daemon, &second.token(json!({}))).status, 401);
    home.write("keys.json", &second.jwks());
    until("the new key is known", || ask(&daemon, &second.token(json!({}))).status == 200);
    assert_eq!(ask(&daemon, &first.token(json!({}))).status, 401, "its key was taken out");
}
