//! Endpoint of a hidden server: equal to that of a missing one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_core::config::Role;
use ostler_host::{Caller, Rules, ServerName, ServerSpec};
use ostler_testkit::Reconfigure;

use crate::world::{Request, World};

#[tokio::test]
async fn a_hidden_server_has_no_endpoint() {
    let world = World::new().await;
    for name in ["seen", "hush"] {
        let spec = ServerSpec::stdio(ServerName::new(name).unwrap(), "true").lazy();
        world.host.spawn(&Caller::operator(), spec).await.unwrap();
    }
    let role = Role { allow: vec!["seen/*".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("local".to_owned(), role)]))).await;
    let requests = [
        Request::modern("tools/list", "1"),
        Request::modern("server/discover", "1"),
        Request::initialize("2025-11-25"),
        Request::post("{").with("Content-Type", "text/plain"),
        Request::new("GET", "/").in_session("x"),
        Request::new("DELETE", "/").in_session("x"),
        Request::new("PUT", "/"),
    ];
    let records = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        let denied = record.denied_by.unwrap_or_default();
        book.lock()
            .unwrap()
            .push(format!("{} {} {}: {denied}", record.principal, record.method, record.outcome));
    })));
    for request in requests {
        let hidden = world.send(request.clone().to("/servers/hush/mcp")).await;
        let unknown = world.send(request.clone().to("/servers/none/mcp")).await;
        assert_eq!((hidden.status, &hidden.body), (unknown.status, &unknown.body));
        assert_eq!(hidden.status, 404);
    }
    let records = std::mem::take(&mut *records.lock().unwrap());
    assert_eq!(records.len(), 14, "one for each: {records:?}");
    let why = "role `local`: no allow pattern matches";
    assert_eq!(records[0], format!("local tools/list unknown-server: {why}"));
    assert_eq!(records[1], "local tools/list unknown-server: ", "no rule is about none");
    assert_eq!(records[2], format!("local POST /servers/hush/mcp unknown-server: {why}"));
    assert_eq!(records[3], "local POST /servers/none/mcp unknown-server: ");
    let seen = world.send(Request::new("DELETE", "/servers/seen/mcp").in_session("x")).await;
    assert_ne!(seen.body, world.send(Request::new("DELETE", "/servers/hush/mcp")).await.body);
}
