//! Resolution of requests: maps the names and URIs that a scope shows to one server, with policy's verdict.
//!
//! [`Host::resolve`] is the only way to a [`Target`], and [`Host::send`] takes nothing else, so an unauthorized request
//! can't be sent. A hidden item resolves exactly as a missing one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::catalog::Claimants;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_wire::headers::ParamHeader;
use ostler_wire::{MemberEdit, Params, is_valid_name, is_valid_uri};

use super::Tables;
use crate::call::unknown_item;
use crate::host::Host;
use crate::lists::Kind;
use crate::policy::Access;
use crate::record::{DeniedRequest, PendingRecord, UnresolvedRequest};
use crate::registry::RegistrySnapshot;
use crate::request::{Request, RequestSubject};
use crate::server::Server;
use crate::server::slot::Slot;

/// Bounds the refreshes that one name may cause while servers are being replaced.
const MAX_REFRESHES_PER_NAME: usize = 3;

/// The servers that a request can reach, and the naming of their items.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All servers that the caller may see; tools and prompts are called `server__name`.
    All,
    /// One server under its own names.
    Server(ServerName),
}

impl Scope {
    /// Returns the server of a scope with one.
    pub fn server(&self) -> Option<&ServerName> {
        match self {
            Self::All => None,
            Self::Server(server) => Some(server),
        }
    }

    /// Returns whether the scope contains the server, for callers that may see it.
    pub fn contains(&self, server: &ServerName) -> bool {
        self.server().is_none_or(|only| only == server)
    }
}

/// A request with its server, authorized by policy. Only [`Host::resolve`] makes one.
///
/// ```compile_fail,E0451
/// use ostler_host::{Request, Target};
///
/// fn forge<'a>(judged: Target<'a>, unjudged: Request<'a>) -> Target<'a> {
///     Target { request: unjudged, ..judged }
/// }
/// ```
#[must_use = "a target is resolved to be sent"]
#[derive(Clone)]
pub struct Target<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) server: Arc<Server>,
    pub(crate) slot: Arc<Slot>,
    /// The rule that hides the subject. Such a request passes the checks of one for a missing item, and is never sent.
    pub(crate) hidden_by: Option<String>,
}

impl Target<'_> {
    /// Returns the server that the request goes to.
    pub fn server(&self) -> &ServerName {
        &self.server.spec.name
    }

    /// Returns whether a rule hides the subject of the request. Sending such a target ends as one for a missing item
    /// does.
    pub fn is_hidden(&self) -> bool {
        self.hidden_by.is_some()
    }

    /// Returns the parameters, with the server's own names.
    pub fn params(&self) -> &Params {
        &self.request.params
    }

    /// Detaches the target from its caller's borrow.
    pub fn into_owned(self) -> Target<'static> {
        Target {
            request: self.request.into_owned(),
            server: self.server,
            slot: self.slot,
            hidden_by: self.hidden_by,
        }
    }
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("request", &self.request).finish_non_exhaustive()
    }
}

/// An error, and the rule that hides the subject.
type PolicyRefusal = (CallError, Option<String>);

/// Server of a request, the slot that its caller uses, and the rule that hides the subject.
type PolicyApproval = (Arc<Server>, Arc<Slot>, Option<String>);

impl Host {
    /// Resolves a request to its server and asks policy about it, once. Records a refusal, and gives hidden and missing
    /// items the same error. Fetches lists again where a name or URI is not known.
    pub async fn resolve<'a>(&self, scope: &Scope, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let request = request.with_snapshot(&self.current());
        match scope {
            Scope::Server(server) => self.authorize(server.as_str(), request),
            Scope::All => match request.method() {
                "tools/call" => self.resolve_name(Kind::Tools, request).await,
                "prompts/get" => self.resolve_name(Kind::Prompts, request).await,
                // Boxed, like every step that a tool call skips.
                "resources/read" => Box::pin(self.resolve_read(request)).await,
                "completion/complete" => Box::pin(self.resolve_completion(request)).await,
                method if method.starts_with("tasks/") && request.params.task_id().is_some() => {
                    self.resolve_task(request)
                }
                method => {
                    let error = CallError::UnknownMethod { method: method.to_owned() };
                    Err(self.refuse_unresolved(&request, "", error))
                }
            },
        }
    }

    /// Returns the arguments of the target's tool that headers repeat, from a list that is fetched if none is known.
    /// Returns none for a hidden tool: they would reveal that it exists.
    pub async fn param_headers(&self, target: &Target<'_>) -> Vec<ParamHeader> {
        let (request, server) = (&target.request, target.server());
        let Some(tool) = request.tool_name() else { return Vec::new() };
        let marks = |tables: Arc<Tables>| tables.param_headers(server, &tool).map(<[ParamHeader]>::to_vec);
        let known = marks(self.catalog().tables(self).await);
        if target.hidden_by.is_some() || known.is_none() {
            // An error here will meet the call as well, which reports it.
            let listing =
                self.list_with_timeout(&target.slot, request.caller(), Kind::Tools, request.list_timeout);
            let _ = Box::pin(listing).await;
        }
        match known {
            _ if target.hidden_by.is_some() => Vec::new(),
            Some(known) => known,
            None => marks(self.catalog().tables(self).await).unwrap_or_default(),
        }
    }

    /// Authorizes a request to a server.
    pub(crate) fn authorize<'a>(&self, server: &str, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let request = request.with_snapshot(&self.current());
        let mut request = match ServerName::new(server) {
            Ok(name) => request.with_server(name),
            Err(_) => {
                let error = self.unknown_server(Some(request.caller()), server);
                return Err(self.refuse_unresolved(&request, server, error));
            }
        };
        match self.authorize_method(&mut request) {
            Ok((server, slot, rule)) => Ok(Target { request, server, slot, hidden_by: rule }),
            Err((error, rule)) => Err(self.refuse(&request, error, rule)),
        }
    }

    fn authorize_method(&self, request: &mut Request<'_>) -> Result<PolicyApproval, PolicyRefusal> {
        self.open_request(request).map_err(|error| (error, None))?;
        match self.authorize_opened(request) {
            // Applies also to parameters that such a request can't have.
            Ok(_) | Err((CallError::Invalid { .. }, _)) if changes_session(request.method()) => {
                Err((CallError::UnknownMethod { method: request.method().to_owned() }, None))
            }
            judged => judged,
        }
    }

    /// Authorizes a target again by the snapshot in force: rules, pins and limits of one snapshot decide about it. Asks
    /// policy again only where rules, hook or server have changed since the target was resolved.
    pub(crate) fn reauthorize<'a>(&self, mut target: Target<'a>) -> Result<Target<'a>, CallError> {
        let current = self.current();
        let judged_by = target.request.snapshot.as_ref();
        if judged_by.is_some_and(|judged_by| Arc::ptr_eq(judged_by, &current)) {
            return Ok(target);
        }
        let is_judged = judged_by.is_some_and(|judged_by| judged_by.has_same_policy(&current));
        let is_same = is_judged && current.is_registered(&target.server);
        target.request.snapshot = Some(Arc::clone(&current));
        if is_same {
            return Ok(target);
        }
        let mut request = target.request;
        match self.authorize_opened(&mut request) {
            Ok((server, slot, rule)) => Ok(Target { request, server, slot, hidden_by: rule }),
            Err((error, rule)) => Err(self.refuse(&request, error, rule)),
        }
    }

    /// Authorizes a request whose task ids and request state are opened.
    pub(crate) fn authorize_opened(
        &self,
        request: &mut Request<'_>,
    ) -> Result<PolicyApproval, PolicyRefusal> {
        let plain = |error: CallError| (error, None);
        let current = self.snapshot_for(request);
        let unknown = || current.unknown_server(Some(request.caller()), request.server());
        let Some(server) = current.server(request.server()).cloned() else {
            return Err(plain(
                current.find(Some(request.caller()), request.server()).err().unwrap_or_else(unknown),
            ));
        };
        let wanted = request.subject();
        let subject = wanted
            .as_ref()
            .ok()
            .filter(|wanted| wanted.is_valid())
            .and_then(RequestSubject::as_policy_subject);
        let rule = match current.access(request.caller(), &server, subject) {
            Access::Allowed => None,
            Access::ItemHidden(rule) => Some(rule),
            Access::ServerHidden(rule) => return Err((unknown(), Some(rule))),
        };
        // A list of tasks would show the tasks of every caller.
        if request.method() == "tasks/list" && server.is_shared() {
            return Err(plain(CallError::UnknownMethod { method: request.method().to_owned() }));
        }
        let wanted = wanted.map_err(plain)?;
        if !wanted.is_valid() {
            return Err(plain(self.not_found_error(request, &server, &wanted)));
        }
        drop(wanted);
        request.is_hidden = rule.is_some();
        let slot = server.slot(request.caller()).map_err(|error| (error, rule.clone()))?;
        Ok((server, slot, rule))
    }

    /// Records a refused request, and returns the error as its caller may read it.
    fn refuse(&self, request: &Request<'_>, error: CallError, rule: Option<String>) -> CallError {
        let mut recording = PendingRecord::begin(request, self.recorder());
        recording.set_denied_by(rule);
        let error = self.conceal_missing(request, error);
        recording.finish(&Err(error.clone()));
        self.snapshot_for(request).without_details(request.caller(), error)
    }

    /// Records a request that is refused before its server is known.
    fn refuse_unresolved(&self, request: &Request<'_>, server: &str, error: CallError) -> CallError {
        let unknown =
            UnresolvedRequest { server, method: request.method(), subject: "", outcome: error.code() };
        self.record_unresolved(request.caller(), unknown);
        error
    }

    fn resolve_task<'a>(&self, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let task = request.params.task_id().unwrap_or_default();
        match self.task_server(request.caller(), &task) {
            Ok(server) => self.authorize(server.as_str(), request),
            Err(error) => Err(self.refuse_unresolved(&request, "", error)),
        }
    }

    /// Resolves a tool or a prompt by its exposed name.
    async fn resolve_name<'a>(&self, kind: Kind, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let exposed = request.params.name().map(Cow::into_owned).unwrap_or_default();
        let (found, name) = self.find_name(&request, kind, &exposed).await?;
        let params = request.params.with_name(&name);
        self.target_at(request.with_params(params), found)
    }

    /// Makes the target of a request that policy allowed when its server was found.
    fn target_at<'a>(&self, request: Request<'a>, found: AllowedServer) -> Result<Target<'a>, CallError> {
        let AllowedServer { server, snapshot: by } = found;
        let mut request = request.with_snapshot(&by).with_server(server.spec.name.clone()).unscoped();
        let is_possible = request.subject().map(|wanted| wanted.is_valid());
        let opened = match is_possible {
            Ok(true) => self.open_request(&mut request).and_then(|()| server.slot(request.caller())),
            Ok(false) => {
                request.subject().and_then(|wanted| Err(self.not_found_error(&request, &server, &wanted)))
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(slot) => Ok(Target { request, server, slot, hidden_by: None }),
            Err(error) => Err(self.refuse(&request, error, None)),
        }
    }

    /// Looks up a name. An unknown name makes its candidate servers list once more. A hidden item is not found, and is
    /// looked up like a missing one. A server whose list was never known gives the reason.
    async fn find_name(
        &self,
        request: &Request<'_>,
        kind: Kind,
        exposed: &str,
    ) -> Result<(AllowedServer, String), CallError> {
        let caller = request.caller();
        if !is_valid_name(exposed) {
            self.record_missing(request, "", (exposed, unknown_item(kind, exposed).code()));
            return Err(self.unknown_name(caller, kind, exposed).await);
        }
        let look = |tables: Arc<Tables>| {
            let (server, name) = tables.name_table(kind)?.resolve(exposed)?;
            let by = Arc::clone(&self.current());
            let server = Arc::clone(by.allowed_server(caller, server, kind.subject(name))?);
            kind.is_valid_name(name).then(|| (AllowedServer { server, snapshot: by }, name.to_owned()))
        };
        for _ in 0..MAX_REFRESHES_PER_NAME {
            if let Some(found) = look(self.catalog().tables(self).await) {
                return Ok(found);
            }
            let refresh =
                self.catalog().refresh_candidates(self, caller, (kind, exposed), request.list_timeout);
            let (is_news, error) = Box::pin(refresh).await;
            // Checked even if nothing was refreshed: another caller may have refreshed since the first lookup.
            if let Some(found) = look(self.catalog().tables(self).await) {
                return Ok(found);
            }
            if let Some(error) = error {
                let starting = error.server().filter(|_| error.is_starting()).cloned();
                match starting {
                    // The call waits for the start as one for a known name does.
                    Some(server)
                        if self
                            .wait_for_start(caller, server.as_str(), request.call_observer.as_ref())
                            .await =>
                    {
                        continue;
                    }
                    _ => {
                        self.record_not_found(request, (kind, exposed), error.code()).await;
                        return Err(error);
                    }
                }
            }
            if !is_news {
                break;
            }
        }
        self.record_not_found(request, (kind, exposed), unknown_item(kind, exposed).code()).await;
        Err(self.unknown_name(caller, kind, exposed).await)
    }

    /// Returns the error for a name that is unknown or hidden, with the nearest name that the caller may see.
    async fn unknown_name(&self, caller: &Caller, kind: Kind, exposed: &str) -> CallError {
        if kind != Kind::Tools {
            return unknown_item(kind, exposed);
        }
        let tables = self.catalog().tables(self).await;
        let may = |server: &ServerName, tool: &str| {
            let server = server.as_str();
            self.may_use(caller, server, kind, tool)
                && self.may_suggest(caller, server, tool)
                && !self.is_quarantined(caller, server, tool)
        };
        let visible = tables.name_table(kind).into_iter().flat_map(|table| table.iter());
        let visible = visible.filter(|row| may(&row.server, &row.tool));
        CallError::unknown_tool(exposed, visible.map(|row| &*row.exposed))
    }

    /// Records a name that was not found because a rule hides it, nothing has it, or its server can't list.
    async fn record_not_found(
        &self,
        request: &Request<'_>,
        (kind, exposed): (Kind, &str),
        outcome: &'static str,
    ) {
        let tables = self.catalog().tables(self).await;
        if let Some((server, name)) = tables.name_table(kind).and_then(|table| table.resolve(exposed))
            && self.record_hidden(request, server, (kind, name))
        {
            return;
        }
        // An item of a server that was never asked is in no table.
        let servers = self.servers(&Caller::operator());
        let owner = |server: &'_ ServerName| {
            exposed.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix("__")).map(str::to_owned)
        };
        let owned: Vec<(&ServerName, String)> =
            servers.iter().filter_map(|server| Some((server, owner(server)?))).collect();
        let mut is_hidden = false;
        for (server, name) in &owned {
            is_hidden |= self.record_hidden(request, server, (kind, name));
        }
        if !is_hidden {
            let (server, subject) = match owned.first() {
                Some((server, name)) => (server.as_str(), name.as_str()),
                None => ("", exposed),
            };
            self.record_missing(request, server, (subject, outcome));
        }
    }

    fn record_missing(&self, request: &Request<'_>, server: &str, (subject, outcome): (&str, &'static str)) {
        self.record_unresolved(
            request.caller(),
            UnresolvedRequest { server, method: request.method(), subject, outcome },
        );
    }

    /// Records a hidden item. Returns whether a rule hides it.
    fn record_hidden(&self, request: &Request<'_>, server: &ServerName, item: (Kind, &str)) -> bool {
        let (server, method) = (server.as_str(), request.method());
        self.record_if_denied(request.caller(), DeniedRequest { server, method, item: Some(item) })
    }

    /// Resolves a resource to its owner; no other server receives the request.
    async fn resolve_read<'a>(&self, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let uri = request.params.uri().map(Cow::into_owned).unwrap_or_default();
        // A continued request goes to the server that asked.
        if let Some(server) = self.state_server(request.caller(), &request.params) {
            return self.authorize(server.as_str(), request.unscoped());
        }
        if let Some(only) = self.single_server(request.caller()) {
            return self.authorize(only.as_str(), request.unscoped());
        }
        let owner = self.find_uri_owner(request.caller(), request.method(), &uri, request.list_timeout).await;
        self.target_at_owner(request, owner, &uri)
    }

    /// Makes the target of a request for a URI.
    fn target_at_owner<'a>(
        &self,
        request: Request<'a>,
        owner: Option<UriOwner>,
        uri: &str,
    ) -> Result<Target<'a>, CallError> {
        match owner {
            Some(UriOwner::Authorized(found)) => self.target_at(request, found),
            Some(UriOwner::Unchecked(server)) => self.authorize(server.as_str(), request.unscoped()),
            None => Err(unknown_item(Kind::Resources, uri)),
        }
    }

    /// Returns whether every URI goes to one server: it is the only one, and no rule restricts the caller.
    pub fn has_single_server(&self, caller: &Caller) -> bool {
        self.single_server(caller).is_some()
    }

    /// Returns the server that receives every URI, listed or not.
    fn single_server(&self, caller: &Caller) -> Option<ServerName> {
        let current = self.current();
        match current.servers.keys().next() {
            Some(only) if current.servers.len() == 1 && !current.is_restricted(caller) => Some(only.clone()),
            _ => None,
        }
    }

    /// Finds the owner of a URI among the servers that claim it and that the caller may use. Records a URI without an
    /// owner.
    pub async fn find_resource_owner(
        &self,
        caller: &Caller,
        method: &str,
        uri: &str,
        patience: Duration,
    ) -> Option<ServerName> {
        self.find_uri_owner(caller, method, uri, patience).await.map(|owner| match owner {
            UriOwner::Authorized(found) => found.server.spec.name.clone(),
            UriOwner::Unchecked(server) => server,
        })
    }

    async fn find_uri_owner(
        &self,
        caller: &Caller,
        method: &str,
        uri: &str,
        patience: Duration,
    ) -> Option<UriOwner> {
        let subject = Kind::Resources.subject(uri);
        let owner = |claimants: &Claimants<'_>| {
            let by = Arc::clone(&self.current());
            let may = |server: &ServerName| by.allowed_server(caller, server, subject).is_some();
            let server = Arc::clone(by.server(claimants.owner(may)?.as_str())?);
            Some(AllowedServer { server, snapshot: by })
        };
        let unlisted = || {
            let unknown = UnresolvedRequest { server: "", method, subject: uri, outcome: "unknown-resource" };
            self.record_unresolved(caller, unknown);
            None
        };
        if !is_valid_uri(uri) {
            return unlisted();
        }
        let catalog = self.catalog();
        catalog.query_unlisted_resources(self, caller, patience).await;
        if let Some(found) = owner(&catalog.tables(self).await.resources.claimants(uri)) {
            return Some(UriOwner::Authorized(found));
        }
        for kind in [Kind::Resources, Kind::Templates] {
            catalog.refresh(self, caller, kind, patience).await;
        }
        let tables = catalog.tables(self).await;
        let claimants = tables.resources.claimants(uri);
        if let Some(found) = owner(&claimants) {
            return Some(UriOwner::Authorized(found));
        }
        // A hidden URI takes the path of a missing one: it goes to the server with a template for both, which yields
        // the same error.
        let current = self.current();
        let may_reach = |server: &ServerName, template: &str| current.may_reach(caller, server, template);
        if let Some(server) = claimants.owner_by_template(may_reach) {
            return Some(UriOwner::Unchecked(server.clone()));
        }
        let mut is_hidden = false;
        for server in claimants.servers() {
            let refused =
                DeniedRequest { server: server.as_str(), method, item: Some((Kind::Resources, uri)) };
            is_hidden |= self.record_if_denied(caller, refused);
        }
        if is_hidden { None } else { unlisted() }
    }

    /// Resolves a completion by the prompt or template that it is for.
    async fn resolve_completion<'a>(&self, request: Request<'a>) -> Result<Target<'a>, CallError> {
        let reference = request.params.reference().unwrap_or_default().to_vec();
        let refused = |what: &str| CallError::Invalid {
            what: what.to_owned(),
            hint: "`ref` names one prompt by `name`, or one resource template by `uri`".into(),
        };
        if ostler_wire::member(&reference, "name").is_some()
            && ostler_wire::member(&reference, "uri").is_some()
        {
            return Err(refused("`ref` has both `name` and `uri`"));
        }
        if let Some(exposed) = ostler_wire::text_member(&reference, "name") {
            let (found, name) = self.find_name(&request, Kind::Prompts, &exposed).await?;
            let mut value = Vec::new();
            ostler_wire::push_json_string(&mut value, &name);
            let inner = ostler_wire::edit(&reference, &[("name", MemberEdit::Set(&value))]);
            let params = inner.and_then(|inner| {
                let text = ostler_wire::edit(request.params.raw(), &[("ref", MemberEdit::Set(&inner))])?;
                Params::parse(text.into()).ok()
            });
            let params = params.ok_or_else(|| refused("`ref` is not an object"))?;
            return self.target_at(request.with_params(params), found);
        }
        let Some(uri) = ostler_wire::text_member(&reference, "uri") else {
            return Err(refused("`ref` names neither a prompt nor a resource"));
        };
        let caller = request.caller();
        self.catalog().query_unlisted_resources(self, caller, request.list_timeout).await;
        let tables = self.catalog().tables(self).await;
        let template = {
            let by = Arc::clone(&self.current());
            let may = |server: &ServerName| {
                by.allowed_server(caller, server, Kind::Templates.subject(&uri)).is_some()
            };
            let server = tables.resources.owner_of_template(&uri, may);
            server
                .and_then(|server| by.server(server.as_str()).cloned())
                .map(|server| AllowedServer { server, snapshot: by })
        };
        let owner = match template {
            Some(found) => Some(UriOwner::Authorized(found)),
            None => self.find_uri_owner(caller, request.method(), &uri, request.list_timeout).await,
        };
        self.target_at_owner(request, owner, &uri)
    }
}

/// A server that policy allows the caller to use for its request.
struct AllowedServer {
    server: Arc<Server>,
    /// Snapshot in force when policy allowed it.
    snapshot: Arc<RegistrySnapshot>,
}

/// The server that owns a URI.
enum UriOwner {
    /// One for which policy allows the URI.
    Authorized(AllowedServer),
    /// One that policy has not been asked about yet.
    Unchecked(ServerName),
}

/// Returns whether a method changes a session for all callers that share it. Callers have [`Host::request_log_level`]
/// and [`Host::subscribe`] for that.
fn changes_session(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "subscriptions/listen"
    )
}
