//! Readiness of a gateway whose servers are unknown or missing at its start.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_gateway::{GatewayOptions, ReadinessCheck, Scope};
use ostler_host::ServerName;
use ostler_testkit::{Script, TestHost};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, gateway};

/// Ready once `known` is true; fails after ten seconds.
fn readiness(known: watch::Receiver<bool>) -> ReadinessCheck {
    Arc::new(move || {
        let mut known = known.clone();
        if *known.borrow() {
            return None;
        }
        Some(Box::pin(async move {
            let waited = tokio::time::timeout(Duration::from_secs(10), known.wait_for(|known| *known)).await;
            waited.map(|_| ()).map_err(|_| CallError::Overloaded {
                what: "nobody knows the servers".into(),
                retry_after: Duration::from_secs(1),
            })
        }))
    })
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_until_it_is_known_what_there_is() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let (tell, known) = watch::channel(false);
    let gateway = gateway(&world, |options| options.readiness = Some(readiness(known)));
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    let began = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        tell.send_replace(true);
        // Kept until the gateway has seen it.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "a__echo", "{list}");
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    client.call("a__echo", json!({})).await;
    assert_eq!(began.elapsed(), Duration::from_secs(3), "what is known is known");
}

#[tokio::test(start_paused = true)]
async fn what_never_becomes_known_is_an_error_and_no_empty_list() {
    let world = TestHost::new().start().await;
    let (_tell, known) = watch::channel(false);
    let gateway = gateway(&world, |options| options.readiness = Some(readiness(known)));
    let mut client = Client::legacy(&gateway, Scope::All, json!({})).await;
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let answer = client.request(method, json!({})).await;
        assert_eq!(answer["error"]["data"]["code"], "overloaded", "{method}: {answer}");
    }
    let answer = client.call("a__echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["code"], "overloaded", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn who_only_says_hello_waits_for_nobody() {
    let world = TestHost::new().start().await;
    let (_tell, known) = watch::channel(false);
    let gateway = gateway(&world, |options| options.readiness = Some(readiness(known)));
    let began = Instant::now();
    let mut legacy = Client::legacy(&gateway, Scope::All, json!({})).await;
    legacy.request("ping", json!({})).await;
    let mut modern = Client::modern(&gateway, Scope::All, json!({}));
    let answer = modern.request("server/discover", json!({})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Returns a server that starts at its fourth attempt.
async fn slow_start_world() -> TestHost {
    let lazy = |spec: &mut ostler_host::ServerSpec| {
        spec.lazy = true;
        spec.breaker.failures = 0;
    };
    TestHost::new().server_with("a", Script::echo().failing_starts(|start| start <= 3), lazy).start().await
}

fn face() -> Scope {
    Scope::Server(ServerName::new("a").unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_can_not_be_started_yet_is_waited_for_by_the_patient() {
    let world = slow_start_world().await;
    let patient = |options: &mut GatewayOptions| options.initialize_patience = Duration::from_secs(30);
    let mut client = Client::legacy(&gateway(&world, patient), face(), json!({})).await;
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "echo", "{list}");
}

#[tokio::test(start_paused = true)]
async fn without_patience_the_client_is_told_at_once() {
    let world = slow_start_world().await;
    let line = Client::initialize_line(ostler_host::Caller::local(), &gateway(&world, |_| {}), face()).await;
    assert!(line.contains("server-unavailable"), "{line}");
}
