//! Client of a daemon's admin API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use ostler_core::card::CardReport;
use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::pins::LockSection;
use ostler_core::server_name::ServerName;
use ostler_core::status::ServerStatus;
use ostler_host::{
    ItemDefinition, Kind, ListedItem, ListedTool, ServerItem, ServerListing, ServerTools,
    UnfilteredDefinitions,
};
use ostler_relay::service::ServiceStatus;
use ostler_wire::MemberEdit;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{self, DaemonAddress, HttpError, HttpRequest, KeptConnection};
use super::mcp::McpConnection;
use super::wait_messages::with_start_messages;
use super::{CallRequest, DefinitionsResult, ListPurpose, ProbeResult, RequestFailure};
use crate::api::{
    self, AppliedConfig, AuditState, ErrorBody, ErrorResponse, PinsResponse, RelayResponse, Reload,
    ReloadOutcome, ServerLogLine, ServerResponse, ServersResponse, VersionResponse,
};
use crate::call_events::{Audience, CallEventSender};
use crate::command::explain::ExplainResponse;
use crate::command::operate::LockFileAction;
use crate::daemon_info::DaemonInfo;
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output;
use crate::stdio::PROTOCOL;

/// Timeout of a request that is no call: the daemon has deadlines of its own, and downloading and starting a server is
/// the longest of them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Timeout of a call that has none of its own, whatever its server allows.
const CALL_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Timeout until a log begins; the daemon has it at hand.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of requests that the daemon answers from memory.
const INFO_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the response of a call has beyond the call's own timeout.
const RESPONSE_GRACE: Duration = Duration::from_secs(5);

/// Asks the daemon to pass on questions that no caller can answer, so that the command can report them.
const UNANSWERED: &str = "unanswered";

/// Client of one daemon.
#[derive(Debug, Clone)]
pub(crate) struct DaemonClient {
    address: DaemonAddress,
    token: Option<Arc<str>>,
    /// True while a call is in flight.
    is_calling: Arc<AtomicBool>,
    /// Connection of the last admin request.
    kept_connection: Arc<KeptConnection>,
    /// Connection of the last MCP request.
    mcp: Arc<Mutex<Option<McpConnection>>>,
}

/// Edit of the config that a daemon has refused.
#[derive(Debug, Serialize)]
pub(crate) struct RefusedChange {
    /// `untrusted`, `broken` or `unreadable`.
    outcome: &'static str,
    /// Consequence and remedy, for people.
    pub(crate) message: String,
}

/// Lock file on disk that is not in force in a daemon.
#[derive(Debug)]
pub(crate) enum PendingLock {
    /// It differs from the one in force.
    Changed,
    /// It can't be used, for this reason.
    Unusable(String),
}

impl DaemonClient {
    pub(crate) fn new(address: DaemonAddress, token: Option<String>) -> Self {
        Self {
            address,
            token: token.map(Into::into),
            is_calling: Arc::default(),
            kept_connection: Arc::default(),
            mcp: Arc::default(),
        }
    }

    pub(super) fn is_calling(&self) -> bool {
        self.is_calling.load(Ordering::Relaxed)
    }

    /// Returns the daemon's address.
    pub(crate) fn address(&self) -> &DaemonAddress {
        &self.address
    }

    /// Returns the daemon's description of itself.
    pub(crate) async fn info(&self) -> Result<DaemonInfo, RequestFailure> {
        match self.get_quickly("/api/v1/daemon").await {
            // A daemon of an earlier version has fewer fields.
            Err(_) => self.version().await,
            about => about,
        }
    }

    /// Returns the part of the description that daemons of all versions have.
    pub(crate) async fn version(&self) -> Result<DaemonInfo, RequestFailure> {
        let VersionResponse { version, pid, .. } = self.get_quickly("/api/v1/version").await?;
        let (url, kind) = (self.address.to_string(), crate::instance::DaemonKind::Served);
        Ok(DaemonInfo { url, pid, version, config: None, kind, uptime_ms: 0, clients: None })
    }

    /// Asks the daemon to shut down, with this much time for calls in flight.
    pub(crate) async fn shut_down(&self, calls: Option<Duration>) -> Result<DaemonInfo, RequestFailure> {
        let calls = calls.map(|calls| format!("?calls_ms={}", calls.as_millis())).unwrap_or_default();
        let path = format!("/api/v1/shutdown{calls}");
        self.send_for_json(self.http_request(Method::POST, &path, Bytes::new(), INFO_TIMEOUT)).await
    }

    /// Returns the rule in force that decides about a role and an item.
    pub(super) async fn explain(&self, role: &str, what: &str) -> Result<ExplainResponse, RequestFailure> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("role", role)
            .append_pair("what", what)
            .finish();
        self.get_quickly(&format!("/api/v1/explain?{query}")).await
    }

    async fn get_quickly<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestFailure> {
        self.send_for_json(self.http_request(Method::GET, path, Bytes::new(), INFO_TIMEOUT)).await
    }

    pub(super) async fn statuses(&self) -> Result<Vec<ServerStatus>, CommandFailure> {
        let ServersResponse { servers } = self.get("/api/v1/servers").await?;
        Ok(servers.into_iter().map(|server| server.status).collect())
    }

    /// Returns the status of the relay; `None` without one, and from a daemon of an earlier version.
    pub(super) async fn relay(&self) -> Option<ServiceStatus> {
        let RelayResponse { relay } = self.get("/api/v1/relay").await.ok()?;
        relay
    }

    /// Returns the difference between the lock file on disk and the one in force; `None` if they agree.
    pub(super) async fn pending_lock(&self) -> Result<Option<PendingLock>, CommandFailure> {
        let PinsResponse { pending, error, .. } = self.get("/api/v1/pins").await?;
        Ok(error.map(PendingLock::Unusable).or(pending.then_some(PendingLock::Changed)))
    }

    /// Returns the status of the daemon's audit; `None` from a daemon of an earlier version.
    pub(crate) async fn audit_state(&self) -> Result<Option<AuditState>, RequestFailure> {
        let VersionResponse { audit, .. } = self.get_quickly("/api/v1/version").await?;
        Ok(audit)
    }

    /// Returns the audit's current failure, for people.
    pub(super) async fn audit_warning(&self) -> Result<Option<String>, CommandFailure> {
        let dropped = |lost| output::count(usize::try_from(lost).unwrap_or(usize::MAX), "row");
        Ok(match self.audit_state().await? {
            Some(AuditState { trouble: Some(trouble), lost: 0, .. }) => {
                Some(format!("the audit can't be written: {trouble}"))
            }
            Some(AuditState { trouble: Some(trouble), lost, .. }) => Some(format!(
                "the audit can't be written: {trouble}; {} of it were dropped so far",
                dropped(lost)
            )),
            Some(AuditState { lost, .. }) if lost > 0 => {
                Some(format!("{} of the audit were dropped; {} shows where", dropped(lost), command("audit")))
            }
            Some(AuditState { log_gone: Some(what), .. }) => Some(format!("the audit: {what}")),
            _ => None,
        })
    }

    pub(super) async fn refused_change(&self) -> Option<RefusedChange> {
        let AppliedConfig { last_change, .. } = self.get("/api/v1/config").await.ok()?;
        let unusable = || ("can't be used", format!("{} says why", command("check")));
        let (outcome, (what, next)) = match last_change?.outcome {
            ReloadOutcome::Applied { .. } => return None,
            ReloadOutcome::Untrusted { .. } => {
                ("untrusted", ("is not trusted", format!("read it, then {}", command("trust"))))
            }
            ReloadOutcome::Broken { .. } => ("broken", unusable()),
            ReloadOutcome::Unreadable { .. } => ("unreadable", unusable()),
        };
        let message =
            format!("the config has changed and {what}, so the daemon runs the one before it: {next}");
        Some(RefusedChange { outcome, message })
    }

    pub(super) async fn list_tools(
        &self,
        server: &str,
        purpose: ListPurpose,
    ) -> Result<Vec<ListedTool>, RequestFailure> {
        let is_for_call = purpose == ListPurpose::Call;
        let meta = json!({ "dev.ostler/server": server, "dev.ostler/forCall": is_for_call });
        match self.list_with(Kind::Tools, meta).await?.pop() {
            Some(listed) => Ok(ServerTools::from(listed).tools?),
            None => Err(self.protocol_failure("it names no server").into()),
        }
    }

    pub(super) async fn list_all_tools(&self) -> Result<Vec<ServerTools>, CommandFailure> {
        Ok(self.list(Kind::Tools, None).await?.into_iter().map(ServerTools::from).collect())
    }

    pub(super) async fn definitions(
        &self,
        servers: &[ServerName],
    ) -> Result<Vec<DefinitionsResult>, CommandFailure> {
        let mut asking = JoinSet::new();
        for server in servers.iter().cloned() {
            let there = self.clone();
            asking.spawn(async move {
                let path = format!("/api/v1/definitions?server={server}");
                match there.get::<api::DefinitionsResponse>(&path).await {
                    Ok(told) => Ok((server.clone(), single_definitions(told, server))),
                    Err(RequestFailure::Call(error)) => Ok((server, Err(error))),
                    Err(RequestFailure::Daemon(failure)) => Err(failure),
                }
            });
        }
        let answers = asking.join_all().await;
        answers.into_iter().collect()
    }

    pub(super) async fn list_items(
        &self,
        kind: Kind,
        server: Option<&ServerName>,
    ) -> Result<Vec<ServerListing>, CommandFailure> {
        Ok(self.list(kind, server.map(ServerName::as_str)).await?)
    }

    pub(super) async fn resource_owner(&self, uri: &str) -> Result<ServerName, RequestFailure> {
        let params = json!({ "uri": uri }).to_string();
        let asking = self.mcp_request("dev.ostler/owner", params.as_bytes(), None);
        let outcome =
            http::with_timeout(REQUEST_TIMEOUT, asking).await.map_err(|lost| self.request_failure(lost))?;
        let result = self.result_of(outcome?)?;
        let owner = ostler_wire::text_member(&result, "server").and_then(|name| ServerName::new(&name).ok());
        owner.ok_or_else(|| self.protocol_failure("it names no server").into())
    }

    /// Lists items of one kind by server, each server with its error if it has one.
    async fn list(&self, kind: Kind, server: Option<&str>) -> Result<Vec<ServerListing>, RequestFailure> {
        let meta = server.map_or_else(|| json!({}), |server| json!({ "dev.ostler/server": server }));
        self.list_with(kind, meta).await
    }

    async fn list_with(&self, kind: Kind, meta: Value) -> Result<Vec<ServerListing>, RequestFailure> {
        let params = json!({ "_meta": meta }).to_string();
        let asking = self.mcp_request(kind.method(), params.as_bytes(), None);
        let outcome =
            http::with_timeout(REQUEST_TIMEOUT, asking).await.map_err(|lost| self.request_failure(lost))?;
        let result = self.result_of(outcome?)?;
        parse_listings(kind, &result).ok_or_else(|| self.protocol_failure("its list can't be read").into())
    }

    pub(super) async fn request(
        &self,
        wish: &CallRequest,
        observer: &CallEventSender,
    ) -> Result<Bytes, RequestFailure> {
        let (method, params) = wish.method_and_params()?;
        let mut meta = json!({ "dev.ostler/server": wish.server });
        if let Some(ms) = wish.timeout_ms {
            meta["dev.ostler/timeoutMs"] = ms.into();
        }
        meta["dev.ostler/elicitation"] = if observer.can_answer() { true.into() } else { UNANSWERED.into() };
        if observer.audience != Audience::None {
            meta["progressToken"] = 0.into();
        }
        let meta = meta.to_string();
        let params = ostler_wire::edit(params.raw(), &[("_meta", MemberEdit::Set(meta.as_bytes()))]);
        let params = params.ok_or_else(|| self.protocol_failure("the request can't be written"))?;
        let patience = wish.timeout_ms.map_or(CALL_TIMEOUT, |ms| Duration::from_millis(ms) + RESPONSE_GRACE);
        self.is_calling.store(wish.tool.is_some(), Ordering::Relaxed);
        let outcome = http::with_timeout(patience, self.mcp_request(method, &params, Some(observer))).await;
        self.is_calling.store(false, Ordering::Relaxed);
        match outcome {
            Ok(outcome) => self.result_of(outcome?),
            Err(lost @ (HttpError::Unproven | HttpError::NotSent(_) | HttpError::Overloaded(_))) => {
                Err(self.request_failure(lost).into())
            }
            Err(HttpError::OutcomeUnknown(why)) => {
                let cause = format!("the connection to the daemon at {} was lost: {why}", self.address);
                let Ok(server) = ServerName::new(&wish.server) else {
                    return Err(self.unreachable(why).into());
                };
                Err(CallError::OutcomeUnknown { server, tool: wish.tool.clone(), cause }.into())
            }
        }
    }

    /// Sends an MCP request on the kept connection, or on a new one. Dropping the future closes the connection, which
    /// cancels the request.
    async fn mcp_request(
        &self,
        method: &str,
        params: &[u8],
        observer: Option<&CallEventSender>,
    ) -> Result<Result<ostler_wire::RpcOutcome, RequestFailure>, HttpError> {
        let kept = self.lock_mcp().take();
        let mut mcp = match kept {
            Some(mcp) => mcp,
            None => match self.attach().await? {
                Ok(mcp) => mcp,
                Err(trouble) => return Ok(Err(trouble)),
            },
        };
        let outcome = mcp.request(method, params, observer).await?;
        *self.lock_mcp() = Some(mcp);
        Ok(Ok(outcome))
    }

    async fn attach(&self) -> Result<Result<McpConnection, RequestFailure>, HttpError> {
        let mut ask = self.http_request(Method::GET, "/api/v1/attach", Bytes::new(), REQUEST_TIMEOUT);
        ask.upgrade = Some(PROTOCOL);
        let response = http::send_for_head(&self.address, ask).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return McpConnection::open(response).await.map(Ok);
        }
        let (status, text) = http::read_response(response, INFO_TIMEOUT).await?;
        let refused = self.check_status(status, &text).err();
        Ok(Err(refused.unwrap_or_else(|| self.protocol_failure("it does not speak MCP").into())))
    }

    fn lock_mcp(&self) -> MutexGuard<'_, Option<McpConnection>> {
        self.mcp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of a request, or its error with the variant that the daemon sent.
    fn result_of(&self, outcome: ostler_wire::RpcOutcome) -> Result<Bytes, RequestFailure> {
        let error = match outcome {
            ostler_wire::RpcOutcome::Result(result) => return Ok(result),
            ostler_wire::RpcOutcome::Error(error) => error,
        };
        let data = ostler_wire::member(&error.raw, "data");
        let told = data.and_then(|data| serde_json::from_slice::<ErrorBody>(data).ok());
        let known = told.and_then(ErrorBody::into_call_error);
        let refused = || CommandFailure::Refused { what: error.message.clone(), hint: None };
        Err(known.map_or_else(|| refused().into(), RequestFailure::Call))
    }

    pub(super) async fn card(&self, server: &ServerName) -> Result<CardReport, RequestFailure> {
        self.get(&format!("/api/v1/servers/{server}/card")).await
    }

    pub(super) async fn last_stderr(&self, server: &ServerName) -> Vec<String> {
        let shown: Result<ServerResponse, RequestFailure> =
            self.get(&format!("/api/v1/servers/{server}")).await;
        let status = shown.ok().map(|shown| shown.status);
        status.and_then(|status| status.last_error).map(|error| error.stderr).unwrap_or_default()
    }

    pub(super) async fn probe(&self, servers: &[ServerName]) -> Result<Vec<ProbeResult>, CommandFailure> {
        let mut probes = JoinSet::new();
        for (index, server) in servers.iter().cloned().enumerate() {
            let there = self.clone();
            probes.spawn(async move { (index, there.probe_one(&server).await) });
        }
        let mut probed = probes.join_all().await;
        probed.sort_by_key(|(index, _)| *index);
        probed.into_iter().map(|(_, probed)| probed).collect()
    }

    async fn probe_one(&self, server: &ServerName) -> Result<ProbeResult, CommandFailure> {
        let error = match self.list_tools(server.as_str(), ListPurpose::Show).await {
            Ok(_) => None,
            Err(RequestFailure::Call(error)) => Some(error),
            Err(RequestFailure::Daemon(failure)) => return Err(failure),
        };
        let ServerResponse { status, .. } = self.get(&format!("/api/v1/servers/{server}")).await?;
        let stderr = if error.is_some() { self.last_output(server).await } else { Vec::new() };
        Ok(ProbeResult { status, error, stderr, _binding: None })
    }

    /// Returns the kept stderr output of a server's last process.
    async fn last_output(&self, server: &ServerName) -> Vec<String> {
        let mut lines = Vec::new();
        let (servers, query) = ([server.to_string()], format!("servers={server}"));
        let read = self.logs(&servers, &query, |line| {
            match line.start {
                true => lines.clear(),
                false => lines.push(line.line.clone()),
            }
            Ok(())
        });
        let _ = read.await;
        lines
    }

    /// Sends an operator's action on a server, such as a restart.
    pub(crate) async fn operate(&self, server: &str, verb: &str) -> Result<ServerStatus, RequestFailure> {
        let known = self.statuses().await?;
        let known: Vec<ServerName> = known.into_iter().map(|status| status.name).collect();
        let Some(server) = known.iter().find(|name| name.as_str() == server) else {
            return Err(CommandFailure::unknown_server(server, &known).into());
        };
        let path = format!("/api/v1/servers/{server}/{verb}");
        let shown: ServerResponse =
            with_start_messages(self.post(&path), async || self.statuses().await.unwrap_or_default()).await?;
        Ok(shown.status)
    }

    /// Asks the daemon to reload the config. A refused config is an answer too.
    pub(crate) async fn reload_config(&self, lock: LockFileAction) -> Result<ReloadOutcome, RequestFailure> {
        let path = match lock {
            LockFileAction::Apply => "/api/v1/config/reload",
            LockFileAction::Ignore => "/api/v1/config/reload?keep_lock",
        };
        let ask = self.http_request(Method::POST, path, Bytes::new(), REQUEST_TIMEOUT);
        let (status, text) =
            http::fetch(&self.address, ask).await.map_err(|lost| self.request_failure(lost))?;
        if status != StatusCode::UNPROCESSABLE_ENTITY {
            self.check_status(status, &text)?;
        }
        let Reload { outcome, .. } =
            serde_json::from_slice(&text).map_err(|error| self.protocol_failure(error))?;
        Ok(outcome)
    }

    /// Passes each line of the servers' stderr output to a callback as it comes; of all servers if none is named.
    pub(crate) async fn logs(
        &self,
        servers: &[String],
        query: &str,
        mut each: impl FnMut(&ServerLogLine) -> Result<(), CommandFailure>,
    ) -> Result<(), RequestFailure> {
        if let Some(server) = servers.iter().find(|server| ServerName::new(server).is_err()) {
            return Err(CallError::unknown_server(server, std::iter::empty()).into());
        }
        let path = format!("/api/v1/logs?{query}");
        let ask = self.http_request(Method::GET, &path, Bytes::new(), LOG_TIMEOUT);
        let mut response =
            http::send_for_head(&self.address, ask).await.map_err(|lost| self.request_failure(lost))?;
        if response.status() != StatusCode::OK {
            let (status, text) = http::read_response(response, LOG_TIMEOUT)
                .await
                .map_err(|lost| self.request_failure(lost))?;
            self.check_status(status, &text)?;
            return Ok(());
        }
        let mut rest = Vec::new();
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|error| self.unreachable(error.to_string()))?;
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let line = serde_json::from_slice(line).map_err(|error| self.protocol_failure(error))?;
                each(&line)?;
            }
            rest.drain(..=end);
        }
        Ok(())
    }

    /// Sends a `GET` request and parses the response.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestFailure> {
        self.send_for_json(self.http_request(Method::GET, path, Bytes::new(), REQUEST_TIMEOUT)).await
    }

    /// Sends a `POST` request and parses the response.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestFailure> {
        self.send_for_json(self.http_request(Method::POST, path, Bytes::new(), REQUEST_TIMEOUT)).await
    }

    async fn send_for_json<T: DeserializeOwned>(&self, ask: HttpRequest<'_>) -> Result<T, RequestFailure> {
        let (status, text) =
            http::fetch(&self.address, ask).await.map_err(|lost| self.request_failure(lost))?;
        self.check_status(status, &text)?;
        Ok(serde_json::from_slice(&text).map_err(|error| self.protocol_failure(error))?)
    }

    fn http_request<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        patience: Duration,
    ) -> HttpRequest<'a> {
        HttpRequest {
            method,
            path,
            token: self.token.as_deref(),
            kept: &self.kept_connection,
            body,
            timeout: patience,
            upgrade: None,
        }
    }

    /// Returns the error of a response whose status is one.
    fn check_status(&self, status: StatusCode, text: &[u8]) -> Result<(), RequestFailure> {
        if status.is_success() {
            return Ok(());
        }
        let Ok(ErrorResponse { error }) = serde_json::from_slice(text) else {
            return Err(self.protocol_failure(format!("it answers with HTTP status {status}")).into());
        };
        let what = error.message.clone();
        let hint = match status {
            StatusCode::UNAUTHORIZED => Some(self.address.token_hint().to_owned()),
            _ => error.hint.clone(),
        };
        Err(error
            .into_call_error()
            .map_or_else(|| CommandFailure::Refused { what, hint }.into(), RequestFailure::Call))
    }

    fn request_failure(&self, lost: HttpError) -> CommandFailure {
        match lost {
            HttpError::Unproven => self.address.unproven_failure(),
            HttpError::NotSent(why) | HttpError::Overloaded(why) | HttpError::OutcomeUnknown(why) => {
                self.unreachable(why)
            }
        }
    }

    fn unreachable(&self, why: String) -> CommandFailure {
        CommandFailure::Unreachable { url: self.address.to_string(), why }
    }

    fn protocol_failure(&self, why: impl ToString) -> CommandFailure {
        self.unreachable(format!("what is there does not speak like a daemon: {}", why.to_string()))
    }
}

/// Parses a list of several servers: items in the order of the servers, and in `_meta` the server of each.
fn parse_listings(kind: Kind, result: &Bytes) -> Option<Vec<ServerListing>> {
    #[derive(Deserialize)]
    struct ListingPart {
        server: ServerName,
        items: usize,
        /// Absent from a daemon of an earlier version.
        #[serde(default)]
        names: Vec<String>,
        error: Option<ErrorBody>,
    }
    let parts = ostler_wire::member(ostler_wire::member(result, "_meta")?, "dev.ostler/servers")?;
    let parts: Vec<ListingPart> = serde_json::from_slice(parts).ok()?;
    let items: Vec<&RawValue> = serde_json::from_slice(ostler_wire::member(result, kind.member())?).ok()?;
    let mut items = items.into_iter();
    let listing = |ListingPart { server, items: count, names, error }: ListingPart| {
        let own = items.by_ref().take(count).enumerate().map(|(at, raw)| {
            let name = ostler_wire::text_member(raw.get().as_bytes(), kind.name_member()).unwrap_or_default();
            let exposed = match (names.get(at), kind) {
                (Some(exposed), _) => exposed.as_str().into(),
                (None, Kind::Tools | Kind::Prompts) => exposed_name(&server, &name).into(),
                (None, Kind::Resources | Kind::Templates) => (&*name).into(),
            };
            ListedItem {
                exposed_name: exposed,
                item: ServerItem::new(kind, &*name, result.slice_ref(raw.get().as_bytes())),
            }
        });
        let items = own.collect();
        let error = error.map(|error| server_error(&server, error));
        let (shadowed, is_known, ttl, is_public) = (Vec::new(), error.is_none(), Duration::ZERO, false);
        ServerListing { server, items, shadowed, error, is_known, ttl, is_public }
    };
    Some(parts.into_iter().map(listing).collect())
}

/// Returns the definitions of the one server that was asked for.
fn single_definitions(
    mut told: api::DefinitionsResponse,
    server: ServerName,
) -> Result<UnfilteredDefinitions, CallError> {
    match (told.servers.pop(), told.errors.pop()) {
        (Some(whole), _) => Ok(from_response(whole)),
        (None, Some(broken)) => Err(server_error(&server, broken.error)),
        (None, None) => Err(CallError::unknown_server(server.as_str(), std::iter::empty())),
    }
}

fn definition_bytes(definition: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(definition).into_string())
}

fn from_response(whole: api::ServerDefinitions) -> UnfilteredDefinitions {
    let mut sections: BTreeMap<LockSection, Vec<ItemDefinition>> =
        LockSection::ALL.map(|section| (section, Vec::new())).into();
    for api::DefinitionItem { section, name, definition } in whole.items {
        sections
            .entry(section)
            .or_default()
            .push(ItemDefinition { name, definition: definition_bytes(definition) });
    }
    let repeated = whole.repeated.into_iter().map(|it| (it.section, it.name)).collect();
    UnfilteredDefinitions { server: whole.server, sections, repeated }
}

/// Returns the error that the daemon reports about a server.
fn server_error(server: &ServerName, told: ErrorBody) -> CallError {
    let detail = "the daemon is of another version".to_owned();
    told.into_call_error().unwrap_or_else(|| CallError::UpstreamProtocol { server: server.clone(), detail })
}
