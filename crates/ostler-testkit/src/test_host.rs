//! A host with scripted servers, so that a test reads like a story.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::error::CallError;
use ostler_core::status::ServerStatus;
use ostler_host::{
    Answer, CallArguments, Caller, Host, HostOptions, Request, ServerName, ServerSpec, SpawnOutcome,
};
use tokio::task::{JoinHandle, JoinSet};

use crate::script::Script;
use crate::scripted_server::ScriptedServer;

/// What a call brings.
pub type Result<T = Answer> = std::result::Result<T, CallError>;

/// A world that is being set up.
#[derive(Debug, Default)]
pub struct TestHostBuilder {
    options: HostOptions,
    servers: Vec<(ServerSpec, Script)>,
}

impl TestHostBuilder {
    /// One more server, lazy and with the documented defaults.
    #[must_use]
    pub fn server(self, name: &str, script: Script) -> Self {
        self.server_with(name, script, |_| {})
    }

    /// One more server, lazy unless `change` says otherwise.
    #[must_use]
    pub fn server_with(mut self, name: &str, script: Script, change: impl FnOnce(&mut ServerSpec)) -> Self {
        let mut spec = TestHost::spec(name).lazy();
        change(&mut spec);
        self.servers.push((spec, script));
        self
    }

    /// Sets the host up in another way.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Registers every server; eager ones are up when it returns.
    pub async fn start(self) -> TestHost {
        let mut world =
            TestHost { host: Host::new(self.options), caller: Caller::local(), servers: BTreeMap::new() };
        for (spec, script) in self.servers {
            world.spawn(spec, script).await.expect("the servers of a world can be registered");
        }
        world
    }
}

/// A host with scripted servers.
#[derive(Debug)]
pub struct TestHost {
    /// The host under test.
    pub host: Host,
    /// Who calls unless a test says otherwise.
    pub caller: Caller,
    servers: BTreeMap<String, ScriptedServer>,
}

impl TestHost {
    /// A world to be set up.
    #[expect(clippy::new_ret_no_self, reason = "a world begins with its setting")]
    pub fn new() -> TestHostBuilder {
        TestHostBuilder::default()
    }

    /// An eager spec with the documented defaults.
    pub fn spec(name: &str) -> ServerSpec {
        ServerSpec::stdio(ServerName::new(name).expect("a test names its servers well"), "in-memory")
    }

    /// Registers one more server, or replaces one.
    pub async fn spawn(&mut self, spec: ServerSpec, script: Script) -> Result<SpawnOutcome> {
        let (name, stage) = (spec.name.to_string(), ScriptedServer::new(script));
        let spawned = self.host.spawn_with(&self.caller, spec, Arc::new(stage.clone())).await?;
        if spawned != SpawnOutcome::Unchanged {
            self.servers.insert(name, stage);
        }
        Ok(spawned)
    }

    /// The server behind a name.
    pub fn server(&self, server: &str) -> &ScriptedServer {
        &self.servers[server]
    }

    /// What operators see of a server.
    pub fn status(&self, server: &str) -> ServerStatus {
        self.host.status_of(server).expect("the server is registered")
    }

    /// The word for where a server stands.
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

    /// Calls a tool as somebody else.
    pub async fn call_as(&self, caller: &Caller, server: &str, tool: &str) -> Result {
        self.host.call(caller, server, tool, CallArguments::none()).await
    }

    /// Calls a tool and gives up after a time.
    pub async fn call_within(&self, time: Duration, server: &str, tool: &str) -> Result {
        let request = Request::tool_call(&self.caller, tool, CallArguments::none())?;
        self.host.send_to(server, request.with_timeout(time)).await
    }

    /// Begins a call and goes on; the call has got as far as it can without time passing.
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

    /// Begins many calls of one tool at once.
    pub async fn start_calls(&self, count: usize, server: &str, tool: &str) -> JoinSet<Result> {
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let (host, me, server, tool) =
                (self.host.clone(), self.caller.clone(), server.to_owned(), tool.to_owned());
            calls.spawn(async move { host.call(&me, &server, &tool, CallArguments::none()).await });
        }
        run_until_stalled().await;
        calls
    }

    /// Makes many calls of one tool at once.
    pub async fn call_many(&self, count: usize, server: &str, tool: &str) -> Vec<Result> {
        self.start_calls(count, server, tool).await.join_all().await
    }

    /// The server ends by itself.
    pub fn crash(&self, server: &str) {
        self.server(server).crash();
    }

    /// Lets time pass, with everything that happens in it.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
        run_until_stalled().await;
    }
}

/// Lets every task get as far as it can without time passing. On the one
/// thread of a paused runtime each turn runs every task that can run.
pub async fn run_until_stalled() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
