//! Exposed names of many servers on one endpoint.

use ostler_gateway::Scope;
use ostler_testkit::{Script, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().expect("a list of tools");
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn equal_tools_of_two_servers_are_called_apart() {
    let world = TestHost::new().server("a", Script::echo()).server("b", Script::echo()).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    assert_eq!(names(&client.request("tools/list", json!({})).await), ["a__echo", "b__echo"]);
    client.call("b__echo", json!({"x": 1})).await;
    assert_eq!((world.server("a").count("echo"), world.server("b").count("echo")), (0, 1));
    assert_eq!(world.server("b").requests_for("echo")[0].arguments.as_deref(), Some(r#"{"x":1}"#));
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_found_without_listing_first() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({})).await;
    let answer = client.call("a__echo", json!({})).await;
    assert!(answer.get("result").is_some(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn names_beyond_64_characters_and_names_that_collide_are_short_and_stable() {
    let long = "x".repeat(90);
    let open = || {
        let twins = Script::new().tool("_b");
        TestHost::new()
            .server("long", Script::new().tool(&long))
            .server("a", twins)
            .server("a_", Script::new().tool("b"))
    };
    let mut lists = Vec::new();
    for _ in 0..2 {
        let world = open().start().await;
        let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
        let found = names(&client.request("tools/list", json!({})).await);
        for name in &found {
            assert!(name.len() <= 64, "{name}");
            let answer = client.call(name, json!({})).await;
            assert!(answer.get("result").is_some(), "{name}: {answer}");
        }
        lists.push(found);
    }
    assert_eq!(lists[0].len(), 3);
    assert_eq!(lists[0], lists[1]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_said_to_be_unknown_with_what_may_be_meant() {
    let world = TestHost::new().server("time", Script::new().tool("now")).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.call("time__nov", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(answer["error"]["data"]["code"], "unknown-tool");
    assert!(answer["error"]["data"]["hint"].as_str().unwrap().contains("time__now"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_of_one_server_tells_an_unknown_tool_by_its_own_name() {
    let world = TestHost::new().server("time", Script::new().tool("now")).start().await;
    let face = Scope::Server(ostler_core::server_name::ServerName::new("time").unwrap());
    let gateway = gateway(&world, |_| {});
    let mut modern = Client::modern(&gateway, face.clone(), json!({}));
    let mut legacy = Client::legacy(&gateway, face, json!({})).await;
    for client in [&mut modern, &mut legacy] {
        let error = client.call("nov", json!({})).await["error"].clone();
        assert!(error["message"].as_str().unwrap().starts_with("unknown tool `nov`"), "{error}");
        assert!(!error.to_string().contains("time__"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_unknown_names_do_not_make_servers_list_again_and_again() {
    let silent = Script::new().tool("now").without_list_changed();
    let world = TestHost::new().server("time", silent).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    for n in 0..50 {
        client.call(&format!("no{n}"), json!({})).await;
    }
    assert!(world.server("time").count("tools/list") <= 2, "{}", world.server("time").count("tools/list"));
}

#[tokio::test(start_paused = true)]
async fn a_name_asks_only_the_server_it_may_belong_to() {
    let hung = Script::echo().on("tools/list", |_| ostler_testkit::ScriptedReply::never());
    let world = TestHost::new().server("good", Script::echo()).server("hung", hung).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let began = tokio::time::Instant::now();
    assert!(client.call("good__echo", json!({})).await.get("result").is_some());
    assert_eq!(client.call("good__none", json!({})).await["error"]["data"]["code"], "unknown-tool");
    assert_eq!(client.call("none__echo", json!({})).await["error"]["data"]["code"], "unknown-tool");
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(world.server("hung").connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_a_server_that_can_not_start_fails_with_the_reason() {
    let world = TestHost::new().server("dead", Script::echo().failing_starts(|_| true)).start().await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.call("dead__echo", json!({})).await;
    assert_ne!(answer["error"]["data"]["code"], "unknown-tool", "{answer}");
    assert_eq!(answer["error"]["data"]["server"], "dead", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_no_object_do_not_reach_the_server() {
    let world = TestHost::new().server("a", Script::echo()).start().await;
    let gateway = gateway(&world, |_| {});
    for (face, name) in [(Scope::All, "a__echo"), (crate::client::server_scope("a"), "echo")] {
        let mut client = Client::modern(&gateway, face, json!({}));
        for arguments in [json!(5), json!([]), json!("x")] {
            let answer = client.call(name, arguments).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }
    assert_eq!(world.server("a").count("echo"), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_hear_of_servers_that_come_and_go() {
    let mut world = TestHost::new().server("a", Script::echo()).start().await;
    let mut client = Client::legacy(&gateway(&world, |_| {}), Scope::All, json!({})).await;
    world.spawn(TestHost::spec("b").lazy(), Script::echo()).await.unwrap();
    while client.receive().await["method"] != "notifications/tools/list_changed" {}
    assert_eq!(names(&client.request("tools/list", json!({})).await), ["a__echo", "b__echo"]);
    world.advance(std::time::Duration::from_secs(2)).await;
    world.host.remove("b").await.unwrap();
    while client.receive().await["method"] != "notifications/tools/list_changed" {}
    assert_eq!(names(&client.request("tools/list", json!({})).await), ["a__echo"]);
}
