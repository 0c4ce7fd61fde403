//! A daemon, reached through its admin API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use ostler_core::card::CardReport;
use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::Section;
use ostler_core::status::ServerStatus;
use ostler_host::{Definitions, Discovered, Item, Kind, ListedItem, ListedTool, ServerListing, Tool};
use ostler_relay::service::ServiceStatus;
use ostler_wire::Change;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::http::{self, Address, Ask, Kept, Lost};
use super::mcp::Mcp;
use super::patience::reporting;
use super::{CallRequest, Gathered, Probed, Trouble};
use crate::about::About;
use crate::api::{
    self, AppliedConfig, AuditState, ErrorBody, ErrorResponse, LogLine, Outcome, Pins, Relay, Reload, Server,
    Servers, Version,
};
use crate::call_events::Observer;
use crate::command::operate::LockOnDisk;
use crate::failure::Failure;
use crate::invocation::command;
use crate::output;
use crate::stdio::PROTOCOL;

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
    /// The connection of the last request.
    kept: Arc<Kept>,
    /// The connection of the last request of MCP.
    mcp: Arc<Mutex<Option<Mcp>>>,
}

/// An edit of the config that a daemon has not applied.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedChange {
    /// `untrusted`, `broken` or `unreadable`.
    outcome: &'static str,
    /// What that means, and what to do.
    pub(crate) message: String,
}

impl There {
    pub(crate) fn new(address: Address, token: Option<String>) -> Self {
        Self {
            address,
            token: token.map(Into::into),
            is_calling: Arc::default(),
            kept: Arc::default(),
            mcp: Arc::default(),
        }
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
    pub(super) async fn relay(&self) -> Option<ServiceStatus> {
        let Relay { relay } = self.get("/api/v1/relay").await.ok()?;
        relay
    }

    /// What is wrong with the daemon's record of calls, for people.
    /// Whether the lock file on disk is another one than the daemon's.
    pub(super) async fn is_lock_pending(&self) -> Result<bool, Failure> {
        let Pins { pending, .. } = self.get("/api/v1/pins").await?;
        Ok(pending)
    }

    pub(super) async fn audit_trouble(&self) -> Result<Option<String>, Failure> {
        let Version { audit, .. } = self.get("/api/v1/version").await?;
        Ok(match audit {
            Some(AuditState { trouble: Some(trouble), .. }) => {
                Some(format!("the audit can't be written: {trouble}"))
            }
            Some(AuditState { lost, .. }) if lost > 0 => Some(format!(
                "{} of the audit were dropped; {} shows where",
                output::count(usize::try_from(lost).unwrap_or(usize::MAX), "row"),
                command("audit")
            )),
            _ => None,
        })
    }

    pub(super) async fn refused_change(&self) -> Option<RefusedChange> {
        let AppliedConfig { last_change, .. } = self.get("/api/v1/config").await.ok()?;
        let unusable = || ("can't be used", format!("{} says why", command("check")));
        let (outcome, (what, next)) = match last_change?.outcome {
            Outcome::Applied { .. } => return None,
            Outcome::Untrusted { .. } => {
                ("untrusted", ("is not trusted", format!("read it, then {}", command("trust"))))
            }
            Outcome::Broken { .. } => ("broken", unusable()),
            Outcome::Unreadable { .. } => ("unreadable", unusable()),
        };
        let message =
            format!("the config has changed and {what}, so the daemon runs the one before it: {next}");
        Some(RefusedChange { outcome, message })
    }

    pub(super) async fn tools(&self, server: &str) -> Result<Vec<ListedTool>, Trouble> {
        match self.list(Kind::Tools, Some(server)).await?.pop() {
            Some(listed) => Ok(Discovered::from(listed).tools?),
            None => Err(self.confused("it names no server").into()),
        }
    }

    pub(super) async fn discover(&self) -> Result<Vec<Discovered>, Failure> {
        Ok(self.list(Kind::Tools, None).await?.into_iter().map(Discovered::from).collect())
    }

    pub(super) async fn definitions(&self, servers: &[ServerName]) -> Result<Vec<Gathered>, Failure> {
        let mut asking = JoinSet::new();
        for server in servers.iter().cloned() {
            let there = self.clone();
            asking.spawn(async move {
                let path = format!("/api/v1/definitions?server={server}");
                match there.get::<api::Definitions>(&path).await {
                    Ok(told) => Ok((server.clone(), only(told, server))),
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
    ) -> Result<Vec<ServerListing>, Failure> {
        Ok(self.list(kind, server.map(ServerName::as_str)).await?)
    }

    pub(super) async fn owner_of(&self, uri: &str) -> Result<ServerName, Trouble> {
        let params = json!({ "uri": uri }).to_string();
        let asking = self.speak("dev.ostler/owner", params.as_bytes(), None);
        let outcome = http::within(PATIENCE, asking).await.map_err(|lost| self.lost(lost))?;
        let result = self.result_of(outcome?)?;
        let owner = ostler_wire::text_member(&result, "server").and_then(|name| ServerName::new(&name).ok());
        owner.ok_or_else(|| self.confused("it names no server").into())
    }

    /// Lists what servers offer of a kind, each with its error.
    async fn list(&self, kind: Kind, server: Option<&str>) -> Result<Vec<ServerListing>, Trouble> {
        let meta = server.map_or_else(|| json!({}), |server| json!({ "dev.ostler/server": server }));
        let params = json!({ "_meta": meta }).to_string();
        let asking = self.speak(kind.method(), params.as_bytes(), None);
        let outcome = http::within(PATIENCE, asking).await.map_err(|lost| self.lost(lost))?;
        let result = self.result_of(outcome?)?;
        listed(kind, &result).ok_or_else(|| self.confused("its list can't be read").into())
    }

    pub(super) async fn ask_for(
        &self,
        wish: &CallRequest,
        observer: Option<&Observer>,
    ) -> Result<Bytes, Trouble> {
        let (method, params) = wish.message()?;
        let mut meta = json!({ "dev.ostler/server": wish.server });
        if let Some(ms) = wish.timeout_ms {
            meta["dev.ostler/timeoutMs"] = ms.into();
        }
        if let Some(observer) = observer {
            (meta["progressToken"], meta["dev.ostler/elicitation"]) = (0.into(), observer.can_answer.into());
        }
        let meta = meta.to_string();
        let params = ostler_wire::edit(params.raw(), &[("_meta", Change::Set(meta.as_bytes()))]);
        let params = params.ok_or_else(|| self.confused("the request can't be written"))?;
        let patience = wish.timeout_ms.map_or(CALL_PATIENCE, |ms| Duration::from_millis(ms) + GRACE);
        self.is_calling.store(wish.tool.is_some(), Ordering::Relaxed);
        let outcome = http::within(patience, self.speak(method, &params, observer)).await;
        self.is_calling.store(false, Ordering::Relaxed);
        match outcome {
            Ok(outcome) => self.result_of(outcome?),
            Err(lost @ (Lost::Unproven | Lost::Before(_) | Lost::Crowded(_))) => Err(self.lost(lost).into()),
            Err(Lost::After(why)) => {
                let cause = format!("the connection to the daemon at {} was lost: {why}", self.address);
                let Ok(server) = ServerName::new(&wish.server) else {
                    return Err(self.unreachable(why).into());
                };
                Err(CallError::OutcomeUnknown { server, tool: wish.tool.clone(), cause }.into())
            }
        }
    }

    /// Sends a request of MCP on the connection of the last one, or on a new one. Dropping the future ends the
    /// connection, which cancels the request.
    async fn speak(
        &self,
        method: &str,
        params: &[u8],
        observer: Option<&Observer>,
    ) -> Result<Result<ostler_wire::Outcome, Trouble>, Lost> {
        let kept = self.mcp().take();
        let mut mcp = match kept {
            Some(mcp) => mcp,
            None => match self.attach().await? {
                Ok(mcp) => mcp,
                Err(trouble) => return Ok(Err(trouble)),
            },
        };
        let outcome = mcp.request(method, params, observer).await?;
        *self.mcp() = Some(mcp);
        Ok(Ok(outcome))
    }

    async fn attach(&self) -> Result<Result<Mcp, Trouble>, Lost> {
        let mut ask = self.ask(Method::GET, "/api/v1/attach", Bytes::new(), PATIENCE);
        ask.upgrade = Some(PROTOCOL);
        let response = http::begin(&self.address, ask).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Mcp::open(response).await.map(Ok);
        }
        let (status, text) = http::finish(response, OWN_PATIENCE).await?;
        let refused = self.check(status, &text).err();
        Ok(Err(refused.unwrap_or_else(|| self.confused("it does not speak MCP").into())))
    }

    fn mcp(&self) -> MutexGuard<'_, Option<Mcp>> {
        self.mcp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of a request, or the error as the error it is.
    fn result_of(&self, outcome: ostler_wire::Outcome) -> Result<Bytes, Trouble> {
        let error = match outcome {
            ostler_wire::Outcome::Result(result) => return Ok(result),
            ostler_wire::Outcome::Error(error) => error,
        };
        let data = ostler_wire::member(&error.raw, "data");
        let told = data.and_then(|data| serde_json::from_slice::<ErrorBody>(data).ok());
        let known = told.and_then(ErrorBody::error);
        let refused = || Failure::Refused { what: error.message.clone(), hint: None };
        Err(known.map_or_else(|| refused().into(), Trouble::Call))
    }

    pub(super) async fn card(&self, server: &ServerName) -> Result<CardReport, Trouble> {
        self.get(&format!("/api/v1/servers/{server}/card")).await
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
        let Server { status, .. } = self.get(&format!("/api/v1/servers/{server}")).await?;
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
    pub(crate) async fn reload_config(&self, lock: LockOnDisk) -> Result<Outcome, Trouble> {
        let path = match lock {
            LockOnDisk::Taken => "/api/v1/config/reload",
            LockOnDisk::Kept => "/api/v1/config/reload?keep_lock",
        };
        let ask = self.ask(Method::POST, path, Bytes::new(), PATIENCE);
        let (status, text) = http::fetch(&self.address, ask).await.map_err(|lost| self.lost(lost))?;
        if status != StatusCode::UNPROCESSABLE_ENTITY {
            self.check(status, &text)?;
        }
        let Reload { outcome, .. } = serde_json::from_slice(&text).map_err(|error| self.confused(error))?;
        Ok(outcome)
    }

    /// Reads the stderr output of servers, of all if none is named, and hands over each line as it comes.
    pub(crate) async fn logs(
        &self,
        servers: &[String],
        query: &str,
        mut each: impl FnMut(&LogLine) -> Result<(), Failure>,
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
        Ask { method, path, token: self.token.as_deref(), kept: &self.kept, body, patience, upgrade: None }
    }

    /// An answer that is an error, as the error it is.
    fn check(&self, status: StatusCode, text: &[u8]) -> Result<(), Trouble> {
        if status.is_success() {
            return Ok(());
        }
        let Ok(ErrorResponse { error }) = serde_json::from_slice(text) else {
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

/// Reads a list: the items of one server after those of the other, and in `_meta` whose they are.
fn listed(kind: Kind, result: &Bytes) -> Option<Vec<ServerListing>> {
    #[derive(Deserialize)]
    struct Part {
        server: ServerName,
        items: usize,
        /// Absent from a daemon of an earlier version.
        #[serde(default)]
        names: Vec<String>,
        error: Option<ErrorBody>,
    }
    let parts = ostler_wire::member(ostler_wire::member(result, "_meta")?, "dev.ostler/servers")?;
    let parts: Vec<Part> = serde_json::from_slice(parts).ok()?;
    let items: Vec<&RawValue> = serde_json::from_slice(ostler_wire::member(result, kind.member())?).ok()?;
    let mut items = items.into_iter();
    let listing = |Part { server, items: count, names, error }: Part| {
        let own = items.by_ref().take(count).enumerate().map(|(at, raw)| {
            let name = ostler_wire::text_member(raw.get().as_bytes(), kind.name_member()).unwrap_or_default();
            let exposed = match (names.get(at), kind) {
                (Some(exposed), _) => exposed.as_str().into(),
                (None, Kind::Tools | Kind::Prompts) => exposed_name(&server, &name).into(),
                (None, Kind::Resources | Kind::Templates) => (&*name).into(),
            };
            ListedItem { exposed, item: Item::new(kind, &*name, result.slice_ref(raw.get().as_bytes())) }
        });
        let items = own.collect();
        let error = error.map(|error| known(&server, error));
        let (shadowed, is_known, ttl, is_public) = (Vec::new(), error.is_none(), Duration::ZERO, false);
        ServerListing { server, items, shadowed, error, is_known, ttl, is_public }
    };
    Some(parts.into_iter().map(listing).collect())
}

/// Returns what was told of the one server that was asked about.
fn only(mut told: api::Definitions, server: ServerName) -> Result<Definitions, CallError> {
    match (told.servers.pop(), told.errors.pop()) {
        (Some(whole), _) => Ok(definitions(whole)),
        (None, Some(broken)) => Err(known(&server, broken.error)),
        (None, None) => Err(CallError::unknown_server(server.as_str(), std::iter::empty())),
    }
}

fn text_of(definition: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(definition).into_string())
}

fn definitions(whole: api::ServerDefinitions) -> Definitions {
    let mut sections: BTreeMap<Section, Vec<Tool>> = Section::ALL.map(|section| (section, Vec::new())).into();
    for api::Definition { section, name, definition } in whole.items {
        sections.entry(section).or_default().push(Tool { name, definition: text_of(definition) });
    }
    let repeated = whole.repeated.into_iter().map(|it| (it.section, it.name)).collect();
    Definitions { server: whole.server, sections, repeated }
}

/// Returns the error that was told of a server.
fn known(server: &ServerName, told: ErrorBody) -> CallError {
    let detail = "the daemon is of another version".to_owned();
    told.error().unwrap_or_else(|| CallError::UpstreamProtocol { server: server.clone(), detail })
}
