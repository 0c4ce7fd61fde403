//! Task ids and request states of other callers.

use std::sync::Arc;
use std::time::Duration;

use ostler_host::ServerName;
use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions};
use ostler_relay::broker::{Broker as _, BrokerMessage, BrokerSubscription, RelayLink};
use ostler_relay::envelope::CallHead;
use ostler_relay::nats_config::worker_user_name;
use ostler_relay::subject::{Subjects, WorkerInbox};
use ostler_relay::{CallId, Instance, RelayName, WallClock};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::agent::Agent;
use crate::broker::{Broker, password};
use crate::client::{AttackClient, AttackClientEra, HttpAttackClient, PipeAttackClient, modern_meta, token};
use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::site::{Setup, worker};

/// Methods that take a task id.
const TASK_METHODS: [&str; 4] = ["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"];

/// Client of a server `fake`, and the name under which it sees tools.
struct TokenHolder {
    client: Box<dyn AttackClient>,
    name: String,
}

impl TokenHolder {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.client.ask(method, params)
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": self.client.exposed("fake", tool), "arguments": arguments}))
    }

    /// Calls a tool with the answer to a question.
    fn go_on(&mut self, tool: &str, arguments: Value, state: &Value) -> Value {
        let name = self.client.exposed("fake", tool);
        let responses = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
        let params = json!({
            "name": name, "arguments": arguments, "inputResponses": responses, "requestState": state
        });
        self.ask("tools/call", params)
    }
}

/// Returns the task id in an answer of either era.
fn task_of(answer: &Value) -> String {
    let (modern, legacy) = (&answer["result"]["taskId"], &answer["result"]["task"]["taskId"]);
    modern.as_str().or(legacy.as_str()).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Returns a home with a server `fake` of one era, and two tokens.
fn home(era: &str) -> (Home, [String; 2]) {
    let home = Home::with_servers(&[(
        "fake",
        &["--tasks", "--era", era, "--ledger", "ledger", "--frames", "frames"],
    )]);
    let servers = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{servers}[roles.crew]\nallow = [\"*\"]\n"));
    let tokens = ["ada", "bob"].map(|name| token(&home, name, "crew"));
    (home, tokens)
}

/// Returns clients for every entrance of a daemon but the relay, with one token.
fn parties(daemon: &Daemon<'_>, file: &str) -> Vec<TokenHolder> {
    let clients = crate::client::entrances(daemon, "fake", Some(file));
    clients.into_iter().map(|(name, client)| TokenHolder { client, name }).collect()
}

/// Returns the requests of a method that reached the server, as they were sent.
fn reached(home: &Home, method: &str) -> Vec<Value> {
    let frames = home.lines("frames").into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    frames.filter(|frame| frame["method"] == method).collect()
}

/// Tries every method with another caller's task; `number` is the id of that task at its server.
fn attack_task(home: &Home, stranger: &mut TokenHolder, task: &str, number: u64) {
    let listed = stranger.ask("tasks/list", json!({}));
    assert_eq!(listed["error"]["code"], -32601, "{}: {listed}", stranger.name);
    let own = format!("task-{number}");
    for method in TASK_METHODS {
        for id in [json!(task), json!(own), json!([own]), json!("o1.AAAA")] {
            let refused = stranger.ask(method, json!({"taskId": id}));
            assert!(refused.get("error").is_some(), "{}: {method} {id}: {refused}", stranger.name);
        }
        let is_own = |frame: &Value| frame["params"]["taskId"] == own;
        assert!(!reached(home, method).iter().any(is_own), "{}: {method}", stranger.name);
    }
}

#[test]
fn no_caller_reaches_the_task_of_another() {
    for era in ["modern", "legacy"] {
        let (home, [ada, bob]) = home(era);
        let daemon = Daemon::start(&home);
        let mut made = 0;
        for (mut owner, mut stranger) in parties(&daemon, &ada).into_iter().zip(parties(&daemon, &bob)) {
            // A modern task has no place in the answers of the older revisions.
            if era == "modern" && owner.name.starts_with("Legacy") {
                continue;
            }
            made += 1;
            let task = task_of(&owner.call("task", json!({"text": "secret"})));
            assert!(task.starts_with("o1."), "{}: {task}", owner.name);
            attack_task(&home, &mut stranger, &task, made);
            let got = owner.ask("tasks/get", json!({"taskId": task}));
            assert_eq!(got["result"]["status"], "working", "{}: {got}", owner.name);
            assert_eq!(got["result"]["taskId"], task, "{}: {got}", owner.name);
            let result = owner.ask("tasks/result", json!({"taskId": task}));
            assert_eq!(result["result"]["content"][0]["text"], "secret", "{}: {result}", owner.name);
            let cancelled = owner.ask("tasks/cancel", json!({"taskId": task}));
            assert_eq!(cancelled["result"]["status"], "cancelled", "{}: {cancelled}", owner.name);
            // Cleared, so that the next stranger's requests are counted alone.
            std::fs::write(home.path("frames"), "").unwrap();
        }
        assert!(made >= 3);
    }
}

/// Tries everything with another caller's request state, and every misuse by its owner.
fn attack_state(owner: &mut TokenHolder, stranger: &mut TokenHolder, executed: impl Fn() -> usize) {
    let before = executed();
    let arguments = json!({"to": "ada"});
    let asked = owner.call("input", arguments.clone());
    let state = asked["result"]["requestState"].clone();
    assert!(state.as_str().is_some_and(|state| state.starts_with("o1.")), "{}: {asked}", owner.name);
    let refused = |what: &str, answer: Value| {
        assert_eq!(answer["error"]["code"], -32602, "{what}: {answer}");
        assert_eq!(executed(), before, "{what}");
    };
    let forged = json!("fake/state+== \"é\" \\ 1");
    let spoilt = json!(format!("{}A", state.as_str().unwrap()));
    refused("another caller", stranger.go_on("input", arguments.clone(), &state));
    for (what, state) in [("forged", &forged), ("changed", &spoilt), ("no text", &json!(7))] {
        refused(what, owner.go_on("input", arguments.clone(), state));
        refused(what, stranger.go_on("input", arguments.clone(), state));
    }
    refused("other arguments", owner.go_on("input", json!({"to": "bob"}), &state));
    refused("another tool", owner.go_on("echo", arguments.clone(), &state));
    let done = owner.go_on("input", arguments.clone(), &state);
    assert!(done.get("result").is_some(), "{}: {done}", owner.name);
    assert_eq!(executed(), before + 1);
    let again = owner.go_on("input", arguments, &state);
    assert_eq!(again["error"]["code"], -32602, "{}: {again}", owner.name);
    assert_eq!(executed(), before + 1, "a second use");
}

#[test]
fn a_request_state_is_good_once_for_its_caller_and_its_request() {
    let (home, [ada, bob]) = home("modern");
    let daemon = Daemon::start(&home);
    let pairs = parties(&daemon, &ada).into_iter().zip(parties(&daemon, &bob));
    let modern: Vec<_> = pairs.filter(|(owner, _)| owner.name.starts_with("Modern")).collect();
    assert_eq!(modern.len(), 3);
    for (mut owner, mut stranger) in modern {
        attack_state(&mut owner, &mut stranger, || home.lines("ledger").len());
    }
}

#[test]
fn a_legacy_client_brings_no_request_state() {
    let (home, [ada, _]) = home("modern");
    let daemon = Daemon::start(&home);
    let legacy = parties(&daemon, &ada).into_iter().filter(|party| party.name.starts_with("Legacy"));
    for mut party in legacy {
        let refused = party.go_on("input", json!({}), &json!("fake/state+== \"é\" \\ 1"));
        assert_eq!(refused["error"]["code"], -32602, "{}: {refused}", party.name);
    }
    assert_eq!(home.lines("ledger").len(), 0);
}

#[test]
fn a_request_state_of_an_earlier_process_is_refused_and_says_so() {
    let (home, [ada, _]) = home("modern");
    let secret = std::fs::read_to_string(home.path(&ada)).unwrap();
    let client = |daemon: &Daemon<'_>| TokenHolder {
        client: Box::new(HttpAttackClient::open(daemon.port, "/mcp", AttackClientEra::Modern, Some(&secret))),
        name: "Modern /mcp".into(),
    };
    let daemon = Daemon::start(&home);
    let state = client(&daemon).call("input", json!({}))["result"]["requestState"].clone();
    let task = task_of(&client(&daemon).call("task", json!({"text": "t"})));
    drop(daemon);
    let daemon = Daemon::start(&home);
    let refused = client(&daemon).go_on("input", json!({}), &state);
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("restarted"), "{refused}");
    assert_eq!(home.lines("ledger").iter().filter(|line| line.contains("input")).count(), 0);
    // A task id is valid as long as its task exists; this server has forgotten it.
    let gone = client(&daemon).ask("tasks/get", json!({"taskId": task}));
    assert_eq!(gone["error"]["message"], "no such task", "{gone}");
}

/// Raw worker at a real broker, with the credentials of a real one.
struct RawRelayWorker {
    runtime: Arc<Runtime>,
    link: Arc<dyn RelayLink>,
    answers: BrokerSubscription,
    subjects: Subjects,
    inbox: WorkerInbox,
    worker: RelayName,
    clock: WallClock,
    calls: u8,
}

impl RawRelayWorker {
    fn connect(broker: &Broker, worker: &str) -> Self {
        let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
        let name = |text: &str| RelayName::new(text).unwrap();
        let worker = name(worker);
        let user = worker_user_name(&worker);
        let credentials = Credentials::Password { password: password(&user), user };
        let options = NatsOptions { credentials, ..NatsOptions::new(vec![broker.url()]) };
        let (subjects, inbox) = (Subjects::new(name("default")), WorkerInbox::new(&worker, Instance(9)));
        let [_, heartbeat, answers] = subjects.worker_subscriptions(&worker, &inbox);
        let (link, answers) = runtime.block_on(async {
            let link = NatsBroker::new(options).connect().await.unwrap();
            let mut heartbeat = link.subscribe(&heartbeat, None).await.unwrap();
            let answers = link.subscribe(&answers, None).await.unwrap();
            heartbeat.next().await.unwrap();
            (link, answers)
        });
        Self { runtime, link, answers, subjects, inbox, worker, clock: WallClock::new(), calls: 0 }
    }
}

impl AttackClient for RawRelayWorker {
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = modern_meta();
        self.send(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    fn send(&mut self, message: Value) -> Value {
        self.calls += 1;
        let call = CallId::new(self.clock.now(), &[self.calls; 10]);
        let (begin_by, deadline) = (self.clock.now() + 2_000, self.clock.now() + 30_000);
        let (instance, server) = (Instance(9), ServerName::new("fake").unwrap());
        let head = CallHead { call, instance, server, begin_by, deadline, manifest: None, trace: None };
        let role = RelayName::new("crew").unwrap();
        let subject = self.subjects.call(&role, &self.worker);
        let request = BrokerMessage::new(subject, head.headers(), message.to_string());
        let request = request.with_reply_to(self.inbox.answer_subject(call));
        let runtime = Arc::clone(&self.runtime);
        runtime.block_on(async {
            self.link.publish(request).await.unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(30), self.answers.next()).await;
            serde_json::from_slice(&answer.unwrap().unwrap().body).unwrap()
        })
    }

    fn exposed(&self, _: &str, name: &str) -> String {
        name.to_owned()
    }
}

#[test]
fn no_worker_reaches_tasks_or_request_states_of_another() {
    let args = ["--tasks", "--era", "modern", "--frames", "frames"];
    let (broker, sites) = Setup { args: &args, ..Setup::default() }.build();
    let site = &sites[0];
    let daemon = site.start();
    let by_hand = |name: &str| TokenHolder {
        client: Box::new(RawRelayWorker::connect(&broker, name)),
        name: name.into(),
    };
    let far = Home::new();
    let program = |name: &str| {
        let agent = Agent::start_as(worker(&far, &broker, name));
        TokenHolder {
            client: Box::new(PipeAttackClient::over(agent, AttackClientEra::Modern)),
            name: format!("program {name}"),
        }
    };
    let (mut owner, mut stranger) = (by_hand("w1"), by_hand("w2"));
    until("the relay serves", || daemon.ask("GET /api/v1/relay", "").json()["relay"]["state"] == "connected");
    let task = task_of(&owner.call("task", json!({"text": "secret"})));
    assert!(task.starts_with("o1."), "{task}");
    attack_task(&site.home, &mut stranger, &task, 1);
    let result = owner.ask("tasks/result", json!({"taskId": task}));
    assert_eq!(result["result"]["content"][0]["text"], "secret", "{result}");
    attack_state(&mut owner, &mut stranger, || site.ledger().len());

    // The programs seal the tokens that the host has sealed.
    let (mut owner, mut stranger) = (program("w1"), program("w2"));
    let task = task_of(&owner.call("task", json!({"text": "more"})));
    attack_task(&site.home, &mut stranger, &task, 2);
    let got = owner.ask("tasks/get", json!({"taskId": task}));
    assert_eq!(
        (&got["result"]["taskId"], &got["result"]["status"]),
        (&json!(task), &json!("working")),
        "{got}"
    );
    attack_state(&mut owner, &mut stranger, || site.ledger().len());
}
