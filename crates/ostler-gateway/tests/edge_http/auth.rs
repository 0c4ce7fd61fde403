//! Authentication: sessions belong to one caller, and end with its credential.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_gateway::{
    AuthOutcome, AuthRequest, Authenticate, Authenticated, ConnectionLimits, CredentialLifetime,
    GatewayOptions, ResourceMetadata, Unauthorized,
};
use ostler_host::Caller;
use ostler_testkit::{eventually, fake_mcp_spec};
use tokio::io::AsyncWriteExt;

use crate::world::{Client, PATIENCE, Request, World};

/// Tokens and their lifetimes; the check of `slow-NAME` takes a while.
#[derive(Default)]
pub(crate) struct TestTokens(pub(crate) HashMap<&'static str, CredentialLifetime>);

impl TestTokens {
    fn find(&self, name: &str) -> Result<Authenticated, Unauthorized> {
        let pass = self.0.get(name).ok_or_else(|| Unauthorized::invalid("the token is not known"))?;
        Ok(Authenticated { caller: Caller::new(name, "local"), lifetime: Some(pass.clone()) })
    }
}

impl Authenticate for TestTokens {
    fn check(&self, knock: &AuthRequest<'_>) -> AuthOutcome {
        let token = match knock.bearer() {
            Ok(Some(token)) => token,
            Ok(None) => return AuthOutcome::Refused(Unauthorized::missing("send a bearer token")),
            Err(why) => return AuthOutcome::Refused(why),
        };
        match token.strip_prefix("slow-") {
            Some(name) => {
                let found = self.find(name);
                AuthOutcome::Pending(Box::pin(async {
                    tokio::task::yield_now().await;
                    found
                }))
            }
            None => match self.find(token) {
                Ok(admitted) => AuthOutcome::Accepted(admitted),
                Err(why) => AuthOutcome::Refused(why),
            },
        }
    }
}

pub(crate) struct AuthWorld {
    pub(crate) world: World,
    pub(crate) ada: CredentialLifetime,
}

async fn auth_world(metadata: Option<ResourceMetadata>) -> AuthWorld {
    auth_world_with(GatewayOptions {
        resource_metadata: metadata,
        allowed_hosts: vec!["tools.example".into()],
        ..GatewayOptions::default()
    })
    .await
}

pub(crate) async fn auth_world_with(options: GatewayOptions) -> AuthWorld {
    let ada = CredentialLifetime::new();
    let book = TestTokens(HashMap::from([("ada", ada.clone()), ("bob", CredentialLifetime::new())]));
    let options = GatewayOptions { authenticate: Arc::new(book), ..options };
    AuthWorld { world: World::with(options, ConnectionLimits::default()).await, ada }
}

pub(crate) trait WithToken {
    fn with_token(self, name: &str) -> Self;
}

impl WithToken for Request {
    fn with_token(self, name: &str) -> Self {
        self.with("Authorization", &format!("Bearer {name}"))
    }
}

impl AuthWorld {
    /// Returns the id of a session of Ada's.
    pub(crate) async fn session(&self) -> String {
        self.world.send(Request::initialize("2025-03-26").with_token("ada")).await.session()
    }

    /// Returns a stream that has begun.
    pub(crate) async fn stream(&self, request: Request) -> Client {
        let mut client = self.world.connect().await;
        client.start(request).await;
        let head = client.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        client
    }
}

async fn wait_for_end(mut client: Client) {
    while client.chunk().await.is_some() {}
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_where_tokens_come_from() {
    let metadata =
        ResourceMetadata { authorization_servers: vec!["https://id.example".into()], base_url: None };
    let AuthWorld { world, .. } = auth_world(Some(metadata)).await;
    let good = Request::modern("tools/list", "1").with("Host", "tools.example");
    let told = |path: &str| {
        format!("resource_metadata=\"http://tools.example/.well-known/oauth-protected-resource{path}\"")
    };
    let table = [
        (good.clone(), "/mcp", "Bearer realm=\"ostler\", ".to_owned()),
        (good.clone().with_token("eve"), "/mcp", "Bearer realm=\"ostler\", error=\"invalid_token\", ".into()),
        (
            good.clone().with("Authorization", "Basic x").to("/servers/nobody/mcp"),
            "/servers/nobody/mcp",
            "Bearer realm=\"ostler\", error=\"invalid_request\", ".into(),
        ),
    ];
    for (request, path, begins) in table {
        let response = world.send(request).await;
        assert_eq!(response.status, 401);
        let expected = begins + &told(path);
        assert_eq!(response.header("www-authenticate"), Some(expected.as_str()));
    }
    assert_eq!(world.send(good.with_token("slow-ada")).await.status, 200);
}

#[tokio::test]
async fn metadata_is_told_to_everybody_but_strange_pages_and_reveals_no_server() {
    let metadata = ResourceMetadata {
        authorization_servers: vec!["https://id.example".into()],
        base_url: Some("https://tools.example/".into()),
    };
    let AuthWorld { world, .. } = auth_world(Some(metadata)).await;
    for path in ["", "/mcp", "/servers/nobody/mcp"] {
        let request = Request::new("GET", &format!("/.well-known/oauth-protected-resource{path}"));
        let response = world.send(request.clone()).await;
        assert_eq!(
            response.json(),
            serde_json::json!({
                "resource": format!("https://tools.example{path}"),
                "authorization_servers": ["https://id.example"],
                "bearer_methods_supported": ["header"],
            })
        );
        assert_eq!(world.send(request.clone().with("Origin", "http://evil")).await.status, 403);
        assert_eq!(world.send(request.with("Host", "evil")).await.status, 403);
    }
    let AuthWorld { world, .. } = auth_world(None).await;
    let response = world.send(Request::new("GET", "/.well-known/oauth-protected-resource")).await;
    assert_eq!(response.status, 404);
}

#[tokio::test]
async fn a_stranger_is_refused_before_the_body_is_read() {
    let AuthWorld { world, .. } = auth_world(None).await;
    let mut client = world.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer eve\r\nContent-Length: 1000000\r\n\r\n",
        world.address
    );
    client.stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.status, 401);
}

/// Returns every kind of request that uses a session id.
fn session_uses(session: &str) -> Vec<Request> {
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let requests = vec![
        Request::post(list),
        Request::post(format!("[{list}]")),
        Request::post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#),
        Request::post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        Request::new("GET", "/mcp"),
        Request::new("GET", "/mcp").with("Last-Event-ID", "0-0"),
        Request::new("GET", "/mcp").with("Last-Event-ID", "1-0"),
        Request::new("DELETE", "/mcp"),
        Request::post(list).to("/servers/nobody/mcp"),
    ];
    requests.into_iter().map(|request| request.in_session(session)).collect()
}

#[tokio::test]
async fn the_session_id_of_another_is_worth_as_much_as_a_random_one() {
    let scene = auth_world(None).await;
    let session = scene.session().await;
    let random = "0123456789abcdef0123456789abcdef";
    for (stolen, made_up) in session_uses(&session).into_iter().zip(session_uses(random)) {
        let stolen = scene.world.send(stolen.with_token("bob")).await;
        let made_up = scene.world.send(made_up.with_token("bob")).await;
        assert_eq!(stolen.status, 404, "{stolen:?}");
        let seen = |response: &crate::world::Response| {
            (response.status, response.body.clone(), response.header("content-type").map(str::to_owned))
        };
        assert_eq!(seen(&stolen), seen(&made_up));
    }
    assert_eq!(scene.world.gateway.session_count(), 1);
    let own = session_uses(&session).remove(0).with_token("ada");
    assert_eq!(scene.world.send(own).await.status, 200);
}

#[tokio::test]
async fn a_credential_whose_time_is_over_ends_its_streams_and_leaves_the_session_to_its_successor() {
    let scene = auth_world(None).await;
    let session = scene.session().await;
    let stream = scene.stream(Request::new("GET", "/mcp").in_session(&session).with_token("ada")).await;
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let listen = Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{meta}}}}}"#
    ));
    let listen = listen
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "subscriptions/listen")
        .with_token("ada");
    let listening = scene.stream(listen).await;
    scene.ada.expire();
    wait_for_end(stream).await;
    wait_for_end(listening).await;
    assert_eq!(scene.world.gateway.session_count(), 1);
}

#[tokio::test]
async fn a_credential_that_is_taken_back_ends_the_sessions_of_its_caller_and_of_nobody_else() {
    let scene = auth_world(None).await;
    let session = scene.session().await;
    let others = scene.world.send(Request::initialize("2025-11-25").with_token("bob")).await.session();
    let stream = scene.stream(Request::new("GET", "/mcp").in_session(&session).with_token("ada")).await;
    let ended = scene.world.gateway.end_sessions_of(|caller| caller.principal() == "ada");
    assert_eq!((ended, scene.world.gateway.session_count()), (1, 1));
    wait_for_end(stream).await;
    let request = |session: &str| session_uses(session).remove(0);
    assert_eq!(scene.world.send(request(&session).with_token("ada")).await.status, 404);
    assert_eq!(scene.world.send(request(&others).with_token("bob")).await.status, 200);
}

#[tokio::test]
async fn a_call_whose_credential_is_taken_back_ends_as_unknown_by_its_id() {
    let params = r#"{"name":"fake__sleep","arguments":{"ms":60000}}"#;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let modern = format!(r#"{},{meta}}}"#, &params[..params.len() - 1]);
    let call =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#);
    for (accept, is_batch) in [
        ("application/json", false),
        ("application/json, text/event-stream", false),
        ("application/json", true),
    ] {
        let scene = auth_world(None).await;
        scene.world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
        let request = match is_batch {
            true => Request::post(format!("[{}]", call(params))).in_session(&scene.session().await),
            false => Request::post(call(&modern))
                .with("MCP-Protocol-Version", "2026-07-28")
                .with("Mcp-Method", "tools/call")
                .with("Mcp-Name", "fake__sleep"),
        };
        let mut client = scene.world.connect().await;
        client.start(request.with("Accept", accept).with_token("ada")).await;
        let in_flight = || scene.world.host.status_of("fake").unwrap().in_flight;
        eventually("the call is under way", PATIENCE, || in_flight() == 1).await;
        scene.ada.revoke();
        let answer: serde_json::Value = serde_json::from_str(&client.head_and_body().await.body).unwrap();
        let answer = if is_batch { &answer[0] } else { &answer };
        let said = (&answer["id"], &answer["error"]["code"], &answer["error"]["data"]["delivery"]);
        assert_eq!(said, (&9.into(), &(-31003).into(), &"unknown".into()), "{accept} {is_batch}: {answer}");
        eventually("the call is given up", PATIENCE, || in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_call_of_a_session_whose_credential_is_taken_back_ends_as_unknown_too() {
    for accept in ["application/json", "application/json, text/event-stream"] {
        let scene = auth_world(None).await;
        scene.world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
        let params = r#"{"name":"fake__sleep","arguments":{"ms":60000}}"#;
        let call = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#);
        let request = Request::post(call).in_session(&scene.session().await);
        let mut client = scene.world.connect().await;
        client.start(request.with("Accept", accept).with_token("ada")).await;
        let in_flight = || scene.world.host.status_of("fake").unwrap().in_flight;
        eventually("the call is under way", PATIENCE, || in_flight() == 1).await;
        scene.ada.revoke();
        scene.world.gateway.end_sessions_of(|caller| caller.principal() == "ada");
        let answer = client.head_and_body().await.json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&9.into(), &(-31003).into()), "{answer}");
        eventually("the call is given up", PATIENCE, || in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_streamed_call_whose_credential_is_taken_back_says_so_at_its_end() {
    let keep_alive = std::time::Duration::from_millis(20);
    let scene = auth_world_with(GatewayOptions { keep_alive, ..GatewayOptions::default() }).await;
    scene.world.host.spawn(&Caller::local(), fake_mcp_spec("fake", &[])).await.unwrap();
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"fake__sleep","arguments":{{"ms":60000}},"_meta":{meta}}}}}"#
    ));
    let call = call
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", "fake__sleep");
    let mut client = scene.stream(call.with_token("ada")).await;
    let in_flight = || scene.world.host.status_of("fake").unwrap().in_flight;
    eventually("the call is under way", PATIENCE, || in_flight() == 1).await;
    scene.ada.revoke();
    let mut last = String::new();
    while let Some(chunk) = client.chunk().await {
        last = chunk;
    }
    let said = last.strip_prefix("event: message\ndata: ").expect("the last event is an answer");
    let said: serde_json::Value = serde_json::from_str(said).unwrap();
    assert_eq!((&said["id"], &said["error"]["code"]), (&9.into(), &(-31003).into()));
    eventually("the call is given up", PATIENCE, || in_flight() == 0).await;
}
