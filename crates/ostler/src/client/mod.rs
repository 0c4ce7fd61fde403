//! Backends of commands: the daemon, or a host in the command's process.
//!
//! [`choose_backend`] is the one place that chooses: the daemon that runs for the config, or else a host in this
//! process, which lives as long as the command. The output of commands does not depend on the choice.

mod daemon_client;
mod http;
mod in_process;
mod input_required;
mod mcp;
mod request;
mod wait_messages;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::card::CardReport;
use ostler_core::config::Config;
use ostler_core::error::CallError;
use ostler_core::pins::PinPolicy;
use ostler_core::server_name::ServerName;
use ostler_core::status::{ServerState, ServerStatus};
use ostler_host::{Binding, Kind, ListedTool, ServerListing, ServerTools, UnfilteredDefinitions};
use ostler_relay::service::ServiceStatus;

pub(crate) use self::daemon_client::{DaemonClient, PendingLock, RefusedChange};
pub(crate) use self::http::DaemonAddress;
use self::in_process::InProcessBackend;
pub(crate) use self::in_process::LIST_TIMEOUT;
use self::input_required::InputResponses;
pub(crate) use self::request::CallRequest;
pub(crate) use self::wait_messages::Deadline;
use crate::call_events::{Audience, CallEventSender};
use crate::command::explain::ExplainResponse;
use crate::config_file::ConfigOrigin;
use crate::daemon_info::DaemonInfo;
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::output::print_stderr;
use crate::signals::SignalListener;
use crate::terminal::Terminal;
use crate::{cli, config_file, trust};

/// Timeout of pending disk writes at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Variable with the admin token of a daemon that is named.
const ADMIN_TOKEN_VARIABLE: &str = "OSTLER_ADMIN_TOKEN";

/// Choice of the backend that executes a command.
pub(crate) enum BackendChoice {
    /// A host in this process.
    InProcess(Box<InProcessOptions>),
    /// A daemon.
    Daemon(DaemonClient),
}

/// Options of a host in this process.
pub(crate) struct InProcessOptions {
    pub(crate) config: Config,
    /// Approved definitions, if there is a lock file.
    pub(crate) pins: Option<PinPolicy>,
    /// Location of the config's state files.
    pub(crate) instance: Option<DaemonInstance>,
    /// The file and its origin; `None` for the built-in server.
    pub(crate) file: Option<(PathBuf, ConfigOrigin)>,
}

impl InProcessOptions {
    /// Refuses to start servers of a config that needs consent and has none. Reports that the config needs consent, if
    /// it does.
    pub(crate) fn print_trust_state(&self) {
        if let Some((file, origin)) = &self.file {
            trust::print_trust_state(*origin, file, &self.config);
        }
    }

    fn require_trust(&self) -> Result<(), CommandFailure> {
        self.file.as_ref().map_or(Ok(()), |(file, origin)| trust::require_trust(*origin, file, &self.config))
    }
}

/// Servers of a config, ready for use.
pub(crate) enum Backend {
    InProcess(Box<InProcessBackend>),
    Daemon(DaemonClient),
}

/// Failure of a request to a server.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The host or the server refused it.
    Call(CallError),
    /// The daemon can't be reached, or refuses the command.
    Daemon(CommandFailure),
}

impl From<CallError> for RequestFailure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<CommandFailure> for RequestFailure {
    fn from(failure: CommandFailure) -> Self {
        Self::Daemon(failure)
    }
}

impl From<RequestFailure> for CommandFailure {
    fn from(trouble: RequestFailure) -> Self {
        match trouble {
            RequestFailure::Call(error) => Self::Call(error),
            RequestFailure::Daemon(failure) => failure,
        }
    }
}

/// Result of starting one server.
pub(crate) struct ProbeResult {
    /// Status after the start.
    pub(crate) status: ServerStatus,
    /// Failure of the start or of the list.
    pub(crate) error: Option<CallError>,
    /// Kept stderr output of its last process, if it failed.
    pub(crate) stderr: Vec<String>,
    /// Keeps the server up, if it should stay.
    pub(crate) _binding: Option<Binding>,
}

/// Purpose of a list of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListPurpose {
    /// Display: a server whose start has failed is not waited for.
    Show,
    /// A call of one of them: the list waits like the call.
    Call,
}

/// Response of a request.
pub(crate) struct CallResponse {
    /// Text of the result.
    pub(crate) result: Bytes,
    /// First question of the server that no caller could answer.
    pub(crate) unanswered: Option<String>,
}

/// All tools of one server, or the error of its list.
pub(crate) type DefinitionsResult = (ServerName, Result<UnfilteredDefinitions, CallError>);

/// Chooses the backend: the daemon that is named, the one that runs for the config, or this process.
pub(crate) fn choose_backend(shared: &cli::GlobalOptions) -> Result<BackendChoice, CommandFailure> {
    let found = config_file::find(shared.config.as_deref());
    if let Some(address) = &shared.daemon {
        let spot = found.ok().map(|found| instance_of(found.file())).transpose()?.flatten();
        let token = admin_token_for(address, spot.as_ref());
        return Ok(BackendChoice::Daemon(DaemonClient::new(address.clone(), token)));
    }
    let found = found?;
    let spot = instance_of(found.file())?;
    match spot.as_ref().map(running_daemon).transpose()?.flatten() {
        Some(there) => Ok(BackendChoice::Daemon(there)),
        None => {
            let chosen = config_file::load(found)?;
            let pins = PinPolicy::from_config(&chosen.config, chosen.lock.as_ref());
            let file = chosen.file.map(|file| (file, chosen.origin));
            Ok(BackendChoice::InProcess(Box::new(InProcessOptions {
                config: chosen.config,
                pins,
                instance: spot,
                file,
            })))
        }
    }
}

/// Chooses the backend for a config that has been read. Pins do not apply to requests of this process.
pub(crate) fn choose_backend_for(
    shared: &cli::GlobalOptions,
    file: &Path,
    config: &Config,
    origin: ConfigOrigin,
) -> Result<BackendChoice, CommandFailure> {
    let spot = instance_of(Some(file))?;
    let there = match &shared.daemon {
        Some(address) => {
            let token = admin_token_for(address, spot.as_ref());
            Some(DaemonClient::new(address.clone(), token))
        }
        None => spot.as_ref().map(running_daemon).transpose()?.flatten(),
    };
    let here = || {
        let file = Some((file.to_owned(), origin));
        BackendChoice::InProcess(Box::new(InProcessOptions {
            config: config.clone(),
            pins: None,
            instance: spot,
            file,
        }))
    };
    Ok(there.map_or_else(here, BackendChoice::Daemon))
}

/// Returns the instance of a config; `None` on a machine without a home directory, where no daemon can be found.
fn instance_of(file: Option<&Path>) -> Result<Option<DaemonInstance>, CommandFailure> {
    match DaemonInstance::for_config(file) {
        Err(failure @ CommandFailure::UnsafeFolder { .. }) => Err(failure),
        spot => Ok(spot.ok()),
    }
}

/// Returns the admin token for a daemon that is named: the environment's, or that of the config. The config's token is
/// a secret of this machine, and is sent to no other.
pub(crate) fn admin_token_for(address: &DaemonAddress, spot: Option<&DaemonInstance>) -> Option<String> {
    token_in_environment().or_else(|| spot.filter(|_| address.is_loopback())?.admin_token())
}

fn token_in_environment() -> Option<String> {
    std::env::var(ADMIN_TOKEN_VARIABLE).ok().filter(|token| !token.is_empty())
}

/// Returns the daemon of an instance, if one runs; waits for one that is being replaced. Fails if a process holds the
/// instance and can't be reached.
pub(crate) fn running_daemon(spot: &DaemonInstance) -> Result<Option<DaemonClient>, CommandFailure> {
    spot.wait_until_settled()?;
    let Some((note, token)) = spot.running_with_token() else { return Ok(None) };
    Ok(DaemonAddress::local(&note.url).map(|address| DaemonClient::new(address, token)))
}

/// Sends a request to the daemon of an instance, if one runs.
pub(crate) fn with_running_daemon<T>(
    spot: &DaemonInstance,
    ask: impl AsyncFnOnce(&DaemonClient) -> Result<T, RequestFailure>,
) -> Option<Result<T, RequestFailure>> {
    let there = match running_daemon(spot) {
        Ok(there) => there?,
        Err(failure) => return Some(Err(failure.into())),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(Err(CommandFailure::Machine(error).into())),
    };
    Some(runtime.block_on(ask(&there)))
}

/// Returns the daemon, for commands that need one.
pub(crate) fn require_daemon(
    shared: &cli::GlobalOptions,
    why: &'static str,
) -> Result<DaemonClient, CommandFailure> {
    match choose_backend(shared)? {
        BackendChoice::Daemon(there) => Ok(there),
        BackendChoice::InProcess(..) => Err(CommandFailure::NoDaemon { why }),
    }
}

/// Runs work with the servers of a config, which needs consent. Servers of this process are stopped in any case: also
/// when the work fails or a signal interrupts it.
pub(crate) fn run_with_backend<T>(
    way: BackendChoice,
    work: impl AsyncFnOnce(&Backend) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    if let BackendChoice::InProcess(setting) = &way {
        setting.require_trust()?;
    }
    run_without_consent(way, work)
}

/// Runs work that starts no server, and needs no consent.
pub(crate) fn run_without_consent<T>(
    way: BackendChoice,
    work: impl AsyncFnOnce(&Backend) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandFailure::Machine)?;
    let result = runtime.block_on(async {
        let mut interrupts = SignalListener::listen().map_err(CommandFailure::Machine)?;
        let reach = Backend::open(way).await?;
        let mut result = interrupts.run_until_signal(work(&reach)).await;
        match &mut result {
            Err(CommandFailure::Interrupted { may_have_run, .. }) => *may_have_run = reach.is_calling(),
            // The name may be in an edit that the daemon has not applied.
            Err(CommandFailure::UnknownName { cause, .. }) => {
                if let Some(change) = reach.refused_change().await {
                    cause.push_str(&format!("; {}", change.message));
                }
            }
            _ => {}
        }
        // A second signal skips the wait: the guard ends the servers.
        match interrupts.run_until_signal(reach.close()).await {
            Ok(()) => result,
            Err(impatient) => result.and(Err(impatient)),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

impl Backend {
    async fn open(way: BackendChoice) -> Result<Self, CommandFailure> {
        Ok(match way {
            BackendChoice::InProcess(setting) => {
                Self::InProcess(Box::new(InProcessBackend::open(*setting).await?))
            }
            BackendChoice::Daemon(there) => Self::Daemon(there),
        })
    }

    async fn close(&self) -> Result<(), CommandFailure> {
        match self {
            Self::InProcess(here) => here.close().await,
            Self::Daemon(_) => Ok(()),
        }
    }

    fn is_calling(&self) -> bool {
        match self {
            Self::InProcess(here) => here.is_calling(),
            Self::Daemon(there) => there.is_calling(),
        }
    }

    /// Runs work, and reports on stderr the starts that it waits for.
    async fn with_start_messages<T>(&self, work: impl Future<Output = T>) -> T {
        wait_messages::with_start_messages(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Runs lists of named servers, and reports on stderr the servers that they wait for.
    async fn with_named_list_messages<T>(&self, servers: &[ServerName], work: impl Future<Output = T>) -> T {
        let statuses = async || self.statuses_of(servers).await;
        wait_messages::with_named_list_messages(work, statuses).await
    }

    async fn statuses_of(&self, servers: &[ServerName]) -> Vec<ServerStatus> {
        let mut statuses = self.statuses().await.unwrap_or_default();
        statuses.retain(|status| servers.contains(&status.name));
        statuses
    }

    /// Runs lists, and reports on stderr the servers that they wait for.
    async fn with_list_messages<T>(&self, work: impl Future<Output = T>) -> T {
        wait_messages::with_list_messages(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Returns whether the servers outlive the command.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// Returns the enabled servers of the config, in its order.
    pub(crate) async fn enabled_servers(&self) -> Result<Vec<ServerName>, CommandFailure> {
        let statuses = self.statuses().await?.into_iter();
        Ok(statuses
            .filter(|status| status.state != ServerState::Disabled)
            .map(|status| status.name)
            .collect())
    }

    /// Returns the servers of the config, disabled ones at the end.
    pub(crate) async fn all_servers(&self) -> Result<Vec<ServerName>, CommandFailure> {
        Ok(self.statuses().await?.into_iter().map(|status| status.name).collect())
    }

    /// Returns the statuses of servers, in the order of the config.
    pub(crate) async fn statuses(&self) -> Result<Vec<ServerStatus>, CommandFailure> {
        match self {
            Self::InProcess(here) => Ok(here.statuses()),
            Self::Daemon(there) => there.statuses().await,
        }
    }

    /// Returns the daemon's description; `None` without a daemon, and from an earlier version.
    pub(crate) async fn daemon_info(&self) -> Option<DaemonInfo> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.info().await.ok(),
        }
    }

    /// Returns the audit's current failure. A command that writes the audit itself reports it elsewhere.
    pub(crate) async fn audit_warning(&self) -> Result<Option<String>, CommandFailure> {
        match self {
            Self::InProcess(_) => Ok(None),
            Self::Daemon(there) => there.audit_warning().await,
        }
    }

    /// Returns the difference between the lock file on disk and the one in force in the daemon; `None` if they agree. A
    /// host in this process reads the file itself.
    pub(crate) async fn pending_lock(&self) -> Result<Option<PendingLock>, CommandFailure> {
        match self {
            Self::InProcess(_) => Ok(None),
            Self::Daemon(there) => there.pending_lock().await,
        }
    }

    /// Returns the reason why a daemon does not run the config on disk; `None` if it does, or does not report it.
    pub(crate) async fn refused_change(&self) -> Option<RefusedChange> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.refused_change().await,
        }
    }

    /// Warns if a daemon runs another config than the one on disk.
    pub(crate) async fn warn_refused_change(&self) {
        if let Some(change) = self.refused_change().await {
            print_stderr(&format!("warning: {}", change.message));
        }
    }

    /// Returns the status of the relay; `None` without one.
    pub(crate) async fn relay(&self) -> Option<ServiceStatus> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.relay().await,
        }
    }

    /// Returns the rule that decides about a role; only a daemon has rules in force.
    pub(crate) async fn explain(&self, role: &str, what: &str) -> Result<ExplainResponse, CommandFailure> {
        match self {
            Self::InProcess(_) => Err(CommandFailure::NoDaemon { why: "it has the rules that are in force" }),
            Self::Daemon(there) => Ok(there.explain(role, what).await?),
        }
    }

    /// Reads the card of a server without starting the server.
    pub(crate) async fn card(&self, server: &ServerName) -> Result<CardReport, RequestFailure> {
        match self {
            Self::InProcess(here) => Ok(here.card(server.as_str()).await?),
            Self::Daemon(there) => there.card(server).await,
        }
    }

    /// Fetches the tools of one server.
    pub(crate) async fn list_tools(
        &self,
        server: &str,
        purpose: ListPurpose,
    ) -> Result<Vec<ListedTool>, RequestFailure> {
        let work = async {
            match self {
                Self::InProcess(here) => Ok(here.list_tools(server).await?),
                Self::Daemon(there) => there.list_tools(server, purpose).await,
            }
        };
        let named = ServerName::new(server).ok();
        match purpose {
            ListPurpose::Show => self.with_named_list_messages(named.as_slice(), work).await,
            ListPurpose::Call => {
                let statuses = async || self.statuses_of(named.as_slice()).await;
                wait_messages::with_retry_messages(work, statuses).await
            }
        }
    }

    /// Returns the tools of all servers by name; those of a sleeping server from its cached list.
    pub(crate) async fn list_all_tools(&self) -> Result<Vec<ServerTools>, CommandFailure> {
        self.with_list_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.list_all_tools().await),
                Self::Daemon(there) => there.list_all_tools().await,
            }
        })
        .await
    }

    /// Fetches every tool of these servers, regardless of rules and pins.
    pub(crate) async fn definitions(
        &self,
        servers: &[ServerName],
    ) -> Result<Vec<DefinitionsResult>, CommandFailure> {
        self.with_named_list_messages(servers, async {
            match self {
                Self::InProcess(here) => Ok(here.definitions(servers).await),
                Self::Daemon(there) => there.definitions(servers).await,
            }
        })
        .await
    }

    /// Returns the items of a kind by server; of all servers, or of one, which alone is asked.
    pub(crate) async fn list_items(
        &self,
        kind: Kind,
        server: Option<&ServerName>,
    ) -> Result<Vec<ServerListing>, CommandFailure> {
        self.with_list_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.list_items(kind, server).await),
                Self::Daemon(there) => there.list_items(kind, server).await,
            }
        })
        .await
    }

    /// Returns the server that owns a URI, as the host resolves it.
    pub(crate) async fn resource_owner(&self, uri: &str) -> Result<ServerName, RequestFailure> {
        self.with_list_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.resource_owner(uri).await?),
                Self::Daemon(there) => there.resource_owner(uri).await,
            }
        })
        .await
    }

    /// Calls a tool, gets a prompt or reads a resource; returns the text of the result. A person at the terminal sees
    /// events of the call, and is asked the server's questions.
    pub(crate) async fn request(
        &self,
        mut wish: CallRequest,
        deadline: Option<Deadline>,
        mut terminal: Option<Terminal>,
    ) -> Result<CallResponse, RequestFailure> {
        let mut round = 0;
        loop {
            wish.timeout_ms = deadline.map(Deadline::remaining_ms);
            let response = self.request_once(&wish, terminal.as_mut()).await?;
            let terminal =
                terminal.as_mut().filter(|terminal| terminal.can_ask() && round < input_required::MAX_ROUNDS);
            match input_required::answer_input_requests(terminal, &wish.server, &response.result, round).await
            {
                Some(InputResponses { responses, request_state: state }) => {
                    (wish.input_responses, wish.request_state) = (responses, state);
                }
                None => return Ok(response),
            }
            round += 1;
        }
    }

    async fn request_once(
        &self,
        wish: &CallRequest,
        terminal: Option<&mut Terminal>,
    ) -> Result<CallResponse, RequestFailure> {
        let (observer, mut events) = CallEventSender::new(match &terminal {
            Some(terminal) if terminal.can_ask() => Audience::Terminal,
            Some(_) => Audience::Log,
            None => Audience::None,
        });
        let work = async {
            let result = match self {
                Self::InProcess(here) => here.request(wish, &observer).await.map_err(RequestFailure::from),
                Self::Daemon(there) => there.request(wish, &observer).await,
            };
            match (result, observer.unanswered()) {
                (Err(RequestFailure::Call(CallError::Rpc(_))), Some(asked)) => {
                    Err(CommandFailure::InputRequired { what: wish.describe(), asked }.into())
                }
                (result, unanswered) => result.map(|result| CallResponse { result, unanswered }),
            }
        };
        let statuses = async || {
            let mut statuses = self.statuses().await.unwrap_or_default();
            statuses.retain(|status| status.name.as_str() == wish.server);
            statuses
        };
        let work = wait_messages::with_retry_messages(work, statuses);
        let Some(terminal) = terminal else { return work.await };
        let result = tokio::select! {
            biased;
            result = work => result,
            never = terminal.show_events(&wish.server, &mut events) => never,
        };
        terminal.show_remaining(&wish.server, &mut events);
        result
    }

    /// Returns the kept stderr output of a server's last process.
    pub(crate) async fn last_stderr(&self, server: &ServerName) -> Vec<String> {
        match self {
            Self::InProcess(here) => here.last_stderr(server),
            Self::Daemon(there) => there.last_stderr(server).await,
        }
    }

    /// Starts servers and lists their tools; returns the results in the same order. Servers of this process stop after
    /// the probe, unless they are kept up: then they run as long as their results live.
    pub(crate) async fn probe(
        &self,
        servers: &[ServerName],
        is_kept: bool,
    ) -> Result<Vec<ProbeResult>, CommandFailure> {
        self.with_start_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.probe(servers, is_kept).await),
                Self::Daemon(there) => there.probe(servers).await,
            }
        })
        .await
    }
}
