//! A daemon, reached through its admin API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::Section;
use ostler_core::status::ServerStatus;
use ostler_host::{Definitions, Discovered, Kind, ListedTool, Tool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::http::{self, Address, Ask, Lost};
use super::observed;
use super::patience::reporting;
use super::{Gathered, Item, Offered, Probed, Relayed, Trouble};
use crate::about::About;
use crate::call_events::Observer;
use crate::command::logs::Line;
use crate::command::operate::{Change, LockOnDisk};
use crate::failure::Failure;
use crate::invocation::command;
use crate::output;
use crate::told::{Failed, Told};
use crate::wish::Wish;

/// How long the daemon may take for what is no call: it has its own deadlines,
/// and downloading and starting a server is the longest of them.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// How long for a call without a timeout of its own, whatever its server allows.
const CALL_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long until it begins to show a log, which it has at hand.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// How long for what it knows at once of itself.
const OWN_PATIENCE: Duration = Duration::from_secs(5);
/// How much longer than the call itself its answer may take.
const GRACE: Duration = Duration::from_secs(5);

/// A daemon.
#[derive(Debug, Clone)]
pub(crate) struct There {
    address: Address,
    token: Option<Arc<str>>,
    /// A call is on its way.
    is_calling: Arc<AtomicBool>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    pid: u32,
    /// How writing the audit goes; absent from a daemon of an earlier version.
    audit: Option<Audit>,
}

#[derive(Deserialize)]
struct Audit {
    trouble: Option<String>,
    lost: u64,
}

#[derive(Deserialize)]
struct Relay {
    relay: Option<Relayed>,
}

#[derive(Deserialize)]
struct Servers {
    servers: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
    #[serde(flatten)]
    status: ServerStatus,
}

#[derive(Deserialize)]
struct Tools {
    servers: Vec<ServerName>,
    tools: Vec<Entry>,
    errors: Vec<Broken>,
}

#[derive(Deserialize)]
struct Entry {
    server: ServerName,
    tool: String,
    definition: Box<RawValue>,
}

#[derive(Deserialize)]
struct Offers {
    servers: Vec<ServerName>,
    items: Vec<OfferedItem>,
    errors: Vec<Broken>,
}

#[derive(Deserialize)]
struct OfferedItem {
    server: ServerName,
    name: String,
    definition: Box<RawValue>,
}

#[derive(Deserialize)]
struct Broken {
    server: ServerName,
    error: Told,
}

#[derive(Deserialize)]
struct Pins {
    pending: bool,
}

#[derive(Deserialize)]
struct Wholes {
    servers: Vec<Whole>,
    errors: Vec<Broken>,
}

#[derive(Deserialize)]
struct Whole {
    items: Vec<WholeItem>,
    repeated: Vec<Repeated>,
}

#[derive(Deserialize)]
struct WholeItem {
    section: String,
    name: String,
    definition: Box<RawValue>,
}

#[derive(Deserialize)]
struct Repeated {
    section: String,
    name: String,
}

/// An edit of the config that a daemon has not applied.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedChange {
    /// `untrusted`, `broken` or `unreadable`.
    outcome: String,
    /// What that means, and what to do.
    pub(crate) message: String,
}

/// The part of the answer about the config that tells what became of the last edit.
#[derive(Deserialize)]
struct Applied {
    last_change: Option<LastChange>,
}

#[derive(Deserialize)]
struct LastChange {
    outcome: String,
}

impl There {
    pub(crate) fn new(address: Address, token: Option<String>) -> Self {
        Self { address, token: token.map(Into::into), is_calling: Arc::default() }
    }

    pub(super) fn is_calling(&self) -> bool {
        self.is_calling.load(Ordering::Relaxed)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// What the daemon is.
    pub(crate) async fn about(&self) -> Result<About, Trouble> {
        match self.get_soon("/api/v1/daemon").await {
            // A daemon of an earlier version tells less.
            Err(_) => self.version().await,
            about => about,
        }
    }

    /// What a daemon of any version tells of itself.
    pub(crate) async fn version(&self) -> Result<About, Trouble> {
        let Version { version, pid, .. } = self.get_soon("/api/v1/version").await?;
        let (url, kind) = (self.address.to_string(), crate::spot::Kind::Served);
        Ok(About { url, pid, version, config: None, kind, uptime_ms: 0, clients: None })
    }

    /// Asks the daemon to end, with this much time for its calls.
    pub(crate) async fn shut_down(&self, calls: Option<Duration>) -> Result<About, Trouble> {
        let calls = calls.map(|calls| format!("?calls_ms={}", calls.as_millis())).unwrap_or_default();
        let path = format!("/api/v1/shutdown{calls}");
        self.exchange(self.ask(Method::POST, &path, Bytes::new(), OWN_PATIENCE)).await
    }

    async fn get_soon<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        self.exchange(self.ask(Method::GET, path, Bytes::new(), OWN_PATIENCE)).await
    }

    pub(super) async fn statuses(&self) -> Result<Vec<ServerStatus>, Failure> {
        let Servers { servers } = self.get("/api/v1/servers").await?;
        Ok(servers.into_iter().map(|server| server.status).collect())
    }

    /// How the daemon serves workers elsewhere, if it does.
    /// A daemon of an earlier version does not know.
    pub(super) async fn relay(&self) -> Option<Relayed> {
        let Relay { relay } = self.get("/api/v1/relay").await.ok()?;
        relay
    }

    /// What is wrong with the daemon's record of calls, for people.
    /// Whether the lock file on disk is another one than the daemon's.
    pub(super) async fn is_lock_pending(&self) -> Result<bool, Failure> {
        let Pins { pending } = self.get("/api/v1/pins").await?;
        Ok(pending)
    }

    pub(super) async fn audit_trouble(&self) -> Result<Option<String>, Failure> {
        let Version { audit, .. } = self.get("/api/v1/version").await?;
        Ok(match audit {
            Some(Audit { trouble: Some(trouble), .. }) => {
                Some(format!("the audit can't be written: {trouble}"))
            }
            Some(Audit { lost, .. }) if lost > 0 => Some(format!(
                "{} of the audit were dropped; {} shows where",
                output::count(usize::try_from(lost).unwrap_or(usize::MAX), "row"),
                command("audit")
            )),
            _ => None,
        })
    }

    pub(super) async fn refused_change(&self) -> Option<RefusedChange> {
        let Applied { last_change } = self.get("/api/v1/config").await.ok()?;
        let outcome = last_change?.outcome;
        let (what, next) = match outcome.as_str() {
            "untrusted" => ("is not trusted", format!("read it, then {}", command("trust"))),
            "broken" | "unreadable" => ("can't be used", format!("{} says why", command("check"))),
            _ => return None,
        };
        let message =
            format!("the config has changed and {what}, so the daemon runs the one before it: {next}");
        Some(RefusedChange { outcome, message })
    }

    pub(super) async fn tools(&self, server: &str) -> Result<Vec<ListedTool>, Trouble> {
        // Nothing else is a name, and nothing else may become part of an address.
        if ServerName::new(server).is_err() {
            return Err(CallError::unknown_server(server, std::iter::empty()).into());
        }
        let path = format!("/api/v1/tools?full=true&server={server}");
        let listing: Tools = self.get(&path).await?;
        match listing.found().pop() {
            Some(found) => Ok(found.tools?),
            None => Err(self.confused("it names no server").into()),
        }
    }

    pub(super) async fn discover(&self) -> Result<Vec<Discovered>, Failure> {
        let listing: Tools = self.get("/api/v1/tools?full=true").await?;
        Ok(listing.found())
    }

    pub(super) async fn definitions(&self, servers: &[ServerName]) -> Result<Vec<Gathered>, Failure> {
        let mut asking = JoinSet::new();
        for server in servers.iter().cloned() {
            let there = self.clone();
            asking.spawn(async move {
                let path = format!("/api/v1/definitions?server={server}");
                match there.get::<Wholes>(&path).await {
                    Ok(told) => Ok((server.clone(), told.only(server))),
                    Err(Trouble::Call(error)) => Ok((server, Err(error))),
                    Err(Trouble::Daemon(failure)) => Err(failure),
                }
            });
        }
        let answers = asking.join_all().await;
        answers.into_iter().collect()
    }

    pub(super) async fn offers(
        &self,
        kind: Kind,
        server: Option<&ServerName>,
    ) -> Result<Vec<Offered>, Failure> {
        let path = match kind {
            Kind::Prompts => "/api/v1/prompts",
            Kind::Resources => "/api/v1/resources",
            Kind::Templates => "/api/v1/resource-templates",
            Kind::Tools => return Ok(Vec::new()),
        };
        let query = server.map(|server| format!("?server={server}")).unwrap_or_default();
        let listing: Offers = self.get(&format!("{path}{query}")).await?;
        Ok(listing.offered())
    }

    pub(super) async fn ask_for(&self, wish: &Wish, observer: Option<&Observer>) -> Result<Bytes, Trouble> {
        let body = serde_json::to_vec(wish).map_err(|error| Failure::Output(error.into()))?.into();
        let patience = wish.timeout_ms.map_or(CALL_PATIENCE, |ms| Duration::from_millis(ms) + GRACE);
        let ask = self.ask(Method::POST, "/api/v1/call", body, patience);
        self.is_calling.store(wish.tool.is_some(), Ordering::Relaxed);
        let answer = match observer {
            Some(observer) => observed::fetch(&self.address, ask, observer).await,
            None => http::fetch(&self.address, ask).await,
        };
        self.is_calling.store(false, Ordering::Relaxed);
        let (status, text) = match answer {
            Ok(answer) => answer,
            Err(lost @ (Lost::Unproven | Lost::Before(_) | Lost::Crowded(_))) => {
                return Err(self.lost(lost).into());
            }
            Err(Lost::After(why)) => {
                let cause = format!("the connection to the daemon at {} was lost: {why}", self.address);
                let Ok(server) = ServerName::new(&wish.server) else {
                    return Err(self.unreachable(why).into());
                };
                return Err(CallError::OutcomeUnknown { server, tool: wish.tool.clone(), cause }.into());
            }
        };
        #[derive(Deserialize)]
        struct Done<'a> {
            #[serde(borrow)]
            result: &'a RawValue,
        }
        self.check(status, &text)?;
        let done: Done<'_> = serde_json::from_slice(&text).map_err(|error| self.confused(error))?;
        Ok(text.slice_ref(done.result.get().as_bytes()))
    }

    pub(super) async fn last_words(&self, server: &ServerName) -> Vec<String> {
        let shown: Result<Server, Trouble> = self.get(&format!("/api/v1/servers/{server}")).await;
        let status = shown.ok().map(|shown| shown.status);
        status.and_then(|status| status.last_error).map(|error| error.stderr).unwrap_or_default()
    }

    pub(super) async fn probe(&self, servers: &[ServerName]) -> Result<Vec<Probed>, Failure> {
        let mut probes = JoinSet::new();
        for (index, server) in servers.iter().cloned().enumerate() {
            let there = self.clone();
            probes.spawn(async move { (index, there.probe_one(&server).await) });
        }
        let mut probed = probes.join_all().await;
        probed.sort_by_key(|(index, _)| *index);
        probed.into_iter().map(|(_, probed)| probed).collect()
    }

    async fn probe_one(&self, server: &ServerName) -> Result<Probed, Failure> {
        let began = Instant::now();
        let error = match self.tools(server.as_str()).await {
            Ok(_) => None,
            Err(Trouble::Call(error)) => Some(error),
            Err(Trouble::Daemon(failure)) => return Err(failure),
        };
        let start = began.elapsed();
        let Server { status } = self.get(&format!("/api/v1/servers/{server}")).await?;
        Ok(Probed { status, start, error, _kept: None })
    }

    /// What an operator does with a server.
    pub(crate) async fn operate(&self, server: &str, verb: &str) -> Result<ServerStatus, Trouble> {
        let known = self.statuses().await?;
        let known: Vec<ServerName> = known.into_iter().map(|status| status.name).collect();
        let Some(server) = known.iter().find(|name| name.as_str() == server) else {
            return Err(Failure::unknown_server(server, &known).into());
        };
        let path = format!("/api/v1/servers/{server}/{verb}");
        let shown: Server =
            reporting(self.post(&path), async || self.statuses().await.unwrap_or_default()).await?;
        Ok(shown.status)
    }

    /// Has the config read again. One that can't be used is an answer too.
    pub(crate) async fn reload_config(&self, lock: LockOnDisk) -> Result<Change, Trouble> {
        let path = match lock {
            LockOnDisk::Taken => "/api/v1/config/reload",
            LockOnDisk::Kept => "/api/v1/config/reload?keep_lock",
        };
        let ask = self.ask(Method::POST, path, Bytes::new(), PATIENCE);
        let (status, text) = http::fetch(&self.address, ask).await.map_err(|lost| self.lost(lost))?;
        if status != StatusCode::UNPROCESSABLE_ENTITY {
            self.check(status, &text)?;
        }
        Ok(serde_json::from_slice(&text).map_err(|error| self.confused(error))?)
    }

    /// Reads the stderr output of servers, of all if none is named, and hands over each line as it comes.
    pub(crate) async fn logs(
        &self,
        servers: &[String],
        query: &str,
        mut each: impl FnMut(&Line) -> Result<(), Failure>,
    ) -> Result<(), Trouble> {
        if let Some(server) = servers.iter().find(|server| ServerName::new(server).is_err()) {
            return Err(CallError::unknown_server(server, std::iter::empty()).into());
        }
        let path = format!("/api/v1/logs?{query}");
        let ask = self.ask(Method::GET, &path, Bytes::new(), LOG_PATIENCE);
        let mut response = http::begin(&self.address, ask).await.map_err(|lost| self.lost(lost))?;
        if response.status() != StatusCode::OK {
            let (status, text) =
                http::finish(response, LOG_PATIENCE).await.map_err(|lost| self.lost(lost))?;
            self.check(status, &text)?;
            return Ok(());
        }
        let mut rest = Vec::new();
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|error| self.unreachable(error.to_string()))?;
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let line = serde_json::from_slice(line).map_err(|error| self.confused(error))?;
                each(&line)?;
            }
            rest.drain(..=end);
        }
        Ok(())
    }

    /// Asks for something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        self.exchange(self.ask(Method::GET, path, Bytes::new(), PATIENCE)).await
    }

    /// Asks for something to be done.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        self.exchange(self.ask(Method::POST, path, Bytes::new(), PATIENCE)).await
    }

    async fn exchange<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Trouble> {
        let (status, text) = http::fetch(&self.address, ask).await.map_err(|lost| self.lost(lost))?;
        self.check(status, &text)?;
        Ok(serde_json::from_slice(&text).map_err(|error| self.confused(error))?)
    }

    fn ask<'a>(&'a self, method: Method, path: &'a str, body: Bytes, patience: Duration) -> Ask<'a> {
        Ask { method, path, token: self.token.as_deref(), body, patience, upgrade: None }
    }

    /// An answer that is an error, as the error it is.
    fn check(&self, status: StatusCode, text: &[u8]) -> Result<(), Trouble> {
        if status.is_success() {
            return Ok(());
        }
        let Ok(Failed { error }) = serde_json::from_slice(text) else {
            return Err(self.confused(format!("it answers with HTTP status {status}")).into());
        };
        let what = error.message.clone();
        let hint = match status {
            StatusCode::UNAUTHORIZED => Some(self.address.token_hint().to_owned()),
            _ => error.hint.clone(),
        };
        Err(error.error().map_or_else(|| Failure::Refused { what, hint }.into(), Trouble::Call))
    }

    fn lost(&self, lost: Lost) -> Failure {
        match lost {
            Lost::Unproven => self.address.unproven(),
            Lost::Before(why) | Lost::Crowded(why) | Lost::After(why) => self.unreachable(why),
        }
    }

    fn unreachable(&self, why: String) -> Failure {
        Failure::Unreachable { url: self.address.to_string(), why }
    }

    fn confused(&self, why: impl ToString) -> Failure {
        self.unreachable(format!("what is there does not speak like a daemon: {}", why.to_string()))
    }
}

impl Tools {
    /// By server, as it was asked for.
    fn found(self) -> Vec<Discovered> {
        let mut errors = self.errors;
        let mut found: Vec<Discovered> =
            self.servers.into_iter().map(|server| Discovered { server, tools: Ok(Vec::new()) }).collect();
        for one in &mut found {
            if let Some(at) = errors.iter().position(|broken| broken.server == one.server) {
                one.tools = Err(known(&one.server, errors.swap_remove(at).error));
            }
        }
        for entry in self.tools {
            let Some(one) = found.iter_mut().find(|one| one.server == entry.server) else { continue };
            if let Ok(tools) = &mut one.tools {
                tools.push(entry.listed());
            }
        }
        found
    }
}

impl Wholes {
    /// What was told of the one server that was asked about.
    fn only(mut self, server: ServerName) -> Result<Definitions, CallError> {
        match (self.servers.pop(), self.errors.pop()) {
            (Some(whole), _) => Ok(whole.definitions(server)),
            (None, Some(broken)) => Err(known(&server, broken.error)),
            (None, None) => Err(CallError::unknown_server(server.as_str(), std::iter::empty())),
        }
    }
}

impl Whole {
    fn definitions(self, server: ServerName) -> Definitions {
        let section_of = |key: &str| Section::ALL.into_iter().find(|section| section.key() == key);
        let mut sections: BTreeMap<Section, Vec<Tool>> =
            Section::ALL.map(|section| (section, Vec::new())).into();
        for WholeItem { section, name, definition } in self.items {
            if let Some(list) = section_of(&section).and_then(|section| sections.get_mut(&section)) {
                list.push(Tool { name, definition: Bytes::copy_from_slice(definition.get().as_bytes()) });
            }
        }
        let repeated = self.repeated.into_iter();
        let repeated = repeated.filter_map(|it| Some((section_of(&it.section)?, it.name)));
        Definitions { server, sections, repeated: repeated.collect() }
    }
}

impl Offers {
    /// By server.
    fn offered(self) -> Vec<Offered> {
        let mut offered: BTreeMap<ServerName, Offered> = BTreeMap::new();
        let empty = |server: &ServerName| Offered { server: server.clone(), items: Vec::new(), error: None };
        for server in &self.servers {
            offered.insert(server.clone(), empty(server));
        }
        for OfferedItem { server, name, definition } in self.items {
            let definition = Bytes::copy_from_slice(definition.get().as_bytes());
            let of_server = offered.entry(server.clone()).or_insert_with(|| empty(&server));
            of_server.items.push(Item { name, definition });
        }
        for Broken { server, error } in self.errors {
            let of_server = offered.entry(server.clone()).or_insert_with(|| empty(&server));
            of_server.error = Some(known(&server, error));
        }
        offered.into_values().collect()
    }
}

/// The error that was told of a server.
fn known(server: &ServerName, told: Told) -> CallError {
    let detail = "the daemon is of another version".to_owned();
    told.error().unwrap_or_else(|| CallError::UpstreamProtocol { server: server.clone(), detail })
}

impl Entry {
    fn listed(self) -> ListedTool {
        let exposed = ostler_core::catalog::exposed_name(&self.server, &self.tool);
        let definition = Bytes::copy_from_slice(self.definition.get().as_bytes());
        ListedTool { server: self.server, exposed, tool: Tool { name: self.tool, definition } }
    }
}
