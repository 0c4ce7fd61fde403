//! Server cards and their catalog: behind the same checks and the same policy as the endpoints.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use ostler_core::config::Role;
use ostler_gateway::{ConnectionLimits, GatewayOptions, HttpService, ResourceMetadata};
use ostler_host::{Caller, Rules, ServerCard, ServerName, ServerSpec};
use ostler_testkit::Reconfigure;

use crate::auth::{WithToken, auth_world_with};
use crate::world::{Request, Response, World};

const CATALOG: &str = "/.well-known/mcp/catalog.json";
const PATHS: [&str; 3] = ["/mcp/server-card", "/servers/seen/mcp/server-card", CATALOG];

fn get(path: &str) -> Request {
    Request::new("GET", path)
}

/// Adds two servers, of which the role `local` sees those in `allow`.
async fn with_servers(world: &World, allow: &[&str]) {
    for name in ["seen", "hush"] {
        let mut spec = ServerSpec::stdio(ServerName::new(name).unwrap(), "no-such-program").lazy();
        spec.card = Some("/no/such/card.json".into());
        world.host.spawn(&Caller::operator(), spec).await.unwrap();
    }
    let allow = allow.iter().map(|&pattern| pattern.to_owned()).collect();
    let role = Role { allow, deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("local".to_owned(), role)]))).await;
}

/// Returns the URLs in a catalog.
fn urls(catalog: &Response) -> Vec<String> {
    let catalog = catalog.json();
    assert_eq!(catalog["specVersion"], "draft");
    let entries = catalog["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            assert_eq!(entry["type"], "application/mcp-server-card+json");
            entry["url"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn each_endpoint_has_a_card_and_the_catalog_leads_to_it() {
    let world = World::new().await;
    with_servers(&world, &["*"]).await;
    let base = format!("http://{}", world.address);
    let catalog = world.send(get(CATALOG)).await;
    assert_eq!((catalog.status, catalog.header("content-type")), (200, Some("application/json")));
    let urls = urls(&catalog);
    let ends = ["/mcp", "/servers/hush/mcp", "/servers/seen/mcp"];
    assert_eq!(urls, ends.map(|end| format!("{base}{end}/server-card")));
    for (url, end) in urls.iter().zip(ends) {
        let response = world.send(get(url.strip_prefix(&base).unwrap())).await;
        assert_eq!(response.header("content-type"), Some("application/mcp-server-card+json"));
        assert_eq!(response.header("cache-control"), Some("private, max-age=60"));
        assert_eq!(response.header("vary"), Some("authorization, origin"));
        let card = ServerCard::parse(response.body.as_bytes()).unwrap();
        assert_eq!(card.remotes[0].url, format!("{base}{end}"));
        assert_eq!(card.remotes[0].supported_protocol_versions[0], "2026-07-28");
        assert!(card.description.len() <= 100, "as the schema has it: {card:?}");
        for key in ["tools", "resources", "prompts"] {
            assert!(response.json().get(key).is_none(), "{key}");
        }
    }
    assert_eq!(world.send(Request::new("POST", PATHS[0])).await.status, 405);
    let status = world.host.status_of("seen").unwrap();
    assert_eq!((status.starts_total, status.card), (0, None), "no server is started or asked for its card");
}

#[tokio::test]
async fn a_hidden_server_has_the_card_of_none() {
    let world = World::new().await;
    with_servers(&world, &["seen/*"]).await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        book.lock().unwrap().push(format!("{} {}", record.method, record.outcome));
    })));
    let hidden = world.send(get("/servers/hush/mcp/server-card")).await;
    let unknown = world.send(get("/servers/none/mcp/server-card")).await;
    let odd = world.send(get("/servers/..%2fseen/mcp/server-card")).await;
    for other in [&unknown, &odd] {
        assert_eq!((hidden.status, &hidden.body), (other.status, &other.body));
        assert_eq!(hidden.header("content-type"), other.header("content-type"));
    }
    let endpoint = world.send(Request::modern("tools/list", "1").to("/servers/hush/mcp")).await;
    assert_eq!((hidden.status, hidden.body), (endpoint.status, endpoint.body), "as the endpoint says it");
    assert_eq!(records.lock().unwrap()[0], "GET /servers/hush/mcp unknown-server");
    let catalog = world.send(get(CATALOG)).await;
    assert!(!catalog.body.contains("hush"), "{catalog:?}");
    assert_eq!(world.send(get("/servers/seen/mcp/server-card")).await.status, 200);
}

#[tokio::test]
async fn a_role_that_sees_nothing_finds_the_endpoint_of_all_alone() {
    let world = World::new().await;
    with_servers(&world, &[]).await;
    let catalog = world.send(get(CATALOG)).await;
    assert_eq!(urls(&catalog), [format!("http://{}/mcp/server-card", world.address)]);
    assert_eq!(world.send(get(PATHS[1])).await.status, 404);
    let card = world.send(get(PATHS[0])).await;
    assert!(!card.body.contains("seen") && !card.body.contains("hush"), "{card:?}");
}

#[tokio::test]
async fn cards_are_for_those_who_may_use_the_endpoints() {
    let options = GatewayOptions {
        allowed_hosts: vec!["tools.example".into()],
        allowed_origins: vec!["https://app.example".into()],
        ..GatewayOptions::default()
    };
    let scene = auth_world_with(options).await;
    with_servers(&scene.world, &["*"]).await;
    for path in PATHS {
        let request = get(path).with_token("ada");
        for (request, expected) in [
            (request.clone(), 200),
            (get(path), 401),
            (request.clone().with_token("eve"), 401),
            (request.clone().with("Host", "tools.example"), 200),
            (request.clone().with("Host", "evil.example"), 403),
            (request.clone().with("Origin", "https://evil.example"), 403),
            (request.clone().with("Origin", "https://app.example"), 200),
        ] {
            let response = scene.world.send(request).await;
            assert_eq!(response.status, expected, "{path}: {response:?}");
        }
        let page = scene.world.send(request.with("Origin", "https://app.example")).await;
        assert_eq!(page.header("access-control-allow-origin"), Some("https://app.example"));
    }
}

#[tokio::test]
async fn addresses_in_cards_are_those_that_clients_use() {
    let metadata = ResourceMetadata {
        authorization_servers: vec!["https://id.example".into()],
        base_url: Some("https://tools.example/".into()),
    };
    let options = GatewayOptions { resource_metadata: Some(metadata), ..GatewayOptions::default() };
    let nested =
        |gateway: &ostler_gateway::Gateway| HttpService::from(Router::new().nest("/x/y", gateway.router()));
    let world = World::serving(options, ConnectionLimits::default(), nested).await;
    with_servers(&world, &["*"]).await;
    let catalog = world.send(get(&format!("/x/y{CATALOG}"))).await;
    assert_eq!(catalog.json()["entries"][2]["identifier"], "urn:air:tools.example:seen");
    assert_eq!(urls(&catalog)[2], "https://tools.example/x/y/servers/seen/mcp/server-card");
    let card = world.send(get("/x/y/servers/seen/mcp/server-card")).await.json();
    assert_eq!(card["remotes"][0]["url"], "https://tools.example/x/y/servers/seen/mcp");
    let card = world.send(get("/x/y/mcp/server-card")).await.json();
    assert_eq!(card["remotes"][0]["url"], "https://tools.example/x/y/mcp");
}

#[tokio::test]
async fn a_gateway_of_one_server_says_so() {
    let options =
        GatewayOptions { only_server: Some(ServerName::new("seen").unwrap()), ..GatewayOptions::default() };
    let world = World::with(options, ConnectionLimits::default()).await;
    with_servers(&world, &["*"]).await;
    let card = world.send(get("/mcp/server-card")).await.json();
    assert_eq!(card["name"], "dev.ostler/seen");
    assert_eq!(card["remotes"][0]["url"], format!("http://{}/mcp", world.address));
}
