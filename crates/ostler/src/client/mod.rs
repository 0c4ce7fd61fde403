//! How commands reach servers.
//!
//! [`find`] is the one place that decides who does the work: the daemon that
//! runs for the config, or else a host in this process, which lives as long as
//! the command. What commands print does not depend on it.

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

/// How long what is still being written to disk may take at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The variable that holds the admin token of a daemon that is named.
const ADMIN_TOKEN_VARIABLE: &str = "OSTLER_ADMIN_TOKEN";

/// Who does the work.
pub(crate) enum BackendChoice {
    /// A host in this process.
    InProcess(Box<InProcessOptions>),
    /// A daemon.
    Daemon(DaemonClient),
}

/// What a host in this process is made with.
pub(crate) struct InProcessOptions {
    pub(crate) config: Config,
    /// What was approved, where there is a lock file.
    pub(crate) pins: Option<PinPolicy>,
    /// Where the config's other files are.
    pub(crate) instance: Option<DaemonInstance>,
    /// The file and how it was found; none for the built-in server.
    pub(crate) file: Option<(PathBuf, ConfigOrigin)>,
}

impl InProcessOptions {
    /// Refuses to start servers of a config that needs consent and has none.
    /// Tells that the config needs consent, if it does.
    pub(crate) fn print_trust_state(&self) {
        if let Some((file, origin)) = &self.file {
            trust::print_trust_state(*origin, file, &self.config);
        }
    }

    fn require_trust(&self) -> Result<(), CommandFailure> {
        self.file.as_ref().map_or(Ok(()), |(file, origin)| trust::require_trust(*origin, file, &self.config))
    }
}

/// The servers of a config, ready to be used.
pub(crate) enum Backend {
    InProcess(Box<InProcessBackend>),
    Daemon(DaemonClient),
}

/// Why what was asked of a server brought nothing.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The host or the server says no.
    Call(CallError),
    /// The daemon can't be asked.
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

/// What the start of one server brought.
pub(crate) struct ProbeResult {
    /// How it is, and what it said.
    pub(crate) status: ServerStatus,
    /// Why it could not be used.
    pub(crate) error: Option<CallError>,
    /// All that is kept of what its last process wrote to stderr, if it could not be used.
    pub(crate) stderr: Vec<String>,
    /// Keeps it up, if it should be.
    pub(crate) _binding: Option<Binding>,
}

/// What the tools of a server are listed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListPurpose {
    /// To be shown. A server whose start has failed is not waited for.
    Show,
    /// A call of one of them, which waits like the call does.
    Call,
}

/// What a request brought.
pub(crate) struct CallResponse {
    /// The text of the result.
    pub(crate) result: Bytes,
    /// What the server asked meanwhile and nobody here could answer.
    pub(crate) unanswered: Option<String>,
}

/// All tools of one server, or why they are not known.
pub(crate) type DefinitionsResult = (ServerName, Result<UnfilteredDefinitions, CallError>);

/// Who does the work: the daemon that is named, the one that runs for the
/// config, or this process.
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

/// The same for a config that has been read. What this process asks of servers
/// is not judged by pins.
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

/// The spot of a config; `None` on a machine without a home, which has no daemon that could be found.
fn instance_of(file: Option<&Path>) -> Result<Option<DaemonInstance>, CommandFailure> {
    match DaemonInstance::for_config(file) {
        Err(failure @ CommandFailure::UnsafeFolder { .. }) => Err(failure),
        spot => Ok(spot.ok()),
    }
}

/// The admin token for a daemon that is named: the environment's, or that of the
/// config. The config's is a secret of this machine, and goes to no other.
pub(crate) fn admin_token_for(address: &DaemonAddress, spot: Option<&DaemonInstance>) -> Option<String> {
    token_in_environment().or_else(|| spot.filter(|_| address.is_loopback())?.admin_token())
}

fn token_in_environment() -> Option<String> {
    std::env::var(ADMIN_TOKEN_VARIABLE).ok().filter(|token| !token.is_empty())
}

/// The daemon of a spot, if one runs; one that is being replaced is waited for. Fails if a process holds the spot that
/// can't be found.
pub(crate) fn running_daemon(spot: &DaemonInstance) -> Result<Option<DaemonClient>, CommandFailure> {
    spot.wait_until_settled()?;
    let Some((note, token)) = spot.running_with_token() else { return Ok(None) };
    Ok(DaemonAddress::local(&note.url).map(|address| DaemonClient::new(address, token)))
}

/// Asks the daemon of a spot, if one runs.
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

/// The daemon, for commands that are of no use without one.
pub(crate) fn require_daemon(
    shared: &cli::GlobalOptions,
    why: &'static str,
) -> Result<DaemonClient, CommandFailure> {
    match choose_backend(shared)? {
        BackendChoice::Daemon(there) => Ok(there),
        BackendChoice::InProcess(..) => Err(CommandFailure::NoDaemon { why }),
    }
}

/// Does work with the servers of a config, which needs consent to run them. Those of this process are not left
/// behind: neither when the work fails nor when a signal ends it.
pub(crate) fn run_with_backend<T>(
    way: BackendChoice,
    work: impl AsyncFnOnce(&Backend) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    if let BackendChoice::InProcess(setting) = &way {
        setting.require_trust()?;
    }
    run_without_consent(way, work)
}

/// Does work that starts no server, and needs no consent.
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
            // The name may stand in an edit that the daemon has not applied.
            Err(CommandFailure::UnknownName { cause, .. }) => {
                if let Some(change) = reach.refused_change().await {
                    cause.push_str(&format!("; {}", change.message));
                }
            }
            _ => {}
        }
        // Whoever asks twice does not want to wait: the guard ends the servers.
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

    /// Does work, and tells on stderr which starts it waits for.
    async fn with_start_messages<T>(&self, work: impl Future<Output = T>) -> T {
        wait_messages::with_start_messages(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Asks servers that were named for lists, and tells on stderr which of them are waited for.
    async fn with_named_list_messages<T>(&self, servers: &[ServerName], work: impl Future<Output = T>) -> T {
        let statuses = async || self.statuses_of(servers).await;
        wait_messages::with_named_list_messages(work, statuses).await
    }

    async fn statuses_of(&self, servers: &[ServerName]) -> Vec<ServerStatus> {
        let mut statuses = self.statuses().await.unwrap_or_default();
        statuses.retain(|status| servers.contains(&status.name));
        statuses
    }

    /// Asks servers for lists, and tells on stderr which of them are waited for.
    async fn with_list_messages<T>(&self, work: impl Future<Output = T>) -> T {
        wait_messages::with_list_messages(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Whether the servers live on when the command has ended.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// The servers of the config that are run, in its order.
    pub(crate) async fn enabled_servers(&self) -> Result<Vec<ServerName>, CommandFailure> {
        let statuses = self.statuses().await?.into_iter();
        Ok(statuses
            .filter(|status| status.state != ServerState::Disabled)
            .map(|status| status.name)
            .collect())
    }

    /// The servers of the config, those that are disabled at the end.
    pub(crate) async fn all_servers(&self) -> Result<Vec<ServerName>, CommandFailure> {
        Ok(self.statuses().await?.into_iter().map(|status| status.name).collect())
    }

    /// How the servers are, in the order of the config.
    pub(crate) async fn statuses(&self) -> Result<Vec<ServerStatus>, CommandFailure> {
        match self {
            Self::InProcess(here) => Ok(here.statuses()),
            Self::Daemon(there) => there.statuses().await,
        }
    }

    /// What the daemon is; none without one, and from one of a version that does not tell.
    pub(crate) async fn daemon_info(&self) -> Option<DaemonInfo> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.info().await.ok(),
        }
    }

    /// What is wrong with the record of calls. A command says that itself when
    /// it writes one.
    pub(crate) async fn audit_warning(&self) -> Result<Option<String>, CommandFailure> {
        match self {
            Self::InProcess(_) => Ok(None),
            Self::Daemon(there) => there.audit_warning().await,
        }
    }

    /// Tells how the lock file on disk differs from the one that a daemon has in force; `None` if it does not. A command
    /// reads it itself.
    pub(crate) async fn pending_lock(&self) -> Result<Option<PendingLock>, CommandFailure> {
        match self {
            Self::InProcess(_) => Ok(None),
            Self::Daemon(there) => there.pending_lock().await,
        }
    }

    /// Why a daemon does not run the config as it is on disk; `None` if it does, or does not tell.
    pub(crate) async fn refused_change(&self) -> Option<RefusedChange> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.refused_change().await,
        }
    }

    /// Warns where a daemon runs another config than the one on disk.
    pub(crate) async fn warn_refused_change(&self) {
        if let Some(change) = self.refused_change().await {
            print_stderr(&format!("warning: {}", change.message));
        }
    }

    /// How workers elsewhere are served; `None` if they are not.
    pub(crate) async fn relay(&self) -> Option<ServiceStatus> {
        match self {
            Self::InProcess(_) => None,
            Self::Daemon(there) => there.relay().await,
        }
    }

    /// Explains which rule decides about a role; only a daemon has rules in force.
    pub(crate) async fn explain(&self, role: &str, what: &str) -> Result<ExplainResponse, CommandFailure> {
        match self {
            Self::InProcess(_) => Err(CommandFailure::NoDaemon { why: "it has the rules that are in force" }),
            Self::Daemon(there) => Ok(there.explain(role, what).await?),
        }
    }

    /// Reads the card of a server, which is not started for it.
    pub(crate) async fn card(&self, server: &ServerName) -> Result<CardReport, RequestFailure> {
        match self {
            Self::InProcess(here) => Ok(here.card(server.as_str()).await?),
            Self::Daemon(there) => there.card(server).await,
        }
    }

    /// The tools of one server, asked for now.
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

    /// The tools of all servers, by name; those of a sleeping one as far as they are known.
    pub(crate) async fn list_all_tools(&self) -> Result<Vec<ServerTools>, CommandFailure> {
        self.with_list_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.list_all_tools().await),
                Self::Daemon(there) => there.list_all_tools().await,
            }
        })
        .await
    }

    /// Every tool of these servers, asked for now, whoever may use it and
    /// whether it is approved or not.
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

    /// What all servers offer of a kind, by server, or one of them, which alone is asked.
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

    /// Returns the server that answers for a URI, as the host decides it.
    pub(crate) async fn resource_owner(&self, uri: &str) -> Result<ServerName, RequestFailure> {
        self.with_list_messages(async {
            match self {
                Self::InProcess(here) => Ok(here.resource_owner(uri).await?),
                Self::Daemon(there) => there.resource_owner(uri).await,
            }
        })
        .await
    }

    /// Calls a tool, gets a prompt or reads a resource; gives the text of the result. A person at the terminal sees
    /// what happens meanwhile, and is asked what the server asks.
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

    /// What a server said before it ended, as far as it is kept.
    pub(crate) async fn last_stderr(&self, server: &ServerName) -> Vec<String> {
        match self {
            Self::InProcess(here) => here.last_stderr(server),
            Self::Daemon(there) => there.last_stderr(server).await,
        }
    }

    /// Starts servers and asks for their tools, and gives what they say in the
    /// same order. Servers of this process end when they have been looked at,
    /// unless they are kept up: then they stay as long as the results.
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
