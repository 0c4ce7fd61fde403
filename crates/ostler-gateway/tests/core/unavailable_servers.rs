//! Unavailable servers: named in the instructions for models.

use std::collections::BTreeMap;

use ostler_core::caller::Caller;
use ostler_core::config::Role;
use ostler_core::policy::Rules;
use ostler_gateway::{Gateway, Scope};
use ostler_testkit::{Reconfigure, Script, TestHost};
use serde_json::{Value, json};

use crate::client::{Client, gateway};

/// Returns a world of servers with these names that never start, and one that works.
async fn world(broken: &[&str]) -> TestHost {
    let failing = || Script::echo().failing_starts(|_| true);
    let world = broken.iter().fold(TestHost::new().server("works", Script::echo()), |world, name| {
        world.server_with(name, failing(), |spec| spec.restart.max = 0)
    });
    let world = world.start().await;
    for name in broken {
        world.call(name, "echo").await.unwrap_err();
    }
    world
}

/// Returns the instructions that a caller reads in each era.
async fn instructions(gateway: &Gateway, caller: &Caller) -> Vec<String> {
    let opened = Client::initialize_line(caller.clone(), gateway, Scope::All).await;
    let opened: Value = serde_json::from_str(&opened).unwrap();
    let mut client = Client::for_caller(caller.clone(), gateway, Scope::All, ostler_wire::Era::Modern).await;
    let discovered = client.request("server/discover", json!({})).await;
    [opened, discovered]
        .iter()
        .map(|said| said["result"]["instructions"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_which_servers_are_missing_and_why() {
    let world = world(&["broken"]).await;
    let gateway = gateway(&world, |_| {});
    for said in instructions(&gateway, &Caller::local()).await {
        assert!(
            said.ends_with(
                ".\n\nNot available now: broken (it could not be started). If one of them is needed, tell the user; the \
                 resource ostler://status says more."
            ),
            "{said}"
        );
    }
    world.host.stop("works").await.unwrap();
    for said in instructions(&gateway, &Caller::local()).await {
        assert!(said.contains("works (it was stopped by its operator)"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_is_well_nothing_is_added() {
    let world = world(&[]).await;
    world.call("works", "echo").await.unwrap();
    for said in instructions(&gateway(&world, |_| {}), &Caller::local()).await {
        assert_eq!(said, "Tools and prompts of 1 server, named server__name. Servers: works.");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_hear_of_servers_that_they_may_see_and_of_causes_where_they_may_use_all() {
    let world = world(&["part", "unseen"]).await;
    let some = Role { allow: vec!["part/echo".into()], deny: Vec::new(), budget: None, max_in_flight: None };
    world.host.set_rules(Rules::from_roles(&BTreeMap::from([("some".to_owned(), some)]))).await;
    for said in instructions(&gateway(&world, |_| {}), &Caller::new("x", "some")).await {
        assert!(said.contains("Not available now: part (it is not available). If"), "{said}");
        assert!(!said.contains("unseen") && !said.contains("started"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_missing_servers_are_counted_and_leave_the_advice_of_others_alone() {
    let names: Vec<String> = (0..50).map(|n| format!("broken-{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = world(&names).await;
    for said in instructions(&gateway(&world, |_| {}), &Caller::local()).await {
        let (_, missing) = said.split_once("Not available now: ").unwrap();
        assert!(missing.contains("broken-07 (it could not be started), 42 more. If"), "{missing}");
        assert!(!missing.contains("broken-08") && missing.len() < 1_500, "{missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_server_that_is_down_says_why() {
    let world = world(&["broken"]).await;
    let mut client = Client::modern(&gateway(&world, |_| {}), Scope::All, json!({}));
    let answer = client.call("broken__echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["code"], "server-unavailable", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("server `broken`"), "{answer}");
}
