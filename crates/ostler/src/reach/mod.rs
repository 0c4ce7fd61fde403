//! How commands reach servers.
//!
//! [`find`] is the one place that decides who does the work: the daemon that
//! runs for the config, or else a host in this process, which lives as long as
//! the command. What commands print does not depend on it.

mod here;
mod http;
mod mcp;
mod patience;
mod request;
mod rounds;
mod there;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::card::CardReport;
use ostler_core::config::Config;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::Pins;
use ostler_core::status::{ServerStatus, State};
use ostler_host::{Binding, Definitions, Discovered, Kind, ListedTool, ServerListing};
use ostler_relay::service::ServiceStatus;

use self::here::Here;
pub(crate) use self::here::LIST_PATIENCE;
pub(crate) use self::http::Address;
pub(crate) use self::patience::Deadline;
pub(crate) use self::request::CallRequest;
use self::rounds::Answers;
pub(crate) use self::there::{RefusedChange, There};
use crate::about::About;
use crate::call_events::Observer;
use crate::config_file::Origin;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::tell;
use crate::spot::Spot;
use crate::terminal::Terminal;
use crate::{cli, config_file, trust};

/// How long what is still being written to disk may take at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The variable that holds the admin token of a daemon that is named.
const TOKEN: &str = "OSTLER_ADMIN_TOKEN";

/// Who does the work.
pub(crate) enum Way {
    /// A host in this process.
    Here(Box<Setting>),
    /// A daemon.
    There(There),
}

/// What a host in this process is made with.
pub(crate) struct Setting {
    pub(crate) config: Config,
    /// What was approved, where there is a lock file.
    pub(crate) pins: Option<Pins>,
    /// Where the config's other files are.
    pub(crate) spot: Option<Spot>,
    /// The file and how it was found; none for the built-in server.
    pub(crate) file: Option<(PathBuf, Origin)>,
}

impl Setting {
    /// Refuses to start servers of a config that needs consent and has none.
    /// Tells that the config needs consent, if it does.
    pub(crate) fn tell_standing(&self) {
        if let Some((file, origin)) = &self.file {
            trust::tell_standing(*origin, file, &self.config);
        }
    }

    fn require_trust(&self) -> Result<(), Failure> {
        self.file.as_ref().map_or(Ok(()), |(file, origin)| trust::require(*origin, file, &self.config))
    }
}

/// The servers of a config, ready to be used.
pub(crate) enum Reach {
    Here(Box<Here>),
    There(There),
}

/// Why what was asked of a server brought nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The host or the server says no.
    Call(CallError),
    /// The daemon can't be asked.
    Daemon(Failure),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Daemon(failure)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Call(error) => Self::Call(error),
            Trouble::Daemon(failure) => failure,
        }
    }
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
    pub(crate) _kept: Option<Binding>,
}

/// All tools of one server, or why they are not known.
pub(crate) type Gathered = (ServerName, Result<Definitions, CallError>);

/// Who does the work: the daemon that is named, the one that runs for the
/// config, or this process.
pub(crate) fn find(shared: &cli::Shared) -> Result<Way, Failure> {
    let found = config_file::find(shared.config.as_deref());
    if let Some(address) = &shared.daemon {
        let spot = found.ok().map(|found| spot_of(found.file())).transpose()?.flatten();
        let token = token_for(address, spot.as_ref());
        return Ok(Way::There(There::new(address.clone(), token)));
    }
    let found = found?;
    let spot = spot_of(found.file())?;
    match spot.as_ref().and_then(running) {
        Some(there) => Ok(Way::There(there)),
        None => {
            let chosen = config_file::choose(found)?;
            let pins = Pins::of(&chosen.config, chosen.lock.as_ref());
            let file = chosen.file.map(|file| (file, chosen.origin));
            Ok(Way::Here(Box::new(Setting { config: chosen.config, pins, spot, file })))
        }
    }
}

/// The same for a config that has been read. What this process asks of servers
/// is not judged by pins.
pub(crate) fn find_for(
    shared: &cli::Shared,
    file: &Path,
    config: &Config,
    origin: Origin,
) -> Result<Way, Failure> {
    let spot = spot_of(Some(file))?;
    let there = match &shared.daemon {
        Some(address) => {
            let token = token_for(address, spot.as_ref());
            Some(There::new(address.clone(), token))
        }
        None => spot.as_ref().and_then(running),
    };
    let here = || {
        let file = Some((file.to_owned(), origin));
        Way::Here(Box::new(Setting { config: config.clone(), pins: None, spot, file }))
    };
    Ok(there.map_or_else(here, Way::There))
}

/// The spot of a config; `None` on a machine without a home, which has no daemon that could be found.
fn spot_of(file: Option<&Path>) -> Result<Option<Spot>, Failure> {
    match Spot::of(file) {
        Err(failure @ Failure::UnsafeFolder { .. }) => Err(failure),
        spot => Ok(spot.ok()),
    }
}

/// The admin token for a daemon that is named: the environment's, or that of the
/// config. The config's is a secret of this machine, and goes to no other.
pub(crate) fn token_for(address: &Address, spot: Option<&Spot>) -> Option<String> {
    token_in_environment().or_else(|| spot.filter(|_| address.is_loopback())?.token())
}

fn token_in_environment() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

/// The daemon of a spot, if one runs; one that is being replaced is waited for.
pub(crate) fn running(spot: &Spot) -> Option<There> {
    spot.settled()?;
    let (note, token) = spot.running_with_token()?;
    Some(There::new(Address::near(&note.url)?, token))
}

/// Asks the daemon of a spot, if one runs.
pub(crate) fn ask_daemon<T>(
    spot: &Spot,
    ask: impl AsyncFnOnce(&There) -> Result<T, Trouble>,
) -> Option<Result<T, Trouble>> {
    let there = running(spot)?;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(Err(Failure::Machine(error).into())),
    };
    Some(runtime.block_on(ask(&there)))
}

/// The daemon, for commands that are of no use without one.
pub(crate) fn find_daemon(shared: &cli::Shared, why: &'static str) -> Result<There, Failure> {
    match find(shared)? {
        Way::There(there) => Ok(there),
        Way::Here(..) => Err(Failure::NoDaemon { why }),
    }
}

/// Does work with the servers of a config, which needs consent to run them. Those of this process are not left
/// behind: neither when the work fails nor when a signal ends it.
pub(crate) fn run<T>(way: Way, work: impl AsyncFnOnce(&Reach) -> Result<T, Failure>) -> Result<T, Failure> {
    if let Way::Here(setting) = &way {
        setting.require_trust()?;
    }
    look(way, work)
}

/// Does work that starts no server, and needs no consent.
pub(crate) fn look<T>(way: Way, work: impl AsyncFnOnce(&Reach) -> Result<T, Failure>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
    let result = runtime.block_on(async {
        let mut interrupts = Interrupts::listen().map_err(Failure::Machine)?;
        let reach = Reach::open(way).await?;
        let mut result = interrupts.until(work(&reach)).await;
        match &mut result {
            Err(Failure::Interrupted { may_have_run, .. }) => *may_have_run = reach.is_calling(),
            // The name may stand in an edit that the daemon has not applied.
            Err(Failure::UnknownName { cause, .. }) => {
                if let Some(change) = reach.refused_change().await {
                    cause.push_str(&format!("; {}", change.message));
                }
            }
            _ => {}
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
    async fn open(way: Way) -> Result<Self, Failure> {
        Ok(match way {
            Way::Here(setting) => Self::Here(Box::new(Here::open(*setting).await?)),
            Way::There(there) => Self::There(there),
        })
    }

    async fn close(&self) -> Result<(), Failure> {
        match self {
            Self::Here(here) => here.close().await,
            Self::There(_) => Ok(()),
        }
    }

    fn is_calling(&self) -> bool {
        match self {
            Self::Here(here) => here.is_calling(),
            Self::There(there) => there.is_calling(),
        }
    }

    /// Does work, and tells on stderr which starts it waits for.
    async fn reporting<T>(&self, work: impl Future<Output = T>) -> T {
        patience::reporting(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Asks servers for lists, and tells on stderr which of them are waited for.
    async fn listing<T>(&self, work: impl Future<Output = T>) -> T {
        patience::listing(work, async || self.statuses().await.unwrap_or_default()).await
    }

    /// Whether the servers live on when the command has ended.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// The servers of the config that are run, in its order.
    pub(crate) async fn names(&self) -> Result<Vec<ServerName>, Failure> {
        let statuses = self.statuses().await?.into_iter();
        Ok(statuses.filter(|status| status.state != State::Disabled).map(|status| status.name).collect())
    }

    /// The servers of the config, those that are disabled at the end.
    pub(crate) async fn known(&self) -> Result<Vec<ServerName>, Failure> {
        Ok(self.statuses().await?.into_iter().map(|status| status.name).collect())
    }

    /// How the servers are, in the order of the config.
    pub(crate) async fn statuses(&self) -> Result<Vec<ServerStatus>, Failure> {
        match self {
            Self::Here(here) => Ok(here.statuses()),
            Self::There(there) => there.statuses().await,
        }
    }

    /// What the daemon is; none without one, and from one of a version that does not tell.
    pub(crate) async fn about(&self) -> Option<About> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => there.about().await.ok(),
        }
    }

    /// What is wrong with the record of calls. A command says that itself when
    /// it writes one.
    pub(crate) async fn audit_trouble(&self) -> Result<Option<String>, Failure> {
        match self {
            Self::Here(_) => Ok(None),
            Self::There(there) => there.audit_trouble().await,
        }
    }

    /// Whether a daemon has not taken up the lock file on disk. A command reads it itself.
    pub(crate) async fn is_lock_pending(&self) -> Result<bool, Failure> {
        match self {
            Self::Here(_) => Ok(false),
            Self::There(there) => there.is_lock_pending().await,
        }
    }

    /// Why a daemon does not run the config as it is on disk; `None` if it does, or does not tell.
    pub(crate) async fn refused_change(&self) -> Option<RefusedChange> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => there.refused_change().await,
        }
    }

    /// Warns where a daemon runs another config than the one on disk.
    pub(crate) async fn tell_refused_change(&self) {
        if let Some(change) = self.refused_change().await {
            tell(&format!("warning: {}", change.message));
        }
    }

    /// How workers elsewhere are served; `None` if they are not.
    pub(crate) async fn relay(&self) -> Option<ServiceStatus> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => there.relay().await,
        }
    }

    /// Reads the card of a server, which is not started for it.
    pub(crate) async fn card(&self, server: &ServerName) -> Result<CardReport, Trouble> {
        match self {
            Self::Here(here) => Ok(here.card(server.as_str()).await?),
            Self::There(there) => there.card(server).await,
        }
    }

    /// The tools of one server, asked for now.
    pub(crate) async fn tools(&self, server: &str) -> Result<Vec<ListedTool>, Trouble> {
        self.reporting(async {
            match self {
                Self::Here(here) => Ok(here.tools(server).await?),
                Self::There(there) => there.tools(server).await,
            }
        })
        .await
    }

    /// The tools of all servers, by name; those of a sleeping one as far as they are known.
    pub(crate) async fn discover(&self) -> Result<Vec<Discovered>, Failure> {
        self.listing(async {
            match self {
                Self::Here(here) => Ok(here.discover().await),
                Self::There(there) => there.discover().await,
            }
        })
        .await
    }

    /// Every tool of these servers, asked for now, whoever may use it and
    /// whether it is approved or not.
    pub(crate) async fn definitions(&self, servers: &[ServerName]) -> Result<Vec<Gathered>, Failure> {
        self.reporting(async {
            match self {
                Self::Here(here) => Ok(here.definitions(servers).await),
                Self::There(there) => there.definitions(servers).await,
            }
        })
        .await
    }

    /// What all servers offer of a kind, by server, or one of them, which alone is asked.
    pub(crate) async fn offers(
        &self,
        kind: Kind,
        server: Option<&ServerName>,
    ) -> Result<Vec<ServerListing>, Failure> {
        self.listing(async {
            match self {
                Self::Here(here) => Ok(here.offers(kind, server).await),
                Self::There(there) => there.offers(kind, server).await,
            }
        })
        .await
    }

    /// Returns the server that answers for a URI, as the host decides it.
    pub(crate) async fn owner_of(&self, uri: &str) -> Result<ServerName, Trouble> {
        self.listing(async {
            match self {
                Self::Here(here) => Ok(here.owner_of(uri).await?),
                Self::There(there) => there.owner_of(uri).await,
            }
        })
        .await
    }

    /// Calls a tool, gets a prompt or reads a resource; gives the text of the result. A person at the terminal sees
    /// what happens meanwhile, and is asked what the server asks.
    pub(crate) async fn ask(
        &self,
        mut wish: CallRequest,
        deadline: Option<Deadline>,
        mut terminal: Option<Terminal>,
    ) -> Result<Bytes, Trouble> {
        let mut round = 0;
        loop {
            wish.timeout_ms = deadline.map(Deadline::left_ms);
            let result = self.ask_once(&wish, terminal.as_mut()).await?;
            let terminal = terminal.as_mut().filter(|terminal| terminal.can_ask() && round < rounds::MOST);
            match rounds::answers(terminal, &wish.server, &result, round).await {
                Some(Answers { responses, state }) => {
                    (wish.input_responses, wish.request_state) = (responses, state);
                }
                None => return Ok(result),
            }
            round += 1;
        }
    }

    async fn ask_once(&self, wish: &CallRequest, terminal: Option<&mut Terminal>) -> Result<Bytes, Trouble> {
        let can_ask = terminal.as_ref().is_some_and(|terminal| terminal.can_ask());
        let (observer, mut events) = Observer::new(can_ask);
        let observer = terminal.is_some().then_some(observer);
        let work = async {
            match self {
                Self::Here(here) => Ok(here.ask(wish, observer.as_ref()).await?),
                Self::There(there) => there.ask_for(wish, observer.as_ref()).await,
            }
        };
        let statuses = async || {
            let mut statuses = self.statuses().await.unwrap_or_default();
            statuses.retain(|status| status.name.as_str() == wish.server);
            statuses
        };
        let work = patience::calling(work, statuses);
        let Some(terminal) = terminal else { return work.await };
        let result = tokio::select! {
            biased;
            result = work => result,
            never = terminal.attend(&wish.server, &mut events) => never,
        };
        terminal.show_rest(&wish.server, &mut events);
        result
    }

    /// What a server said before it ended, as far as it is kept.
    pub(crate) async fn last_words(&self, server: &ServerName) -> Vec<String> {
        match self {
            Self::Here(here) => here.last_words(server),
            Self::There(there) => there.last_words(server).await,
        }
    }

    /// Starts servers and asks for their tools, and gives what they say in the
    /// same order. Servers of this process end when they have been looked at,
    /// unless they are kept up: then they stay as long as the results.
    pub(crate) async fn probe(&self, servers: &[ServerName], is_kept: bool) -> Result<Vec<Probed>, Failure> {
        self.reporting(async {
            match self {
                Self::Here(here) => Ok(here.probe(servers, is_kept).await),
                Self::There(there) => there.probe(servers).await,
            }
        })
        .await
    }
}
