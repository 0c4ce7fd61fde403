//! Requests of callers: a method, its parameters and their subject.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::breaker::CallOrigin;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::policy::Subject;
use ostler_core::retry::MethodKind;
use ostler_core::server_name::ServerName;
use ostler_wire::headers::PARAM_PREFIX;
use ostler_wire::{ItemParam, ItemParamError, Params, SessionMeta, is_valid_name};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::in_flight::RequestClass;
use crate::lists::Kind;
use crate::notify;
use crate::registry::RegistrySnapshot;
use crate::upstream::{ClientMeta, ProgressObserver, ProgressSink, SharedCallObserver, is_interactive};

/// Bounds the wait for lists unless the request says otherwise: one slow server must not hold up the others.
const DEFAULT_LIST_TIMEOUT: Duration = Duration::from_secs(8);

/// Bounds the headers of one request: more than any tool has marked arguments.
const MAX_HEADERS: usize = 64;
/// Bounds one header value; servers commonly accept no more for all of their headers.
const MAX_HEADER_VALUE: usize = 8 << 10;

/// One request of a caller, with names and URIs as its scope shows them.
#[derive(Clone)]
pub struct Request<'a> {
    caller: Cow<'a, Caller>,
    /// Set once the request is [resolved](crate::Host::resolve).
    server: Option<ServerName>,
    method: Cow<'a, str>,
    pub(crate) params: Params,
    /// Member of `params` that names the subject.
    item_param: Result<ItemParam, ItemParamError>,
    pub(crate) received_at: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) call_observer: Option<SharedCallObserver>,
    /// Headers that repeat arguments, for a remote server. At most [`MAX_HEADERS`].
    pub(crate) headers: Box<[(String, String)]>,
    /// Source of the client metadata in `_meta`: a client's session, or the parameters themselves.
    meta_source: MetaSource,
    /// Set if it is about a task whose id was sealed for its caller: rules are asked about the server, not about the
    /// method.
    pub(crate) is_for_own_task: bool,
    /// Number of the request state that it redeems.
    pub(crate) state_nonce: Option<u64>,
    /// Set if a rule hides its subject. It then passes every check that a request for a missing item passes, and is
    /// never sent.
    pub(crate) is_hidden: bool,
    /// Set if it is sent only to a live session, and starts none.
    pub(crate) is_passive: bool,
    /// Set if its caller uses the servers' own names; errors then use them too.
    pub(crate) has_own_names: bool,
    /// Longest wait for lists if a name or URI is not known.
    pub(crate) list_timeout: Duration,
    /// Set if the caller named no server.
    pub(crate) is_unscoped: bool,
    /// Snapshot that authorized it; absent for the host's own requests.
    pub(crate) snapshot: Option<Arc<RegistrySnapshot>>,
}

impl<'a> Request<'a> {
    /// Creates any MCP request; the parameters stay as they came.
    pub fn new(caller: &'a Caller, method: &'a str, params: Params) -> Self {
        Self {
            caller: Cow::Borrowed(caller),
            server: None,
            method: Cow::Borrowed(method),
            item_param: ItemParam::check(method, &params),
            params,
            received_at: Instant::now(),
            deadline: None,
            call_observer: None,
            headers: Box::default(),
            meta_source: MetaSource::Host,
            is_for_own_task: false,
            state_nonce: None,
            is_hidden: false,
            is_passive: false,
            has_own_names: false,
            list_timeout: DEFAULT_LIST_TIMEOUT,
            is_unscoped: false,
            snapshot: None,
        }
    }

    /// Creates a call of a tool.
    pub fn tool_call(caller: &'a Caller, tool: &str, arguments: CallArguments) -> Result<Self, CallError> {
        let raw: Option<&RawValue> = match &arguments.0 {
            ArgumentsForm::None => None,
            ArgumentsForm::Checked(raw) => Some(raw),
            ArgumentsForm::Text(text) => {
                Some(serde_json::from_slice(text).map_err(|error| arguments_error(&error))?)
            }
        };
        let params = Params::tool_call(tool, raw).map_err(|error| arguments_error(&error))?;
        Ok(Self::new(caller, "tools/call", params))
    }

    /// Returns the caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the name of its server; empty until it is resolved.
    pub(crate) fn server(&self) -> &str {
        self.server.as_ref().map_or("", ServerName::as_str)
    }

    /// Sets its server.
    pub(crate) fn with_server(mut self, server: ServerName) -> Self {
        self.server = Some(server);
        self
    }

    /// Replaces an exposed name with the server's own; the member that holds it stays the same.
    pub(crate) fn with_params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// Marks it as one that named no server: a restricted caller is not told which server was asked.
    pub(crate) fn unscoped(mut self) -> Self {
        self.is_unscoped = true;
        self
    }

    /// Sets the snapshot that authorizes it.
    pub(crate) fn with_snapshot(mut self, current: &Arc<RegistrySnapshot>) -> Self {
        self.snapshot = Some(Arc::clone(current));
        self
    }

    /// Detaches it from its caller's borrow.
    pub(crate) fn into_owned(self) -> Request<'static> {
        Request {
            caller: Cow::Owned(self.caller.into_owned()),
            method: Cow::Owned(self.method.into_owned()),
            server: self.server,
            params: self.params,
            item_param: self.item_param,
            received_at: self.received_at,
            deadline: self.deadline,
            call_observer: self.call_observer,
            headers: self.headers,
            meta_source: self.meta_source,
            is_for_own_task: self.is_for_own_task,
            state_nonce: self.state_nonce,
            is_hidden: self.is_hidden,
            is_passive: self.is_passive,
            has_own_names: self.has_own_names,
            list_timeout: self.list_timeout,
            is_unscoped: self.is_unscoped,
            snapshot: self.snapshot,
        }
    }

    /// Sets the longest wait for lists where a name or URI is not known.
    #[must_use]
    pub fn with_list_timeout(mut self, patience: Duration) -> Self {
        self.list_timeout = patience;
        self
    }

    /// Sets the caller's timeout; the server's own limits may end the request earlier.
    #[must_use]
    pub fn with_timeout(mut self, time: Duration) -> Self {
        // A time beyond the range of the clock is no limit.
        self.deadline = Instant::now().checked_add(time);
        self
    }

    /// Declares that the caller uses the servers' own names: errors then use them in place of `server__tool`.
    #[must_use]
    pub fn with_own_names(mut self) -> Self {
        self.has_own_names = true;
        self
    }

    /// Sets the receiver of progress notifications, which gets their raw parameters.
    #[must_use]
    pub fn on_progress(mut self, sink: ProgressSink) -> Self {
        self.call_observer = Some(Arc::new(ProgressObserver(sink)));
        self
    }

    /// Sets the observer that hears of the request and answers for the caller while it is in flight.
    #[must_use]
    pub fn with_call_observer(mut self, voice: SharedCallObserver) -> Self {
        self.call_observer = Some(voice);
        self
    }

    /// Declares that the parameters come from a modern client: their version, capabilities and identity are passed on.
    #[must_use]
    pub fn from_modern_client(mut self) -> Self {
        self.meta_source = MetaSource::Client;
        self
    }

    /// Declares the client session that the request comes from; the session has stated the client's identity.
    #[must_use]
    pub fn from_session(mut self, meta: Arc<SessionMeta>) -> Self {
        self.meta_source = MetaSource::Session(meta);
        self
    }

    /// Passes on client headers that repeat arguments, to a modern remote server only. Accepts names with `Mcp-Param-`,
    /// at most 64 of them with values of at most 8 KiB. The host's own header for an argument takes precedence.
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<(String, String)>) -> Self {
        let is_fit = |(name, value): &(String, String)| {
            let prefix = name.get(..PARAM_PREFIX.len());
            prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PARAM_PREFIX))
                && value.len() <= MAX_HEADER_VALUE
        };
        self.headers = headers.into_iter().filter(is_fit).take(MAX_HEADERS).collect();
        self
    }

    /// Returns the client metadata that a modern server reads in `_meta`.
    pub(crate) fn client_meta(&self) -> ClientMeta<'_> {
        match &self.meta_source {
            MetaSource::Host => ClientMeta::Host,
            MetaSource::Client => ClientMeta::Own,
            MetaSource::Session(meta) => ClientMeta::Session(meta),
        }
    }

    /// Returns whether its caller can answer questions of the server.
    pub(crate) fn is_interactive(&self) -> bool {
        self.call_observer.as_deref().is_some_and(is_interactive)
    }

    /// Returns whether it speaks for a client, whose capabilities may exceed the host's.
    pub(crate) fn is_for_client(&self) -> bool {
        !matches!(self.meta_source, MetaSource::Host)
    }

    /// Returns whether sending it twice can do harm.
    pub(crate) fn method_kind(&self) -> MethodKind {
        MethodKind::from_method(&self.method)
    }

    /// Returns its subject: the one value that rules are asked about, answers are cached under, the record names and
    /// the server reads.
    pub(crate) fn subject(&self) -> Result<RequestSubject<'_>, CallError> {
        let naming = self.item_param.map_err(|error| item_param_error(&self.method, error))?;
        let text = || naming.text(&self.params).unwrap_or_default();
        Ok(match naming {
            ItemParam::Name if self.method == "tools/call" => RequestSubject::Item(Kind::Tools, text()),
            ItemParam::Name => RequestSubject::Item(Kind::Prompts, text()),
            ItemParam::Uri => RequestSubject::Item(Kind::Resources, text()),
            ItemParam::Ref => self.completion_subject()?,
            // The content of a list is filtered; the other methods with a cursor affect this caller alone.
            ItemParam::Cursor if self.method != "tasks/list" => RequestSubject::Server,
            _ if matches!(&*self.method, "server/discover" | "ping" | "logging/setLevel") => {
                RequestSubject::Server
            }
            _ if self.is_for_own_task => RequestSubject::Server,
            _ => RequestSubject::Method(&self.method),
        })
    }

    /// Returns the subject of a completion: one prompt or one resource template.
    fn completion_subject(&self) -> Result<RequestSubject<'_>, CallError> {
        #[derive(Deserialize)]
        struct CompletionRef {
            r#type: Option<String>,
            name: Option<String>,
            uri: Option<String>,
            #[serde(flatten)]
            others: BTreeMap<String, IgnoredAny>,
        }
        let invalid = |what: String| CallError::Invalid {
            what,
            hint: "`ref` names one prompt by `name`, or one resource template by `uri`".into(),
        };
        let reference: CompletionRef = serde_json::from_slice(self.params.reference().unwrap_or_default())
            .map_err(|error| invalid(format!("`ref` can't be read: {error}")))?;
        let is_unclear = |key: &String| {
            key.contains(char::is_control)
                || ["type", "name", "uri"].iter().any(|known| ostler_wire::is_case_variant(known, key))
        };
        if let Some(key) = reference.others.keys().find(|key| is_unclear(key)) {
            return Err(invalid(format!(
                "`ref` has a key `{key}`, which some servers would take for another"
            )));
        }
        let wanted = match (reference.name, reference.uri) {
            (Some(name), None) => RequestSubject::Item(Kind::Prompts, name.into()),
            (None, Some(uri)) => RequestSubject::Item(Kind::Templates, uri.into()),
            (None, None) => RequestSubject::Method(&self.method),
            (Some(_), Some(_)) => return Err(invalid("`ref` has both `name` and `uri`".into())),
        };
        match (reference.r#type.as_deref(), &wanted) {
            (Some("ref/prompt"), RequestSubject::Item(Kind::Templates, _))
            | (Some("ref/resource"), RequestSubject::Item(Kind::Prompts, _)) => {
                Err(invalid("`ref` has a `type` that its other members don't fit".into()))
            }
            _ => Ok(wanted),
        }
    }

    /// Returns the tool that it calls, if it calls one.
    pub(crate) fn tool_name(&self) -> Option<Cow<'_, str>> {
        (self.method == "tools/call").then(|| ItemParam::Name.text(&self.params).unwrap_or_default())
    }

    /// Returns whether answers depend only on the item, the arguments and the page. Other members, entries of `_meta`
    /// and headers may have a meaning that only the server knows.
    pub(crate) fn is_plain(&self) -> bool {
        let takes_arguments = matches!(self.item_param, Ok(ItemParam::Name));
        !self.params.has_unknown_members()
            && self.headers.is_empty()
            && (takes_arguments || self.params.arguments().is_none())
    }

    /// Returns the key by which the breaker counts failures: the tool, or the method of any other request.
    pub(crate) fn breaker_tool(&self) -> Cow<'_, str> {
        self.tool_name().unwrap_or(Cow::Borrowed(self.method()))
    }

    /// Returns caller and tool for the breaker; `None` for a list, which bypasses it.
    pub(crate) fn origin<'b>(&'b self, tool: &'b str) -> Option<CallOrigin<'b>> {
        (!self.is_list()).then(|| CallOrigin { caller: self.caller.principal(), tool })
    }

    /// Returns whether it is a list request.
    pub(crate) fn is_list(&self) -> bool {
        self.method == "server/discover" || Kind::ALL.iter().any(|kind| kind.method() == self.method())
    }

    /// Returns whether budgets count it. Lists and subscriptions are free; everything that may make the server work is
    /// charged, unknown methods included.
    pub(crate) fn is_charged(&self) -> bool {
        let is_free = matches!(
            &*self.method,
            "ping"
                | "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "subscriptions/listen"
        );
        !self.is_list() && !is_free
    }

    /// Returns the class under which it counts while in flight.
    pub(crate) fn class(&self) -> RequestClass {
        if self.is_charged() { RequestClass::Call } else { RequestClass::Listing }
    }
}

/// Subject of a request, as far as rules are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestSubject<'a> {
    /// The server alone; every caller that may see the server may ask for it.
    Server,
    /// One item.
    Item(Kind, Cow<'a, str>),
    /// A method that only the server understands.
    Method(&'a str),
}

impl RequestSubject<'_> {
    /// Returns the name or URI of the item; empty if the request wants none.
    pub(crate) fn item_name(&self) -> &str {
        match self {
            Self::Item(_, name) => name,
            Self::Server | Self::Method(_) => "",
        }
    }

    /// Returns the subject that rules are asked about; `None` where they are asked about the server alone.
    pub(crate) fn as_policy_subject(&self) -> Option<Subject<'_>> {
        match self {
            Self::Server => None,
            Self::Item(kind, name) => Some(kind.subject(name)),
            Self::Method(method) => Some(Subject::Method(method)),
        }
    }

    /// Returns whether an item can have such a name. Rules are not asked about other names.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Server => true,
            Self::Item(kind, name) => kind.is_valid_name(name),
            // Only the host opens sessions, and a notification has no answer.
            Self::Method(method) => {
                is_valid_name(method) && *method != "initialize" && !method.starts_with(notify::METHOD_PREFIX)
            }
        }
    }
}

/// Source of client metadata, kept while the request is in flight.
#[derive(Debug, Clone)]
enum MetaSource {
    Host,
    Client,
    Session(Arc<SessionMeta>),
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("server", &self.server())
            .field("method", &self.method)
            .field("wanted", &self.subject())
            .finish_non_exhaustive()
    }
}

/// Arguments of a tool: a JSON object, sent byte for byte.
#[derive(Debug, Clone, Default)]
pub struct CallArguments(ArgumentsForm);

#[derive(Debug, Clone, Default)]
enum ArgumentsForm {
    #[default]
    None,
    /// Known to be JSON.
    Checked(Arc<RawValue>),
    /// Not checked yet.
    Text(Bytes),
}

impl CallArguments {
    /// Returns an empty object.
    pub fn none() -> Self {
        Self::default()
    }

    /// Wraps the text of a JSON object. The text is checked on use.
    pub fn raw(text: impl Into<Bytes>) -> Self {
        Self(ArgumentsForm::Text(text.into()))
    }
}

impl From<Box<RawValue>> for CallArguments {
    fn from(value: Box<RawValue>) -> Self {
        Self(ArgumentsForm::Checked(value.into()))
    }
}

impl From<Arc<RawValue>> for CallArguments {
    fn from(value: Arc<RawValue>) -> Self {
        Self(ArgumentsForm::Checked(value))
    }
}

impl From<serde_json::Value> for CallArguments {
    fn from(value: serde_json::Value) -> Self {
        match serde_json::value::to_raw_value(&value) {
            Ok(raw) => raw.into(),
            // Serializing a value does not fail; if it did, the check on use would report it.
            Err(_) => Self::raw(value.to_string()),
        }
    }
}

/// Checks that parameters name one item of a method, as [`Host::send`](crate::Host::send) does. For front ends that
/// answer some methods themselves.
pub fn check_item_param(method: &str, params: &Params) -> Result<(), CallError> {
    ItemParam::check(method, params).map_err(|error| item_param_error(method, error)).map(drop)
}

fn item_param_error(method: &str, error: ItemParamError) -> CallError {
    let what = match error {
        ItemParamError::Unexpected(member) => format!("`{member}` does not belong to {method}"),
        ItemParamError::MissingOrMistyped(_) => error.to_string(),
    };
    CallError::Invalid { what, hint: "name one item, by the member that the method has for it".into() }
}

fn arguments_error(why: &dyn std::fmt::Display) -> CallError {
    CallError::Invalid {
        what: format!("the arguments are not a JSON object: {why}"),
        hint: "pass an object such as {\"key\": \"value\"}".into(),
    }
}
