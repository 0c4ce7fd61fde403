//! Hidden items: equal to missing ones in every state of the server and of the caller, byte for byte, in their cost,
//! and in their effect on the server.

use std::time::Duration;

use ostler_core::caller::CallWindow;
use ostler_core::config::PinMode;
use ostler_core::pins::{LockFile, LockedServer, Pin, PinPolicy};
use ostler_gateway::{Gateway, Scope};
use ostler_host::{Caller, Limits, RoleLimits, ServerName};
use ostler_testkit::{Reconfigure, ScriptedReply, TestHost};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client::{Client, gateway, server_scope};
use crate::hidden_vs_missing::{naming_requests, rules, script};

/// State of a server and its caller when a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorldState {
    /// The server runs, and its lists are known.
    Ready,
    /// The server has had no request yet.
    Cold,
    /// The caller's role has used up its calls.
    OverBudget,
    /// The caller's role is at its limit of calls in flight.
    RoleBusy,
    /// The server is at its limit of calls in flight, and has no queue.
    ServerFull,
    Stopped,
    NeverStarts,
    /// The server has just crashed, and its breaker is open.
    BreakerOpen,
    /// The hidden tool differs from the approved one, too.
    Quarantined,
}

impl WorldState {
    const ALL: [Self; 9] = [
        Self::Ready,
        Self::Cold,
        Self::OverBudget,
        Self::RoleBusy,
        Self::ServerFull,
        Self::Stopped,
        Self::NeverStarts,
        Self::BreakerOpen,
        Self::Quarantined,
    ];

    /// Makes a world in this state, for a caller that may use everything but `hush`.
    async fn build_world(self, era: Era) -> (TestHost, Gateway) {
        let script = script(&["plan", "hush", "hang"], era);
        let script = match self {
            Self::NeverStarts => script.failing_starts(|_| true),
            Self::BreakerOpen => script.on("hang", |_| ScriptedReply::crash()),
            _ => script.on("hang", |_| ScriptedReply::never()),
        };
        let window = CallWindow { calls: 2, per: Duration::from_secs(3_600) };
        let limits =
            RoleLimits { budget: Some(window), max_in_flight: (self == Self::RoleBusy).then_some(1) };
        let world = TestHost::new()
            .options(|options| options.limits = Limits { roles: [("r".to_owned(), limits)].into() })
            .server_with("aa", script, |spec| {
                if self == Self::ServerFull {
                    (spec.max_in_flight, spec.max_queued) = (1, 0);
                }
                if self == Self::BreakerOpen {
                    spec.breaker.failures = 1;
                }
            })
            .start()
            .await;
        world.host.set_rules(rules(&["aa/*"], &["*hush*"])).await;
        let gateway = gateway(&world, |_| {});
        if !matches!(self, Self::Cold | Self::NeverStarts) {
            let mut me = Client::modern(&gateway, Scope::All, json!({}));
            for list in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
                me.request(list, json!({})).await;
            }
        }
        self.reach(&world).await;
        (world, gateway)
    }

    async fn reach(self, world: &TestHost) {
        let ann = Caller::new("ann", "r");
        let hang = async |caller: &Caller| {
            let (host, caller) = (world.host.clone(), caller.clone());
            tokio::spawn(async move { host.call(&caller, "aa", "hang", json!({})).await });
            while world.server("aa").count("hang") == 0 {
                tokio::task::yield_now().await;
            }
        };
        match self {
            Self::Ready | Self::Cold => {}
            Self::OverBudget => {
                for _ in 0..2 {
                    world.host.call(&ann, "aa", "plan", json!({})).await.unwrap();
                }
            }
            Self::RoleBusy => hang(&ann).await,
            Self::ServerFull => hang(&world.caller).await,
            Self::Stopped => world.host.stop("aa").await.unwrap(),
            Self::NeverStarts => {
                world.host.call(&world.caller, "aa", "plan", json!({})).await.unwrap_err();
            }
            Self::BreakerOpen => {
                world.host.call(&world.caller, "aa", "hang", json!({})).await.unwrap_err();
            }
            Self::Quarantined => {
                let plan = json!({"name": "plan", "inputSchema": {"type": "object"}}).to_string();
                let tools = [("plan".to_owned(), Pin::from_definition(plan.as_bytes()).unwrap())].into();
                let locked = LockedServer::with_tools("", tools);
                let lock = LockFile { servers: [(ServerName::new("aa").unwrap(), locked)].into() };
                world.host.set_pins(Some(PinPolicy::new(PinMode::Enforce, lock))).await;
            }
        }
    }
}

/// Returns the outcome of a request: the answer, the calls charged, and the starts of the server.
async fn outcome(
    state: WorldState,
    face: &Scope,
    eras: (Era, Era),
    (method, params): (&str, &Value),
) -> (String, u64, u64) {
    let (world, gateway) = state.build_world(eras.1).await;
    let mut client = Client::for_caller(Caller::new("ann", "r"), &gateway, face.clone(), eras.0).await;
    client.send_request(method, params.clone()).await;
    let line = client.receive_line().await;
    let used = world.host.budgets().first().map_or(0, |budget| budget.used);
    (without_times(&line), used, world.server("aa").connects())
}

/// Returns the text without random times.
fn without_times(line: &str) -> String {
    let mut message: Value = serde_json::from_str(line).unwrap();
    if let Some(data) = message["error"]["data"].as_object_mut() {
        data.remove("retryAfterMs");
        data.remove("hint");
    }
    let digits = |c: char| c.is_ascii_digit();
    let is_timed = |text: &&str| text.contains("backoff") || text.contains("again in");
    if let Some(text) = message["error"]["message"].as_str().filter(is_timed) {
        message["error"]["message"] = text.replace(digits, "").into();
    }
    message.to_string()
}

async fn check(eras: (Era, Era)) {
    for state in WorldState::ALL {
        // A session can't be opened at a server that does not run.
        let is_down =
            matches!(state, WorldState::Stopped | WorldState::NeverStarts | WorldState::BreakerOpen);
        for face in [Scope::All, server_scope("aa")] {
            if is_down && eras.0 == Era::Legacy && face != Scope::All {
                continue;
            }
            let mut pairs: Vec<(String, String, Value, Value)> = Vec::new();
            for (hidden, missing) in naming_requests("hush").into_iter().zip(naming_requests("none")) {
                let pick =
                    |(_, at_one, at_all): (_, Value, Value)| if face == Scope::All { at_all } else { at_one };
                pairs.push((hidden.0.to_owned(), missing.0.to_owned(), pick(hidden), pick(missing)));
            }
            pairs.push(("vendor/hush".into(), "vendor/none".into(), json!({}), json!({})));
            for (of_hidden, of_missing, hidden, missing) in pairs {
                let of_hidden = outcome(state, &face, eras, (&of_hidden, &hidden)).await;
                let of_missing = outcome(state, &face, eras, (&of_missing, &missing)).await;
                let comparable = (of_hidden.0.replace("hush", "none"), of_hidden.1, of_hidden.2);
                assert_eq!(comparable, of_missing, "{state:?} {face:?} {eras:?} {hidden}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hidden_name_looks_missing_to_a_modern_client_in_every_state() {
    check((Era::Modern, Era::Modern)).await;
    check((Era::Modern, Era::Legacy)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hidden_name_looks_missing_to_a_legacy_client_in_every_state() {
    check((Era::Legacy, Era::Legacy)).await;
    check((Era::Legacy, Era::Modern)).await;
}

#[tokio::test(start_paused = true)]
async fn the_states_are_what_they_say() {
    let code = async |state| {
        let params = json!({"uri": "x://none"});
        let line =
            outcome(state, &server_scope("aa"), (Era::Modern, Era::Legacy), ("resources/read", &params))
                .await
                .0;
        serde_json::from_str::<Value>(&line).unwrap()["error"]["data"]["code"].as_str().unwrap().to_owned()
    };
    let mut codes = Vec::new();
    for state in WorldState::ALL {
        codes.push(code(state).await);
    }
    let (unknown, unavailable) = ("unknown-resource", "server-unavailable");
    let expected = [
        unknown,
        unknown,
        "over-budget",
        "overloaded",
        "overloaded",
        unavailable,
        unavailable,
        unavailable,
        unknown,
    ];
    assert_eq!(codes, expected);
}

#[tokio::test(start_paused = true)]
async fn pages_are_our_own_for_every_caller() {
    for era in [Era::Modern, Era::Legacy] {
        let names = ["n1", "hush1", "hush2", "n2", "n3", "hush3"];
        let script = script(&["plan"], Era::Legacy).on("tools/list", move |asked| {
            let at: usize = asked.cursor.as_deref().map_or(0, |cursor| cursor.parse().unwrap());
            let page: Vec<Value> =
                names[at..(at + 2).min(names.len())].iter().map(|name| json!({"name": name})).collect();
            let next = (at + 2 < names.len()).then(|| (at + 2).to_string());
            ScriptedReply::result(
                json!({"tools": page, "nextCursor": next, "_meta": {"total": 6}}).to_string(),
            )
        });
        let world = TestHost::new().server("aa", script).start().await;
        world.host.set_rules(rules(&["aa/*"], &["*hush*"])).await;
        let gateway = gateway(&world, |options| options.page_size = 2);
        let mut ann = Client::for_caller(Caller::new("ann", "r"), &gateway, server_scope("aa"), era).await;
        let first = ann.request("tools/list", json!({})).await["result"].clone();
        let shown = |page: &Value| -> Vec<String> {
            page["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            (shown(&first), &first["_meta"]),
            (vec!["n1".into(), "n2".into()], &Value::Null),
            "{first}"
        );
        let cursor = first["nextCursor"].as_str().unwrap();
        assert!(cursor.starts_with("o1."), "{cursor}");
        let last = ann.request("tools/list", json!({"cursor": cursor})).await["result"].clone();
        assert_eq!((shown(&last), last.get("nextCursor")), (vec!["n3".to_owned()], None), "{last}");
        let mut bob = Client::for_caller(Caller::new("bob", "r"), &gateway, server_scope("aa"), era).await;
        for (client, cursor) in [(&mut ann, "2"), (&mut bob, cursor)] {
            let refused = client.request("tools/list", json!({"cursor": cursor})).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
        let mut me = Client::modern(&gateway, server_scope("aa"), json!({}));
        let own = me.request("tools/list", json!({})).await["result"].clone();
        let cursor = own["nextCursor"].as_str().unwrap();
        assert_eq!((shown(&own), own.get("_meta")), (vec!["n1".into(), "hush1".into()], None), "{own}");
        assert!(cursor.starts_with("o1."), "{cursor}");
        let rest = me.request("tools/list", json!({"cursor": cursor})).await["result"].clone();
        assert_eq!(shown(&rest), ["hush2", "n2"], "{rest}");
    }
}

/// Returns the answer to a call of a tool before any list.
async fn call_tool(gateway: &Gateway, caller: &Caller, tool: &str) -> Value {
    let mut client = Client::for_caller(caller.clone(), gateway, Scope::All, Era::Modern).await;
    client.request("tools/call", json!({"name": format!("aa__{tool}"), "arguments": {}})).await
}

#[tokio::test(start_paused = true)]
async fn each_caller_reads_of_a_failed_start_what_it_may_whoever_asked_first() {
    let (free, ann) = (Caller::local(), Caller::new("ann", "r"));
    for order in [[&free, &ann], [&ann, &free]] {
        let script = script(&["plan", "hush"], Era::Legacy).failing_starts(|_| true);
        let world = TestHost::new().server("aa", script).start().await;
        world.host.set_rules(rules(&["aa/*"], &["*hush*"])).await;
        let gateway = gateway(&world, |_| {});
        for caller in order {
            let answer = call_tool(&gateway, caller, "plan").await;
            assert_eq!(answer["error"]["data"]["code"], "server-unavailable", "{answer}");
            let has_cause = answer.to_string().contains("the script says so");
            assert_eq!(has_cause, caller.principal() == free.principal(), "{order:?}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_of_one_callers_own_process_is_not_told_to_another() {
    let script = script(&["plan"], Era::Legacy).failing_starts(|nth| nth == 1);
    let alone = |spec: &mut ostler_host::ServerSpec| spec.isolation = ostler_host::Isolation::Caller;
    let world = TestHost::new().server_with("aa", script, alone).start().await;
    let gateway = gateway(&world, |_| {});
    let of_ann = call_tool(&gateway, &Caller::new("ann", "r"), "plan").await;
    assert!(of_ann.to_string().contains("the script says so"), "{of_ann}");
    let of_bob = call_tool(&gateway, &Caller::new("bob", "r"), "plan").await;
    assert!(of_bob["result"].is_object(), "{of_bob}");
}
