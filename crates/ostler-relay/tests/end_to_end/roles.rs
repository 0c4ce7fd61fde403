//! Roles: a worker lists and uses only what its role permits.

use ostler_core::config::Role;
use ostler_host::Rules;
use ostler_testkit::{Reconfigure, Script, TestHost, TestHostBuilder};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::agent_client::AgentClient;
use crate::pair::RelayPair;

fn rules(allow: &[&str]) -> Rules {
    let allow = allow.iter().map(|&rule| rule.to_owned()).collect();
    let role = Role { allow, deny: Vec::new(), budget: None, max_in_flight: None };
    Rules::from_roles(&[("dev".to_owned(), role)].into())
}

fn builder(allow: &[&str]) -> TestHostBuilder {
    let rules = rules(allow);
    TestHost::new()
        .options(|options| options.rules = rules)
        .server("a", Script::new().tool("yes").tool("no"))
        .server("b", Script::new().tool("no"))
}

async fn names(agent: &mut AgentClient) -> Vec<String> {
    let listed = agent.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_the_role_may_not_use_does_not_exist() {
    let pair = RelayPair::open(builder(&["a/yes"])).await;
    let (mut agent, mut client) =
        (pair.agent(Era::Modern, json!({})).await, pair.client(Era::Modern, json!({})).await);
    assert_eq!(names(&mut agent).await, ["a__yes"]);
    assert!(agent.call("a__yes", json!({})).await.get("result").is_some());
    for hidden in ["a__no", "b__no"] {
        let (there, here) = (agent.call(hidden, json!({})).await, client.call(hidden, json!({})).await);
        assert_eq!(there["error"]["data"]["code"], "unknown-tool", "{there}");
        assert_eq!(there["error"], here["error"], "{hidden}");
    }
    assert_eq!((pair.test_host.server("a").count("no"), pair.test_host.server("b").count("no")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_nobody_knows_gets_an_error_and_no_empty_list() {
    let pair = RelayPair::with_role(builder(&["*"]), "ghost").await;
    let mut agent = pair.agent(Era::Modern, json!({})).await;
    let listed = agent.request("tools/list", json!({})).await;
    assert!(listed.get("error").is_some(), "{listed}");
    let called = agent.call("a__yes", json!({})).await;
    assert!(called.get("error").is_some(), "{called}");
    assert_eq!(pair.test_host.server("a").count("yes"), 0);
}

#[tokio::test(start_paused = true)]
async fn other_rules_reach_the_agent_as_a_changed_list() {
    let pair = RelayPair::open(builder(&["a/yes"])).await;
    let mut agent = pair.agent(Era::Legacy, json!({})).await;
    assert_eq!(names(&mut agent).await, ["a__yes"]);
    pair.test_host.host.set_rules(rules(&["a/*", "b/*"])).await;
    let notification: Value = serde_json::from_str(&agent.line().await).unwrap();
    assert_eq!(notification["method"], "notifications/tools/list_changed");
    // The first notification may be the change of one of several servers.
    while names(&mut agent).await.len() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(names(&mut agent).await, ["a__yes", "a__no", "b__no"]);
    pair.test_host.host.set_rules(rules(&["a/no"])).await;
    while names(&mut agent).await.len() > 1 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(names(&mut agent).await, ["a__no"]);
}
