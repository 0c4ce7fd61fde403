//! What a caller asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::breaker::Origin;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::policy::Subject;
use ostler_core::repeat::MethodKind;
use ostler_wire::headers::PARAM_PREFIX;
use ostler_wire::{Naming, NamingError, Params, SessionMeta, is_name};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::in_flight::Errand;
use crate::lists::Kind;
use crate::notify;
use crate::registry::Current;
use crate::upstream::{ClientMeta, ProgressOnly, ProgressSink, SharedVoice, is_interactive};

/// The longest wait for lists unless the request says otherwise: one server must not hold up all others for longer.
const PATIENCE: Duration = Duration::from_secs(8);

/// Headers that are passed on with one request: more than any tool has marked arguments.
const MAX_HEADERS: usize = 64;
/// The longest value; servers commonly take no more in all of their headers.
const MAX_VALUE: usize = 8 << 10;

/// One request of a caller, with names and URIs as its scope shows them.
#[derive(Clone)]
pub struct Request<'a> {
    caller: Cow<'a, Caller>,
    /// Its server, once it is [resolved](crate::Host::resolve).
    server: Option<ServerName>,
    method: Cow<'a, str>,
    pub(crate) params: Params,
    /// The member of `params` that names what it is about.
    naming: Result<Naming, NamingError>,
    pub(crate) asked: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) voice: Option<SharedVoice>,
    /// Headers that repeat arguments, for a remote server to look at. Bounded.
    pub(crate) headers: Box<[(String, String)]>,
    /// Who the request speaks for: a client's session, or the parameters themselves.
    speaker: Speaker,
    /// Whether it is about a task whose id was sealed for its caller: beside the
    /// server itself, no rule is asked about the method.
    pub(crate) is_about_own: bool,
    /// The number of the request state that it uses up.
    pub(crate) state: Option<u64>,
    /// Whether a rule hides what it is about. It then meets everything that a
    /// request for a missing item meets, and is never sent.
    pub(crate) is_hidden: bool,
    /// Whether it is sent only to a session that is there, and starts none.
    pub(crate) is_passive: bool,
    /// Whether its caller knows tools by their servers' own names, so that errors name them so.
    pub(crate) has_own_names: bool,
    /// The longest wait for lists where a name or URI is not known.
    pub(crate) patience: Duration,
    /// Whether it named no server.
    pub(crate) is_through_all: bool,
    /// What was in force when it was judged; absent for what the host asks on its own.
    pub(crate) judged_by: Option<Arc<Current>>,
}

impl<'a> Request<'a> {
    /// Any MCP request, with its parameters as they came.
    pub fn new(caller: &'a Caller, method: &'a str, params: Params) -> Self {
        Self {
            caller: Cow::Borrowed(caller),
            server: None,
            method: Cow::Borrowed(method),
            naming: Naming::check(method, &params),
            params,
            asked: Instant::now(),
            deadline: None,
            voice: None,
            headers: Box::default(),
            speaker: Speaker::Host,
            is_about_own: false,
            state: None,
            is_hidden: false,
            is_passive: false,
            has_own_names: false,
            patience: PATIENCE,
            is_through_all: false,
            judged_by: None,
        }
    }

    /// A call of a tool.
    pub fn tool(caller: &'a Caller, tool: &str, arguments: Arguments) -> Result<Self, CallError> {
        let raw: Option<&RawValue> = match &arguments.0 {
            Form::None => None,
            Form::Checked(raw) => Some(raw),
            Form::Text(text) => Some(serde_json::from_slice(text).map_err(|error| bad_arguments(&error))?),
        };
        let params = Params::tool_call(tool, raw).map_err(|error| bad_arguments(&error))?;
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

    /// Names its server.
    pub(crate) fn at(mut self, server: ServerName) -> Self {
        self.server = Some(server);
        self
    }

    /// Gives it the server's own name in place of an exposed one; the member that holds it stays the same.
    pub(crate) fn with_params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// Marks it as one that named no server: a restricted caller is not told which one was asked.
    pub(crate) fn through_all(mut self) -> Self {
        self.is_through_all = true;
        self
    }

    /// Notes the version of policy that it is judged by.
    pub(crate) fn judged_by(mut self, current: &Arc<Current>) -> Self {
        self.judged_by = Some(Arc::clone(current));
        self
    }

    /// Detaches it from its caller, so that it can outlive it.
    pub(crate) fn into_owned(self) -> Request<'static> {
        Request {
            caller: Cow::Owned(self.caller.into_owned()),
            method: Cow::Owned(self.method.into_owned()),
            server: self.server,
            params: self.params,
            naming: self.naming,
            asked: self.asked,
            deadline: self.deadline,
            voice: self.voice,
            headers: self.headers,
            speaker: self.speaker,
            is_about_own: self.is_about_own,
            state: self.state,
            is_hidden: self.is_hidden,
            is_passive: self.is_passive,
            has_own_names: self.has_own_names,
            patience: self.patience,
            is_through_all: self.is_through_all,
            judged_by: self.judged_by,
        }
    }

    /// Waits at most this long for lists where a name or URI is not known.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Gives up after this long, if the server's own limits don't end it before.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        // A time beyond what a clock can count is no limit.
        self.deadline = Instant::now().checked_add(time);
        self
    }

    /// Says that the caller knows tools by their servers' own names: errors name them so, and not `server__tool`.
    #[must_use]
    pub fn by_own_names(mut self) -> Self {
        self.has_own_names = true;
        self
    }

    /// Takes the raw parameters of progress notifications.
    #[must_use]
    pub fn on_progress(mut self, sink: ProgressSink) -> Self {
        self.voice = Some(Arc::new(ProgressOnly(sink)));
        self
    }

    /// Lets the caller hear of the request and answer for it while it is under way.
    #[must_use]
    pub fn with_voice(mut self, voice: SharedVoice) -> Self {
        self.voice = Some(voice);
        self
    }

    /// The parameters come from a modern client: what they say of version,
    /// capabilities and identity is passed on.
    #[must_use]
    pub fn from_modern_client(mut self) -> Self {
        self.speaker = Speaker::Client;
        self
    }

    /// The request comes from a client that has said in its session what it is.
    #[must_use]
    pub fn from_session(mut self, meta: Arc<SessionMeta>) -> Self {
        self.speaker = Speaker::Session(meta);
        self
    }

    /// Passes on what a client's headers say of arguments, to a modern server
    /// behind a URL; others never see them. Only names with `Mcp-Param-` are
    /// taken, 64 of them with values of at most 8 KiB, and what the host says
    /// itself about an argument comes before them.
    #[must_use]
    pub fn with_headers(mut self, headers: Vec<(String, String)>) -> Self {
        let is_fit = |(name, value): &(String, String)| {
            let prefix = name.get(..PARAM_PREFIX.len());
            prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PARAM_PREFIX)) && value.len() <= MAX_VALUE
        };
        self.headers = headers.into_iter().filter(is_fit).take(MAX_HEADERS).collect();
        self
    }

    /// Whose words a modern server reads in `_meta`.
    pub(crate) fn client(&self) -> ClientMeta<'_> {
        match &self.speaker {
            Speaker::Host => ClientMeta::Host,
            Speaker::Client => ClientMeta::Own,
            Speaker::Session(meta) => ClientMeta::Session(meta),
        }
    }

    /// Whether its caller can answer questions of the server.
    pub(crate) fn is_interactive(&self) -> bool {
        self.voice.as_deref().is_some_and(is_interactive)
    }

    /// Whether it speaks for a client, which may be able to do more than the host.
    pub(crate) fn is_for_client(&self) -> bool {
        !matches!(self.speaker, Speaker::Host)
    }

    /// Whether sending it twice can do harm.
    pub(crate) fn kind(&self) -> MethodKind {
        MethodKind::of(&self.method)
    }

    /// What it wants: the one value that rules are asked about, that answers
    /// are kept under, that is recorded, and that the server reads.
    pub(crate) fn wanted(&self) -> Result<Wanted<'_>, CallError> {
        let naming = self.naming.map_err(|error| misnamed(&self.method, error))?;
        let text = || naming.text(&self.params).unwrap_or_default();
        Ok(match naming {
            Naming::Name if self.method == "tools/call" => Wanted::Item(Kind::Tools, text()),
            Naming::Name => Wanted::Item(Kind::Prompts, text()),
            Naming::Uri => Wanted::Item(Kind::Resources, text()),
            Naming::Ref => self.completed()?,
            // What a list shows is filtered, and the others touch nobody else.
            Naming::Cursor if self.method != "tasks/list" => Wanted::Server,
            _ if matches!(&*self.method, "server/discover" | "ping" | "logging/setLevel") => Wanted::Server,
            _ if self.is_about_own => Wanted::Server,
            _ => Wanted::Method(&self.method),
        })
    }

    /// What a completion is for: one prompt or one resource template.
    fn completed(&self) -> Result<Wanted<'_>, CallError> {
        #[derive(Deserialize)]
        struct Reference {
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
        let reference: Reference = serde_json::from_slice(self.params.reference().unwrap_or_default())
            .map_err(|error| invalid(format!("`ref` can't be read: {error}")))?;
        let is_unclear = |key: &String| {
            key.contains(char::is_control)
                || ["type", "name", "uri"].iter().any(|known| ostler_wire::is_alike(known, key))
        };
        if let Some(key) = reference.others.keys().find(|key| is_unclear(key)) {
            return Err(invalid(format!(
                "`ref` has a key `{key}`, which some servers would take for another"
            )));
        }
        let wanted = match (reference.name, reference.uri) {
            (Some(name), None) => Wanted::Item(Kind::Prompts, name.into()),
            (None, Some(uri)) => Wanted::Item(Kind::Templates, uri.into()),
            (None, None) => Wanted::Method(&self.method),
            (Some(_), Some(_)) => return Err(invalid("`ref` has both `name` and `uri`".into())),
        };
        match (reference.r#type.as_deref(), &wanted) {
            (Some("ref/prompt"), Wanted::Item(Kind::Templates, _))
            | (Some("ref/resource"), Wanted::Item(Kind::Prompts, _)) => {
                Err(invalid("`ref` has a `type` that its other members don't fit".into()))
            }
            _ => Ok(wanted),
        }
    }

    /// The tool that is called, if it is a call of one.
    pub(crate) fn tool_name(&self) -> Option<Cow<'_, str>> {
        (self.method == "tools/call").then(|| Naming::Name.text(&self.params).unwrap_or_default())
    }

    /// Whether answers depend on nothing but the item, the arguments and the
    /// page. What a member, an entry of `_meta` or a header means that only the
    /// server knows, only it can say.
    pub(crate) fn is_plain(&self) -> bool {
        let takes_arguments = matches!(self.naming, Ok(Naming::Name));
        !self.params.has_others()
            && self.headers.is_empty()
            && (takes_arguments || self.params.arguments().is_none())
    }

    /// What the breaker counts failures by: the tool, or the method of a request that calls none.
    pub(crate) fn breaker_tool(&self) -> Cow<'_, str> {
        self.tool_name().unwrap_or(Cow::Borrowed(self.method()))
    }

    /// Caller and tool for the breaker; `None` for a list, which passes it.
    pub(crate) fn origin<'b>(&'b self, tool: &'b str) -> Option<Origin<'b>> {
        (!self.is_list()).then(|| Origin { caller: self.caller.principal(), tool })
    }

    /// Whether it only asks what there is.
    pub(crate) fn is_list(&self) -> bool {
        self.method == "server/discover" || Kind::ALL.iter().any(|kind| kind.method() == self.method())
    }

    /// Whether budgets count it. What asks what there is, or to be told of
    /// changes, is free; everything that may make the server work is not,
    /// methods that nobody knows included.
    pub(crate) fn is_counted(&self) -> bool {
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

    /// What it counts as while it is under way.
    pub(crate) fn errand(&self) -> Errand {
        if self.is_counted() { Errand::Call } else { Errand::Look }
    }
}

/// What a request wants of its server, as far as rules are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Nothing that a caller who may see the server could be refused.
    Server,
    /// One item.
    Item(Kind, Cow<'a, str>),
    /// Something that only the server understands.
    Method(&'a str),
}

impl Wanted<'_> {
    /// The name or URI of the item; empty where none is wanted.
    pub(crate) fn subject(&self) -> &str {
        match self {
            Self::Item(_, name) => name,
            Self::Server | Self::Method(_) => "",
        }
    }

    /// Returns how rules are asked about it; `None` where they are asked about the server alone.
    pub(crate) fn as_subject(&self) -> Option<Subject<'_>> {
        match self {
            Self::Server => None,
            Self::Item(kind, name) => Some(kind.subject(name)),
            Self::Method(method) => Some(Subject::Method(method)),
        }
    }

    /// Whether anything can have such a name. Rules are not asked about others.
    pub(crate) fn is_possible(&self) -> bool {
        match self {
            Self::Server => true,
            Self::Item(kind, name) => kind.can_have(name),
            // Sessions are opened by the host alone, and a notification has no answer.
            Self::Method(method) => {
                is_name(method) && *method != "initialize" && !method.starts_with(notify::PREFIX)
            }
        }
    }
}

/// Who a request speaks for, kept for as long as it is under way.
#[derive(Debug, Clone)]
enum Speaker {
    Host,
    Client,
    Session(Arc<SessionMeta>),
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("server", &self.server())
            .field("method", &self.method)
            .field("wanted", &self.wanted())
            .finish_non_exhaustive()
    }
}

/// The arguments of a tool: a JSON object, which is sent byte for byte.
#[derive(Debug, Clone, Default)]
pub struct Arguments(Form);

#[derive(Debug, Clone, Default)]
enum Form {
    #[default]
    None,
    /// Known to be JSON.
    Checked(Arc<RawValue>),
    /// Not looked at yet.
    Text(Bytes),
}

impl Arguments {
    /// No arguments.
    pub fn none() -> Self {
        Self::default()
    }

    /// The text of a JSON object. That it is one is checked when it is used.
    pub fn raw(text: impl Into<Bytes>) -> Self {
        Self(Form::Text(text.into()))
    }
}

impl From<Box<RawValue>> for Arguments {
    fn from(value: Box<RawValue>) -> Self {
        Self(Form::Checked(value.into()))
    }
}

impl From<Arc<RawValue>> for Arguments {
    fn from(value: Arc<RawValue>) -> Self {
        Self(Form::Checked(value))
    }
}

impl From<serde_json::Value> for Arguments {
    fn from(value: serde_json::Value) -> Self {
        match serde_json::value::to_raw_value(&value) {
            Ok(raw) => raw.into(),
            // A value always becomes text; should it not, the check will tell.
            Err(_) => Self::raw(value.to_string()),
        }
    }
}

/// Checks that parameters name one item of a method, as [`Host::send`](crate::Host::send)
/// does. For front ends that answer some methods themselves.
pub fn check_naming(method: &str, params: &Params) -> Result<(), CallError> {
    Naming::check(method, params).map_err(|error| misnamed(method, error)).map(drop)
}

fn misnamed(method: &str, error: NamingError) -> CallError {
    let what = match error {
        NamingError::Stray(member) => format!("`{member}` does not belong to {method}"),
        NamingError::Unreadable(_) => error.to_string(),
    };
    CallError::Invalid { what, hint: "name one item, by the member that the method has for it".into() }
}

fn bad_arguments(why: &dyn std::fmt::Display) -> CallError {
    CallError::Invalid {
        what: format!("the arguments are not a JSON object: {why}"),
        hint: "pass an object such as {\"key\": \"value\"}".into(),
    }
}
