//! Fixture of the process tests: one host, a folder for its servers' files, and a check for leftovers at the end.

use std::path::PathBuf;
use std::time::Duration;

use ostler_core::error::{CallError, UnavailableState};
use ostler_core::spec::{BreakerSettings, ProcessSpec, RestartSettings, ServerTransport};
use ostler_core::status::ServerStatus;
use ostler_host::{Answer, CallArguments, Caller, Host, HostOptions, ServerSpec};
use ostler_testkit::{Proc, eventually, fake_mcp_spec, guard_command, read_lines};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Timeout of any wait, long enough for a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct ProcessFixture {
    pub(crate) host: Host,
    pub(crate) me: Caller,
    folder: TempDir,
}

impl ProcessFixture {
    /// Makes a host whose servers are guarded.
    pub(crate) fn guarded() -> Self {
        Self::with_options(HostOptions {
            guard: Some(guard_command()),
            max_processes: 64,
            ..HostOptions::default()
        })
    }

    /// Makes a host in a program that can't be a guard.
    pub(crate) fn unguarded() -> Self {
        Self::with_options(HostOptions::default())
    }

    pub(crate) fn with_options(options: HostOptions) -> Self {
        Self { host: Host::new(options), me: Caller::local(), folder: tempfile::tempdir().unwrap() }
    }

    /// Returns the path of a file for servers to write to.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of such a file as an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    /// Returns the lines that servers have written to a file.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        read_lines(&self.file(name))
    }

    pub(crate) async fn spawn(&self, spec: ServerSpec) {
        let name = spec.name.clone();
        self.host.spawn(&self.me, spec).await.unwrap_or_else(|error| panic!("{name}: {}", error.render()));
    }

    /// Spawns `fake-mcp`, eager, with these arguments.
    pub(crate) async fn spawn_fake(&self, name: &str, args: &[&str]) {
        self.spawn(fake_mcp_spec(name, args)).await;
    }

    pub(crate) async fn call(&self, server: &str, tool: &str, args: Value) -> Result<Answer, CallError> {
        self.host.call(&self.me, server, tool, args).await
    }

    /// Returns the text of a call that must succeed.
    pub(crate) async fn text(&self, server: &str, tool: &str, args: Value) -> String {
        match self.call(server, tool, args).await {
            Ok(answer) => answer.text(),
            Err(error) => panic!("{server}/{tool}: {}", error.render()),
        }
    }

    /// Starts a call in the background.
    pub(crate) fn spawn_call(
        &self,
        server: &str,
        tool: &str,
        args: Value,
    ) -> tokio::task::JoinHandle<CallOutcome> {
        let (host, me, server, tool) =
            (self.host.clone(), self.me.clone(), server.to_owned(), tool.to_owned());
        tokio::spawn(async move { host.call(&me, &server, &tool, args).await })
    }

    /// Makes this many calls at once; the outcomes are in the order of the calls.
    pub(crate) async fn calls(
        &self,
        count: usize,
        server: &str,
        tool: &str,
        args: impl Fn(usize) -> CallArguments,
    ) -> Vec<CallOutcome> {
        let mut calls = JoinSet::new();
        for number in 0..count {
            let (host, me, args) = (self.host.clone(), self.me.clone(), args(number));
            let (server, tool) = (server.to_owned(), tool.to_owned());
            calls.spawn(async move { (number, host.call(&me, &server, &tool, args).await) });
        }
        let mut outcomes = calls.join_all().await;
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    pub(crate) fn status(&self, server: &str) -> ServerStatus {
        self.host.status_of(server).unwrap()
    }

    /// Returns the process of a server that is up.
    pub(crate) fn process(&self, server: &str) -> Proc {
        let pid = self.status(server).pid.unwrap_or_else(|| panic!("{server} has no process"));
        Proc::find(pid).unwrap_or_else(|| panic!("the process of {server} is gone"))
    }

    /// Returns the guard of a server that is up.
    pub(crate) fn guard(&self, server: &str) -> Proc {
        let guard = self.process(server).parent().expect("a living server has a parent");
        assert_eq!(guard.name(), "ostler-guard");
        guard
    }

    /// Waits until the status of a server satisfies a condition.
    pub(crate) async fn until(&self, server: &str, what: &str, is_so: impl Fn(&ServerStatus) -> bool) {
        eventually(&format!("{server} {what}"), LONG, || is_so(&self.status(server))).await;
    }

    /// Waits until a file has this many lines.
    pub(crate) async fn until_lines(&self, name: &str, count: usize) {
        let file = self.file(name);
        eventually(&format!("{count} lines in `{name}`"), LONG, || read_lines(&file).len() >= count).await;
    }

    /// Shuts the host down and checks for leftovers.
    pub(crate) async fn close(self) {
        assert!(self.host.shutdown().await, "a server was not gone in time");
        drop(self.host);
        // Without a process of its own the test would see those of others.
        if std::env::var_os("NEXTEST").is_some() {
            eventually("no process is left", LONG, || Proc::current().descendants().is_empty()).await;
        }
    }
}

pub(crate) type CallOutcome = Result<Answer, CallError>;

/// Makes a spec that restarts at once, without a limit, and never opens its breaker.
pub(crate) fn restarting_forever(mut spec: ServerSpec) -> ServerSpec {
    let delay = Duration::from_millis(1);
    spec.restart = RestartSettings { max: 100_000, first_delay: delay, max_delay: delay, ..spec.restart };
    spec.breaker = BreakerSettings { failures: 0, ..spec.breaker };
    spec
}

/// Returns the process part of a spec.
pub(crate) fn process_of(spec: &mut ServerSpec) -> &mut ProcessSpec {
    match &mut spec.transport {
        ServerTransport::Stdio(process) => process,
        ServerTransport::Http(_) => panic!("the spec has no process"),
    }
}

pub(crate) fn none() -> Value {
    json!({})
}

/// Returns the code of an outcome that must be an error.
pub(crate) fn code_of(outcome: &CallOutcome) -> &'static str {
    match outcome {
        Ok(answer) => panic!("answered with {:?}", answer.text()),
        Err(error) => error.code(),
    }
}

/// Returns the state and the cause of a `server-unavailable` error.
pub(crate) fn unavailable(error: &CallError) -> (UnavailableState, String) {
    match error {
        CallError::Unavailable(why) => (why.state, why.cause.clone()),
        other => panic!("not `server-unavailable`: {}", other.render()),
    }
}
