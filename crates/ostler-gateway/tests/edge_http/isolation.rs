//! Session isolation: processes of servers with `isolation = "session"`, over real connections.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_gateway::{ConnectionLimits, GatewayOptions};
use ostler_host::{Caller, Isolation};
use ostler_testkit::{eventually, fake_mcp_spec};

use crate::auth::TestTokens;
use crate::world::{Client, PATIENCE, Request, World};

/// Returns a world with the real server, a process per session, and no process yet.
async fn world(options: GatewayOptions) -> World {
    let world = World::with(options, ConnectionLimits::default()).await;
    let spec = fake_mcp_spec("fake", &[]).lazy().isolation(Isolation::Session);
    world.host.spawn(&Caller::local(), spec).await.unwrap();
    world
}

fn call() -> Request {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"pid","arguments":{{}},"_meta":{meta}}}}}"#
    );
    let request = Request::post(body).to("/servers/fake/mcp").with("MCP-Protocol-Version", "2026-07-28");
    request.with("Mcp-Method", "tools/call").with("Mcp-Name", "pid")
}

/// Returns the id of the process that answers a call on a connection.
async fn pid(client: &mut Client, request: Request) -> String {
    let response = client.send(request).await;
    let text = &response.json()["result"]["content"][0]["text"];
    text.as_str().unwrap_or_else(|| panic!("{response:?}")).to_owned()
}

#[tokio::test]
async fn each_connection_of_a_modern_client_without_a_credential_has_a_process_that_ends_with_it() {
    let world = world(GatewayOptions::default()).await;
    let (mut one, mut two) = (world.connect().await, world.connect().await);
    let (of_one, of_two) = (pid(&mut one, call()).await, pid(&mut two, call()).await);
    assert_ne!(of_one, of_two);
    assert_eq!(pid(&mut one, call()).await, of_one, "a connection keeps its process");
    assert_eq!(world.host.process_count(), 2);
    drop(one);
    eventually("the process ends with its connection", PATIENCE, || world.host.process_count() == 1).await;
    assert_eq!(pid(&mut two, call()).await, of_two);
}

#[tokio::test]
async fn a_credential_is_one_session_over_all_its_connections() {
    let passes = ["ada", "bob"].map(|name| (name, ostler_gateway::CredentialLifetime::new()));
    let authenticate = Arc::new(TestTokens(HashMap::from(passes)));
    let world = world(GatewayOptions { authenticate, ..GatewayOptions::default() }).await;
    let of = |name: &str| call().with("Authorization", &format!("Bearer {name}"));
    let (mut one, mut two) = (world.connect().await, world.connect().await);
    let ada = pid(&mut one, of("ada")).await;
    assert_eq!(pid(&mut two, of("ada")).await, ada);
    assert_ne!(pid(&mut two, of("bob")).await, ada, "a connection is nobody's in particular");
    drop(one);
    assert_eq!(pid(&mut two, of("ada")).await, ada, "the process outlives a connection");
}

#[tokio::test]
async fn a_legacy_session_has_a_process_that_ends_with_it() {
    let world = world(GatewayOptions::default()).await;
    let open = async || {
        let request = Request::initialize("2025-11-25").to("/servers/fake/mcp");
        world.send(request).await.session()
    };
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid"}}"#;
    let of = |session: &str| Request::post(body).to("/servers/fake/mcp").in_session(session);
    let (one, two) = (open().await, open().await);
    let mut client = world.connect().await;
    let first = pid(&mut client, of(&one)).await;
    assert_ne!(pid(&mut client, of(&two)).await, first);
    assert_eq!(pid(&mut world.connect().await, of(&one)).await, first, "whatever connection it comes on");
    let before = world.host.process_count();
    client.send(Request::new("DELETE", "/servers/fake/mcp").in_session(&one)).await;
    eventually("its process has ended", PATIENCE, || world.host.process_count() < before).await;
}
