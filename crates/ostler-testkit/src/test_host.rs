//! Test host: a host with scripted servers, and the short forms of calls that tests make.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::pins::PinPolicy;
use ostler_core::policy::Rules;
use ostler_core::status::ServerStatus;
use ostler_host::{
    Answer, CallArguments, Caller, Host, HostOptions, Kind, Limits, ListWait, Request, Scope, ServerListing,
    ServerName, ServerSpec, Snapshot, SpawnOutcome,
};
use tokio::task::{JoinHandle, JoinSet};

use crate::script::Script;
use crate::scripted_server::ScriptedServer;

/// The outcome of a call.
pub type Result<T = Answer> = std::result::Result<T, CallError>;

/// A test host before its start.
#[derive(Debug, Default)]
pub struct TestHostBuilder {
    options: HostOptions,
    servers: Vec<(ServerSpec, Script)>,
}

impl TestHostBuilder {
    /// Adds a server, lazy and with the documented defaults.
    #[must_use]
    pub fn server(self, name: &str, script: Script) -> Self {
        self.server_with(name, script, |_| {})
    }

    /// Adds a server, lazy unless `change` says otherwise.
    #[must_use]
    pub fn server_with(mut self, name: &str, script: Script, change: impl FnOnce(&mut ServerSpec)) -> Self {
        let mut spec = TestHost::spec(name).lazy();
        change(&mut spec);
        self.servers.push((spec, script));
        self
    }

    /// Changes the host's options.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Registers every server; eager ones are up when it returns.
    pub async fn start(self) -> TestHost {
        let mut test_host =
            TestHost { host: Host::new(self.options), caller: Caller::local(), servers: BTreeMap::new() };
        for (spec, script) in self.servers {
            test_host.spawn(spec, script).await.expect("the servers of a test host can be registered");
        }
        test_host
    }
}

/// A host with scripted servers.
#[derive(Debug)]
pub struct TestHost {
    /// The host under test.
    pub host: Host,
    /// The caller of every call that names no other.
    pub caller: Caller,
    servers: BTreeMap<String, ScriptedServer>,
}

impl TestHost {
    /// Returns a builder without servers.
    #[expect(clippy::new_ret_no_self, reason = "a test host begins with its builder")]
    pub fn new() -> TestHostBuilder {
        TestHostBuilder::default()
    }

    /// Returns an eager spec with the documented defaults.
    pub fn spec(name: &str) -> ServerSpec {
        ServerSpec::stdio(ServerName::new(name).expect("a test names its servers well"), "in-memory")
    }

    /// Registers one more server, or replaces one.
    pub async fn spawn(&mut self, spec: ServerSpec, script: Script) -> Result<SpawnOutcome> {
        let (name, scripted) = (spec.name.to_string(), ScriptedServer::new(script));
        let outcome = self.host.spawn_with(&self.caller, spec, Arc::new(scripted.clone())).await?;
        if outcome != SpawnOutcome::Unchanged {
            self.servers.insert(name, scripted);
        }
        Ok(outcome)
    }

    /// Returns the server with a name.
    pub fn server(&self, server: &str) -> &ScriptedServer {
        &self.servers[server]
    }

    /// Returns the status that operators see.
    pub fn status(&self, server: &str) -> ServerStatus {
        self.host.status_of(server).expect("the server is registered")
    }

    /// Returns the word for a server's state.
    pub fn state(&self, server: &str) -> &'static str {
        self.status(server).state.as_str()
    }

    /// Calls a tool without arguments.
    pub async fn call(&self, server: &str, tool: &str) -> Result {
        self.host.call(&self.caller, server, tool, CallArguments::none()).await
    }

    /// Calls a tool with the text of its arguments.
    pub async fn call_with(&self, server: &str, tool: &str, arguments: &str) -> Result {
        self.host.call(&self.caller, server, tool, CallArguments::raw(arguments.to_owned())).await
    }

    /// Calls a tool as another caller.
    pub async fn call_as(&self, caller: &Caller, server: &str, tool: &str) -> Result {
        self.host.call(caller, server, tool, CallArguments::none()).await
    }

    /// Calls a tool with a timeout.
    pub async fn call_within(&self, time: Duration, server: &str, tool: &str) -> Result {
        let request = Request::tool_call(&self.caller, tool, CallArguments::none())?;
        self.host.send_to(server, request.with_timeout(time)).await
    }

    /// Starts a call and lets it get as far as it can without time passing.
    pub async fn start_call(&self, server: &str, tool: &str) -> JoinHandle<Result> {
        let call = self.spawn_call(&self.caller, server, tool);
        run_until_stalled().await;
        call
    }

    fn spawn_call(&self, caller: &Caller, server: &str, tool: &str) -> JoinHandle<Result> {
        let (host, caller) = (self.host.clone(), caller.clone());
        let (server, tool) = (server.to_owned(), tool.to_owned());
        tokio::spawn(async move { host.call(&caller, &server, &tool, CallArguments::none()).await })
    }

    /// Starts many calls of one tool at once.
    pub async fn start_calls(&self, count: usize, server: &str, tool: &str) -> JoinSet<Result> {
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let (host, caller, server, tool) =
                (self.host.clone(), self.caller.clone(), server.to_owned(), tool.to_owned());
            calls.spawn(async move { host.call(&caller, &server, &tool, CallArguments::none()).await });
        }
        run_until_stalled().await;
        calls
    }

    /// Makes many calls of one tool at once and waits for them.
    pub async fn call_many(&self, count: usize, server: &str, tool: &str) -> Vec<Result> {
        self.start_calls(count, server, tool).await.join_all().await
    }

    /// Crashes a server.
    pub fn crash(&self, server: &str) {
        self.server(server).crash();
    }

    /// Lets time pass, with everything that happens in it.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
        run_until_stalled().await;
    }
}

/// Lets every task get as far as it can without time passing. On the one thread of a paused runtime
/// each yield runs every task that can run.
pub async fn run_until_stalled() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Lists what a caller may use of one server; fails where no list is known.
///
/// # Panics
///
/// If `server` is not a server name.
pub async fn list_one(
    host: &Host,
    caller: &Caller,
    server: &str,
    kind: Kind,
    patience: impl Into<ListWait>,
) -> Result<ServerListing> {
    let scope = Scope::Server(ServerName::new(server).unwrap_or_else(|error| panic!("{server}: {error}")));
    let listing = host.list(caller, &scope, kind, patience).await.pop();
    listing.unwrap_or_else(|| panic!("a scope of one server has one listing")).require_known()
}

/// Changes of a part of the snapshot in force; everything else stays.
pub trait Reconfigure {
    /// Applies other rules.
    fn set_rules(&self, rules: Rules) -> impl Future<Output = ()> + Send;
    /// Applies other limits of roles.
    fn set_limits(&self, limits: Limits) -> impl Future<Output = ()> + Send;
    /// Applies other pins.
    fn set_pins(&self, pins: Option<PinPolicy>) -> impl Future<Output = ()> + Send;
}

impl Reconfigure for Host {
    async fn set_rules(&self, rules: Rules) {
        self.apply(Snapshot { rules, ..self.snapshot() }).await;
    }

    async fn set_limits(&self, limits: Limits) {
        self.apply(Snapshot { limits, ..self.snapshot() }).await;
    }

    async fn set_pins(&self, pins: Option<PinPolicy>) {
        self.apply(Snapshot { pins, ..self.snapshot() }).await;
    }
}
