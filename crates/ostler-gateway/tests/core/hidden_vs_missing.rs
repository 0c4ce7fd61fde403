//! Hidden and missing items: no reply tells them apart.
//!
//! One world has more than a role may see, the other has only that. Every request of the role gets the same bytes in
//! both, and in the first world a request for a hidden item gets the same bytes as one for a missing item.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ostler_core::config::Role;
use ostler_gateway::{Gateway, Scope};
use ostler_host::{Caller, Rules};
use ostler_testkit::{ReceivedRequest, Reconfigure, Script, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};

/// Names of a visible, a hidden and a missing item: all of one length.
const NAMES: [&str; 3] = ["plan", "hush", "none"];

fn items(member: &str, key: &str, names: &[String]) -> String {
    let items: Vec<Value> = names.iter().map(|name| json!({"name": name, key: name})).collect();
    json!({member: items, "ttlMs": 60_000, "cacheScope": "public"}).to_string()
}

/// Returns a server with these names in every list, and a method of its own.
pub(crate) fn script(names: &'static [&'static str], era: Era) -> Script {
    let named = |shape: &str| -> Vec<String> { names.iter().map(|name| shape.replace('#', name)).collect() };
    let prompts = items("prompts", "name", &named("#"));
    let resources = items("resources", "uri", &named("x://#"));
    let templates = items("resourceTemplates", "uriTemplate", &named("t://#/{id}"));
    let tools: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    let tools = json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "public"}).to_string();
    let has = |asked: &ReceivedRequest| {
        names.iter().any(|name| asked.name.as_deref().is_some_and(|uri| uri.contains(name)))
    };
    let script = names.iter().fold(Script::new(), |script, name| script.tool(name));
    let script = script
        .capabilities(r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"tasks":{"list":{}}}"#)
        .on("tools/list", move |_| ScriptedReply::result(tools.clone()))
        .on("prompts/list", move |_| ScriptedReply::result(prompts.clone()))
        .on("resources/list", move |_| ScriptedReply::result(resources.clone()))
        .on("resources/templates/list", move |_| ScriptedReply::result(templates.clone()))
        .on("prompts/get", |_| ScriptedReply::result("{\"messages\":[]}"))
        .on("resources/read", move |asked| match has(asked) {
            true => ScriptedReply::result("{\"contents\":[]}"),
            false => ScriptedReply::error(-32002, "nowhere to be seen"),
        })
        .on("resources/subscribe", |_| ScriptedReply::result("{}"))
        .on("completion/complete", |_| ScriptedReply::result(r#"{"completion":{"values":[]}}"#))
        .on("vendor/hush", |_| ScriptedReply::result("{}"));
    if era == Era::Modern { script.modern() } else { script }
}

pub(crate) fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    let role = Role { allow: owned(allow), deny: owned(deny), budget: None, max_in_flight: None };
    Rules::from_roles(&BTreeMap::from([("r".to_owned(), role)]))
}

/// Returns two equivalent sets of rules.
fn equivalent_rules() -> [Rules; 2] {
    let few = ["aa/plan", "aa/prompt:plan", "aa/resource:x://plan", "aa/resource:t://plan/*", "aa/plan*"];
    [rules(&["*"], &["zz/*", "*hush*"]), rules(&few, &[])]
}

/// Makes a world with hidden items, or one without.
async fn world(is_rich: bool, rules: Rules, era: Era) -> (TestHost, Gateway) {
    let opening = match is_rich {
        true => {
            TestHost::new().server("aa", script(&["plan", "hush"], era)).server("zz", script(&["hush"], era))
        }
        false => TestHost::new().server("aa", script(&["plan"], era)),
    };
    let world = opening.options(|options| options.seal_key = Some([7; 32])).start().await;
    world.host.set_rules(rules).await;
    let gateway = gateway(&world, |options| options.page_size = 1);
    // Every list is known before the first request.
    let mut me = Client::modern(&gateway, Scope::All, json!({}));
    for list in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        me.request(list, json!({})).await;
    }
    (world, gateway)
}

/// Returns every request that names an item, for the endpoint of one server and of all.
pub(crate) fn naming_requests(name: &str) -> Vec<(&'static str, Value, Value)> {
    let exposed = format!("aa__{name}");
    let template = format!("t://{name}/{{id}}");
    let uri = json!({"uri": format!("x://{name}")});
    let made = json!({"uri": format!("t://{name}/7")});
    let complete = |reference: Value| json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
    let prompt = |name: &str| complete(json!({"type": "ref/prompt", "name": name}));
    let resource = complete(json!({"type": "ref/resource", "uri": template}));
    let listen = |uri: &Value| json!({"notifications": {"resourceSubscriptions": [uri["uri"]]}});
    vec![
        ("tools/call", json!({"name": name, "arguments": {}}), json!({"name": exposed, "arguments": {}})),
        ("prompts/get", json!({"name": name}), json!({"name": exposed})),
        ("resources/read", uri.clone(), uri.clone()),
        ("resources/read", made.clone(), made.clone()),
        ("resources/subscribe", uri.clone(), uri.clone()),
        ("resources/unsubscribe", uri.clone(), uri.clone()),
        ("completion/complete", prompt(name), prompt(&exposed)),
        ("completion/complete", resource.clone(), resource),
        ("subscriptions/listen", listen(&uri), listen(&uri)),
        ("tasks/get", json!({"taskId": name}), json!({"taskId": name})),
        ("tasks/result", json!({"taskId": format!("o1.{name}")}), json!({"taskId": format!("o1.{name}")})),
    ]
}

/// Returns the requests that name no hidden item.
fn other_requests() -> Vec<(&'static str, Value)> {
    let mut all: Vec<(&str, Value)> =
        ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
            .into_iter()
            .flat_map(|list| [(list, json!({})), (list, json!({"cursor": "o1.AAAA"}))])
            .collect();
    all.extend([
        ("vendor/hush", json!({})),
        ("tasks/list", json!({})),
        ("server/discover", json!({})),
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "error"})),
        ("tools/call", json!({"name": "zz__hush"})),
        ("tools/call", json!({"name": "aa__plam"})),
        ("prompts/get", json!({"name": "zz__hush"})),
    ]);
    all
}

/// Returns the first line after a request.
async fn first_line(gateway: &Gateway, face: &Scope, era: Era, (method, params): (&str, &Value)) -> String {
    let mut client = Client::for_caller(Caller::new("ann", "r"), gateway, face.clone(), era).await;
    client.send_request(method, params.clone()).await;
    client.receive_line().await
}

async fn check(rules: Rules, (client, server): (Era, Era)) {
    let (_rich_world, rich) = world(true, rules.clone(), server).await;
    let (_poor_world, poor) = world(false, rules, server).await;
    let [_, hush, none] = NAMES.map(naming_requests);
    for face in [Scope::All, server_scope("aa")] {
        let pick = |(method, at_one, at_all): &(&'static str, Value, Value)| {
            (*method, if face == Scope::All { at_all.clone() } else { at_one.clone() })
        };
        for (hidden, unknown) in hush.iter().map(pick).zip(none.iter().map(pick)) {
            let of_hidden = first_line(&rich, &face, client, (hidden.0, &hidden.1)).await;
            let of_unknown = first_line(&rich, &face, client, (unknown.0, &unknown.1)).await;
            let what = format!("{} of {client:?} at {face:?} of {server:?}", hidden.0);
            // Sealed texts hide the name in base64; here they are short enough to be refused as they are.
            assert_eq!(of_hidden.replace("hush", "none"), of_unknown, "{what}");
            assert_eq!(of_hidden, first_line(&poor, &face, client, (hidden.0, &hidden.1)).await, "{what}");
        }
        for (method, params) in other_requests() {
            let here = first_line(&rich, &face, client, (method, &params)).await;
            assert!(!here.contains("zz\"") && !here.contains("\"hush"), "{here}");
            assert_eq!(
                here,
                first_line(&poor, &face, client, (method, &params)).await,
                "{method} {params} {face:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_can_not_tell_what_is_hidden() {
    for rules in equivalent_rules() {
        check(rules.clone(), (Era::Modern, Era::Legacy)).await;
        check(rules, (Era::Modern, Era::Modern)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_can_not_tell_what_is_hidden() {
    for rules in equivalent_rules() {
        check(rules.clone(), (Era::Legacy, Era::Legacy)).await;
        check(rules, (Era::Legacy, Era::Modern)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_hidden_can_be_used() {
    for rules in equivalent_rules() {
        for era in [Era::Modern, Era::Legacy] {
            let (_world, gateway) = world(true, rules.clone(), era).await;
            for face in [Scope::All, server_scope("aa")] {
                for (method, at_one, at_all) in naming_requests(NAMES[0]).into_iter().take(4) {
                    let params = if face == Scope::All { at_all } else { at_one };
                    let line = first_line(&gateway, &face, era, (method, &params)).await;
                    assert!(line.contains("\"result\""), "{method} {params} {face:?}: {line}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_uri_on_a_hidden_server_hides_nobody_elses() {
    let world = TestHost::new()
        .server("aa", script(&["plan"], Era::Legacy))
        .server("bb", script(&["plan"], Era::Legacy));
    let world = world.start().await;
    world.host.set_rules(rules(&["bb/*"], &[])).await;
    let gateway = gateway(&world, |_| {});
    Client::modern(&gateway, Scope::All, json!({})).request("resources/list", json!({})).await;
    let mut ann = Client::for_caller(Caller::new("ann", "r"), &gateway, Scope::All, Era::Modern).await;
    let read = ann.request("resources/read", json!({"uri": "x://plan"})).await;
    assert!(read.get("result").is_some(), "{read}");
    assert_eq!(
        (world.server("aa").count("resources/read"), world.server("bb").count("resources/read")),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_others_may_not_see_is_never_called_public() {
    let world = TestHost::new().server("aa", script(&["plan"], Era::Modern)).start().await;
    let gateway = gateway(&world, |_| {});
    let scope = async || {
        let mut me = Client::modern(&gateway, server_scope("aa"), json!({}));
        me.request("tools/list", json!({})).await["result"]["cacheScope"].clone()
    };
    assert_eq!(scope().await, "public");
    world.host.set_rules(rules(&["bb/*"], &[])).await;
    assert_eq!(scope().await, "private");
}

#[tokio::test(start_paused = true)]
async fn a_list_swept_for_one_caller_is_still_swept_for_another() {
    let world = TestHost::new()
        .server("aa", script(&["plan"], Era::Legacy))
        .server("bb", script(&["hush"], Era::Legacy));
    let world = world.start().await;
    world.host.set_rules(rules(&["aa/*"], &[])).await;
    let gateway = gateway(&world, |_| {});
    let mut ann = Client::for_caller(Caller::new("ann", "r"), &gateway, Scope::All, Era::Modern).await;
    assert!(ann.request("resources/read", json!({"uri": "x://hush"})).await.get("error").is_some());
    let mut me = Client::modern(&gateway, Scope::All, json!({}));
    let read = me.request("resources/read", json!({"uri": "x://hush"})).await;
    assert!(read.get("result").is_some(), "{read}");
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_refuses_is_recorded_with_the_rule() {
    let (world, gateway) = world(true, rules(&["*"], &["zz/*", "*hush*"]), Era::Legacy).await;
    let records = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&records);
    world.host.set_recorder(Some(Arc::new(move |record| {
        let (server, denied) = (record.server.to_owned(), record.denied_by.map(str::to_owned));
        book.lock().unwrap().extend(denied.map(|rule| (server, record.method.to_owned(), rule)));
    })));
    let mut ann = Client::for_caller(Caller::new("ann", "r"), &gateway, Scope::All, Era::Modern).await;
    ann.call("aa__hush", json!({})).await;
    ann.call("zz__anything", json!({})).await;
    ann.call("aa__none", json!({})).await;
    ann.request("resources/read", json!({"uri": "x://hush"})).await;
    let records = records.lock().unwrap();
    let shown: Vec<String> =
        records.iter().map(|(server, method, rule)| format!("{server} {method} {rule}")).collect();
    assert_eq!(
        shown,
        [
            "aa tools/call role `r`: deny pattern `*hush*` matches",
            "zz tools/call role `r`: deny pattern `zz/*` matches",
            "aa resources/read role `r`: deny pattern `*hush*` matches",
            "zz resources/read role `r`: deny pattern `zz/*` matches",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_is_pointed_to_a_tool_that_only_somebody_else_was_shown() {
    let script = Script::new().modern().on("tools/list", |asked| {
        let name = if asked.nth == 1 { "payroll_of_ada" } else { "plain" };
        let tool = json!({"name": name, "inputSchema": {"type": "object"}});
        ScriptedReply::result(json!({"tools": [tool], "ttlMs": 60_000, "cacheScope": "private"}).to_string())
    });
    let world = TestHost::new().server("a", script).start().await;
    let gateway = gateway(&world, |_| {});
    let mut ada = Client::for_caller(Caller::new("ada", "x"), &gateway, Scope::All, Era::Modern).await;
    let mut bob = Client::for_caller(Caller::new("bob", "x"), &gateway, Scope::All, Era::Modern).await;
    ada.request("tools/list", json!({})).await;
    bob.request("tools/list", json!({})).await;
    let typo = "a__payroll_of_adam";
    let (hers, his) = (ada.call(typo, json!({})).await, bob.call(typo, json!({})).await);
    assert!(hers.to_string().contains("did you mean"), "{hers}");
    assert!(!his.to_string().contains("did you mean"), "{his}");
}

#[tokio::test(start_paused = true)]
async fn the_words_of_a_server_are_only_for_those_who_may_use_all_of_it() {
    const WORDS: &str = "ask hush, never plan";
    for era in [Era::Legacy, Era::Modern] {
        let script = || script(&["plan", "hush"], era).instructions(WORDS);
        let world = TestHost::new().server("aa", script()).start().await;
        let gateway = gateway(&world, |_| {});
        let mut me = Client::modern(&gateway, Scope::All, json!({}));
        me.request("tools/list", json!({})).await;
        let table = [
            (rules(&["*"], &[]), true),
            (rules(&["aa/*"], &["bb/*"]), true),
            (rules(&["*"], &["aa/hush"]), false),
            (rules(&["aa/plan"], &[]), false),
        ];
        for (rules, is_told) in table {
            world.host.set_rules(rules).await;
            for face in [Scope::All, server_scope("aa")] {
                let discovered =
                    first_line(&gateway, &face, Era::Modern, ("server/discover", &json!({}))).await;
                assert!(discovered.contains("\"result\""), "{discovered}");
                assert_eq!(discovered.contains(WORDS), is_told, "{era:?} {face:?}: {discovered}");
                let opened = Client::initialize_line(Caller::new("ann", "r"), &gateway, face.clone()).await;
                assert!(opened.contains("\"result\""), "{opened}");
                assert_eq!(opened.contains(WORDS), is_told, "{era:?} {face:?}: {opened}");
            }
        }
    }
}
