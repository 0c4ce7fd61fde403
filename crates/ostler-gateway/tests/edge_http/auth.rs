//! Callers by their credentials: what is one's own, and what ends with it.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_gateway::{
    Admitted, Authenticate, Check, GatewayOptions, Knock, Limits, Pass, ResourceMetadata, Unauthorized,
};
use ostler_host::Caller;
use ostler_testkit::{eventually, fake_spec};
use tokio::io::AsyncWriteExt;

use crate::world::{Client, PATIENCE, Request, World};

/// Tokens and their passes; `slow-NAME` is told after a while.
#[derive(Default)]
pub(crate) struct Book(pub(crate) HashMap<&'static str, Pass>);

impl Book {
    fn find(&self, name: &str) -> Result<Admitted, Unauthorized> {
        let pass = self.0.get(name).ok_or_else(|| Unauthorized::invalid("the token is not known"))?;
        Ok(Admitted { caller: Caller::new(name, "local"), pass: Some(pass.clone()) })
    }
}

impl Authenticate for Book {
    fn check(&self, knock: &Knock<'_>) -> Check {
        let token = match knock.bearer() {
            Ok(Some(token)) => token,
            Ok(None) => return Check::Refused(Unauthorized::missing("send a bearer token")),
            Err(why) => return Check::Refused(why),
        };
        match token.strip_prefix("slow-") {
            Some(name) => {
                let found = self.find(name);
                Check::Wait(Box::pin(async {
                    tokio::task::yield_now().await;
                    found
                }))
            }
            None => match self.find(token) {
                Ok(admitted) => Check::Admitted(admitted),
                Err(why) => Check::Refused(why),
            },
        }
    }
}

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) ada: Pass,
}

async fn scene(metadata: Option<ResourceMetadata>) -> Scene {
    scene_with(GatewayOptions {
        resource_metadata: metadata,
        allowed_hosts: vec!["tools.example".into()],
        ..GatewayOptions::default()
    })
    .await
}

pub(crate) async fn scene_with(options: GatewayOptions) -> Scene {
    let ada = Pass::new();
    let book = Book(HashMap::from([("ada", ada.clone()), ("bob", Pass::new())]));
    let options = GatewayOptions { authenticate: Arc::new(book), ..options };
    Scene { world: World::with(options, Limits::default()).await, ada }
}

pub(crate) trait As {
    fn by(self, name: &str) -> Self;
}

impl As for Request {
    fn by(self, name: &str) -> Self {
        self.with("Authorization", &format!("Bearer {name}"))
    }
}

impl Scene {
    /// A session of Ada's.
    pub(crate) async fn session(&self) -> String {
        self.world.send(Request::initialize("2025-03-26").by("ada")).await.session()
    }

    /// A stream that has begun.
    pub(crate) async fn stream(&self, request: Request) -> Client {
        let mut client = self.world.connect().await;
        client.start(request).await;
        let head = client.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        client
    }
}

async fn ends(mut client: Client) {
    while client.chunk().await.is_some() {}
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_where_tokens_come_from() {
    let metadata = ResourceMetadata { authorization_servers: vec!["https://id.example".into()], base: None };
    let Scene { world, .. } = scene(Some(metadata)).await;
    let good = Request::modern("tools/list", "1").with("Host", "tools.example");
    let told = |path: &str| {
        format!("resource_metadata=\"http://tools.example/.well-known/oauth-protected-resource{path}\"")
    };
    let table = [
        (good.clone(), "/mcp", "Bearer realm=\"ostler\", ".to_owned()),
        (good.clone().by("eve"), "/mcp", "Bearer realm=\"ostler\", error=\"invalid_token\", ".into()),
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
    assert_eq!(world.send(good.by("slow-ada")).await.status, 200);
}

#[tokio::test]
async fn metadata_is_told_to_everybody_but_strange_pages_and_reveals_no_server() {
    let metadata = ResourceMetadata {
        authorization_servers: vec!["https://id.example".into()],
        base: Some("https://tools.example/".into()),
    };
    let Scene { world, .. } = scene(Some(metadata)).await;
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
    let Scene { world, .. } = scene(None).await;
    let response = world.send(Request::new("GET", "/.well-known/oauth-protected-resource")).await;
    assert_eq!(response.status, 404);
}

#[tokio::test]
async fn a_stranger_is_refused_before_the_body_is_read() {
    let Scene { world, .. } = scene(None).await;
    let mut client = world.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer eve\r\nContent-Length: 1000000\r\n\r\n",
        world.address
    );
    client.stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.status, 401);
}

/// Every use of a session id.
fn uses(session: &str) -> Vec<Request> {
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
    let scene = scene(None).await;
    let session = scene.session().await;
    let random = "0123456789abcdef0123456789abcdef";
    for (stolen, made_up) in uses(&session).into_iter().zip(uses(random)) {
        let stolen = scene.world.send(stolen.by("bob")).await;
        let made_up = scene.world.send(made_up.by("bob")).await;
        assert_eq!(stolen.status, 404, "{stolen:?}");
        let seen = |response: &crate::world::Response| {
            (response.status, response.body.clone(), response.header("content-type").map(str::to_owned))
        };
        assert_eq!(seen(&stolen), seen(&made_up));
    }
    assert_eq!(scene.world.gateway.sessions(), 1);
    let own = uses(&session).remove(0).by("ada");
    assert_eq!(scene.world.send(own).await.status, 200);
}

#[tokio::test]
async fn a_credential_whose_time_is_over_ends_its_streams_and_leaves_the_session_to_its_successor() {
    let scene = scene(None).await;
    let session = scene.session().await;
    let stream = scene.stream(Request::new("GET", "/mcp").in_session(&session).by("ada")).await;
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let listen = Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{meta}}}}}"#
    ));
    let listen = listen
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "subscriptions/listen")
        .by("ada");
    let listening = scene.stream(listen).await;
    scene.ada.expire();
    ends(stream).await;
    ends(listening).await;
    assert_eq!(scene.world.gateway.sessions(), 1);
}

#[tokio::test]
async fn a_credential_that_is_taken_back_ends_the_sessions_of_its_caller_and_of_nobody_else() {
    let scene = scene(None).await;
    let session = scene.session().await;
    let others = scene.world.send(Request::initialize("2025-11-25").by("bob")).await.session();
    let stream = scene.stream(Request::new("GET", "/mcp").in_session(&session).by("ada")).await;
    let ended = scene.world.gateway.end_callers(|caller| caller.principal() == "ada");
    assert_eq!((ended, scene.world.gateway.sessions()), (1, 1));
    ends(stream).await;
    let request = |session: &str| uses(session).remove(0);
    assert_eq!(scene.world.send(request(&session).by("ada")).await.status, 404);
    assert_eq!(scene.world.send(request(&others).by("bob")).await.status, 200);
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
        let scene = scene(None).await;
        scene.world.host.spawn(&Caller::local(), fake_spec("fake", &[])).await.unwrap();
        let request = match is_batch {
            true => Request::post(format!("[{}]", call(params))).in_session(&scene.session().await),
            false => Request::post(call(&modern))
                .with("MCP-Protocol-Version", "2026-07-28")
                .with("Mcp-Method", "tools/call")
                .with("Mcp-Name", "fake__sleep"),
        };
        let mut client = scene.world.connect().await;
        client.start(request.with("Accept", accept).by("ada")).await;
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
        let scene = scene(None).await;
        scene.world.host.spawn(&Caller::local(), fake_spec("fake", &[])).await.unwrap();
        let params = r#"{"name":"fake__sleep","arguments":{"ms":60000}}"#;
        let call = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}"#);
        let request = Request::post(call).in_session(&scene.session().await);
        let mut client = scene.world.connect().await;
        client.start(request.with("Accept", accept).by("ada")).await;
        let in_flight = || scene.world.host.status_of("fake").unwrap().in_flight;
        eventually("the call is under way", PATIENCE, || in_flight() == 1).await;
        scene.ada.revoke();
        scene.world.gateway.end_callers(|caller| caller.principal() == "ada");
        let answer = client.head_and_body().await.json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&9.into(), &(-31003).into()), "{answer}");
        eventually("the call is given up", PATIENCE, || in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_streamed_call_whose_credential_is_taken_back_says_so_at_its_end() {
    let keep_alive = std::time::Duration::from_millis(20);
    let scene = scene_with(GatewayOptions { keep_alive, ..GatewayOptions::default() }).await;
    scene.world.host.spawn(&Caller::local(), fake_spec("fake", &[])).await.unwrap();
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = Request::post(format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"fake__sleep","arguments":{{"ms":60000}},"_meta":{meta}}}}}"#
    ));
    let call = call
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", "fake__sleep");
    let mut client = scene.stream(call.by("ada")).await;
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
