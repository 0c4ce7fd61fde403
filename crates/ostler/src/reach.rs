//! How commands reach servers.
//!
//! [`run`] is the one place that decides who does the work. It is a host in
//! this process, which lives as long as the command.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_core::config::Config;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_core::status::ServerStatus;
use ostler_host::guard::GuardCommand;
use ostler_host::{Answer, Arguments, Binding, Caller, Discovered, Host, HostOptions, ListedTool, Request};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::folders;
use crate::interrupt::Interrupts;
use crate::output::{count, tell};

/// How long what is still being written to disk may take at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// How long work may take before it is worth a word.
const SLOW: Duration = Duration::from_secs(1);

/// Servers that are probed at the same time.
const AT_ONCE: usize = 8;

/// How long a probed server waits until there is room for its process.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The servers of a config, ready to be used. Clones lead to the same ones.
#[derive(Clone)]
pub(crate) struct Reach {
    host: Host,
    caller: Caller,
    /// In the order of the config.
    specs: Vec<ServerSpec>,
    /// Servers that the host does not take, and why.
    refused: BTreeMap<ServerName, CallError>,
    /// A call is on its way.
    is_calling: Arc<AtomicBool>,
}

/// What the start of one server brought.
pub(crate) struct Probed {
    /// How it is, and what it said.
    pub(crate) status: ServerStatus,
    /// How long the start took, handshake included.
    pub(crate) start: Duration,
    /// Why it could not be used.
    pub(crate) error: Option<CallError>,
    /// Keeps it up, if it should be.
    pub(crate) _binding: Option<Binding>,
}

/// Does work with the servers of a config, and leaves none of them behind:
/// neither when the work fails nor when a signal ends it.
pub(crate) fn run<T>(
    config: &Config,
    work: impl AsyncFnOnce(&Reach) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
    let result = runtime.block_on(async {
        let mut interrupts = Interrupts::listen().map_err(Failure::Machine)?;
        let reach = Reach::open(config).await;
        let mut result = interrupts.until(work(&reach)).await;
        if let Err(Failure::Interrupted { may_have_run, .. }) = &mut result {
            *may_have_run = reach.is_calling.load(Ordering::Relaxed);
        }
        // Whoever asks twice does not want to wait: the guard ends the servers.
        match interrupts.until(reach.close()).await {
            Ok(()) => result,
            Err(impatient) => result.and(Err(impatient)),
        }
    });
    runtime.shutdown_timeout(LAST_WRITES);
    result
}

impl Reach {
    async fn open(config: &Config) -> Self {
        let guard = cfg!(target_os = "linux").then(GuardCommand::this_program);
        let host = Host::new(HostOptions { guard, state_dir: folders::state(), ..HostOptions::of(config) });
        let caller = Caller::local();
        let mut refused = BTreeMap::new();
        for spec in &config.servers {
            // A server that should be up as long as its host would be started
            // by every command, used or not. Here they start when used.
            if let Err(error) = host.spawn(&caller, spec.clone().lazy()).await {
                refused.insert(spec.name.clone(), error);
            }
        }
        let specs = config.servers.clone();
        Self { host, caller, specs, refused, is_calling: Arc::default() }
    }

    /// Ends every server. Some are slow to leave; then it is said what is waited for.
    async fn close(&self) -> Result<(), Failure> {
        let say = || tell("waiting for the servers to end; Ctrl-C leaves that to their guard");
        patiently(self.host.shutdown(), say).await;
        Ok(())
    }

    /// The servers of the config, in its order.
    pub(crate) fn specs(&self) -> &[ServerSpec] {
        &self.specs
    }

    /// The tools of one server, asked for now.
    pub(crate) async fn tools(&self, server: &str) -> Result<Vec<ListedTool>, CallError> {
        match self.refused.get(server) {
            Some(error) => Err(error.clone()),
            None => patiently(self.host.tools(&self.caller, server), || say_starting(1)).await,
        }
    }

    /// The tools of all servers, by name; those of a sleeping one as far as they are known.
    pub(crate) async fn discover(&self) -> Vec<Discovered> {
        let servers = self.specs.len() - self.refused.len();
        let mut found = patiently(self.host.discover(&self.caller), || say_starting(servers)).await;
        found.extend(
            self.refused
                .iter()
                .map(|(server, error)| Discovered { server: server.clone(), tools: Err(error.clone()) }),
        );
        found.sort_by(|a, b| a.server.cmp(&b.server));
        found
    }

    /// Calls a tool.
    pub(crate) async fn call(
        &self,
        tool: &ListedTool,
        arguments: Arguments,
        deadline: Option<Deadline>,
    ) -> Result<Answer, CallError> {
        let request = Request::tool(&self.caller, tool.server.as_str(), &tool.tool.name, arguments)?;
        let request = match deadline {
            Some(deadline) => request.within(deadline.left()),
            None => request,
        };
        self.is_calling.store(true, Ordering::Relaxed);
        let answer = self.host.send(request).await;
        self.is_calling.store(false, Ordering::Relaxed);
        answer
    }

    /// What a server said before it ended, as far as it is kept.
    pub(crate) fn last_words(&self, server: &ServerName) -> Vec<String> {
        let status = self.host.status_of(server.as_str()).ok();
        status.and_then(|status| status.last_error).map(|error| error.stderr).unwrap_or_default()
    }

    /// How a server is.
    pub(crate) fn status(&self, spec: &ServerSpec) -> ServerStatus {
        let status = self.host.status_of(spec.name.as_str());
        // The config's word counts, not the one the server is registered with.
        let status = status.map(|status| ServerStatus { lazy: spec.lazy, ..status });
        status.unwrap_or_else(|_| ServerStatus::registered(spec))
    }

    /// Starts servers and asks for their tools, some at a time, and gives what
    /// they say in the same order. Each ends when it has been looked at, unless
    /// they are kept up: then they stay as long as the results.
    pub(crate) async fn probe(&self, specs: &[&ServerSpec], is_kept: bool) -> Vec<Probed> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut probes = JoinSet::new();
        for (index, spec) in specs.iter().enumerate() {
            let (reach, spec, turns) = (self.clone(), (*spec).clone(), Arc::clone(&turns));
            probes.spawn(async move {
                let _turn = turns.acquire().await;
                (index, reach.probe_one(&spec, is_kept).await)
            });
        }
        let mut probed = patiently(probes.join_all(), || say_starting(specs.len())).await;
        probed.sort_by_key(|(index, _)| *index);
        probed.into_iter().map(|(_, probed)| probed).collect()
    }

    async fn probe_one(&self, spec: &ServerSpec, is_kept: bool) -> Probed {
        let began = Instant::now();
        let name = spec.name.as_str();
        let starting = async {
            match self.refused.get(name) {
                Some(error) => Err(error.clone()),
                None => self.host.bind(&self.caller, name).await,
            }
        };
        // More than a start may take, for a server that waits for room.
        let patience = Deadline::after(spec.start_timeout + LONGEST_WAIT);
        let bound = Deadline::bound(Some(patience), &spec.name, starting).await;
        let start = began.elapsed();
        let (binding, error) = match bound {
            Ok(binding) => (Some(binding), self.host.tools(&self.caller, name).await.err()),
            Err(error) => (None, Some(error)),
        };
        Probed { status: self.status(spec), start, error, _binding: binding.filter(|_| is_kept) }
    }
}

/// Does work, and says something if it takes long.
async fn patiently<T>(work: impl Future<Output = T>, say: impl FnOnce()) -> T {
    let mut work = pin!(work);
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            say();
            work.await
        }
    }
}

/// For people who wait; a script reads what comes of it.
fn say_starting(servers: usize) {
    if std::io::stderr().is_terminal() {
        tell(&format!("waiting for {}…", count(servers, "server")));
    }
}

/// The end of somebody's patience.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    patience: Duration,
}

impl Deadline {
    /// That long from now.
    pub(crate) fn after(patience: Duration) -> Self {
        Self { began: Instant::now(), patience }
    }

    /// How long somebody wanted to wait.
    pub(crate) fn patience(self) -> Duration {
        self.patience
    }

    /// Whether it has come.
    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    fn left(self) -> Duration {
        self.patience.saturating_sub(self.began.elapsed())
    }

    /// Work for a server, before anything is sent to it that could do harm.
    pub(crate) async fn bound<T>(
        deadline: Option<Self>,
        server: &ServerName,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let Some(deadline) = deadline else { return work.await };
        tokio::time::timeout(deadline.left(), work).await.unwrap_or_else(|_| {
            Err(CallError::TimedOut {
                server: server.clone(),
                after: deadline.patience,
                delivery: Delivery::NotSent,
            })
        })
    }
}
