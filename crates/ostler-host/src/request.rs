//! What a caller asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::repeat::MethodKind;
use ostler_wire::headers::PARAM_PREFIX;
use ostler_wire::{Params, SessionMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::lists::Kind;
use crate::tally::Errand;
use crate::upstream::{ClientMeta, ProgressOnly, ProgressSink, SharedVoice, is_interactive};

/// Headers that are passed on with one request: more than any tool has marked arguments.
const MAX_HEADERS: usize = 64;
/// The longest value; servers commonly take no more in all of their headers.
const MAX_VALUE: usize = 8 << 10;

/// One request of a caller to one server.
#[derive(Clone)]
pub struct Request<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) server: &'a str,
    pub(crate) method: &'a str,
    pub(crate) params: Params,
    pub(crate) asked: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) voice: Option<SharedVoice>,
    /// Headers that repeat arguments, for a remote server to look at. Bounded.
    pub(crate) headers: Box<[(String, String)]>,
    /// Who the request speaks for: a client's session, or the parameters themselves.
    speaker: Speaker,
    /// Whether somebody has made sure that what it is about is the caller's own.
    is_vouched_for: bool,
}

impl<'a> Request<'a> {
    /// Any MCP request, with its parameters as they came.
    pub fn new(caller: &'a Caller, server: &'a str, method: &'a str, params: Params) -> Self {
        Self {
            caller,
            server,
            method,
            params,
            asked: Instant::now(),
            deadline: None,
            voice: None,
            headers: Box::default(),
            speaker: Speaker::Host,
            is_vouched_for: false,
        }
    }

    /// A call of a tool.
    pub fn tool(
        caller: &'a Caller,
        server: &'a str,
        tool: &str,
        arguments: Arguments,
    ) -> Result<Self, CallError> {
        let raw: Option<&RawValue> = match &arguments.0 {
            Form::None => None,
            Form::Checked(raw) => Some(raw),
            Form::Text(text) => Some(serde_json::from_slice(text).map_err(|error| bad_arguments(&error))?),
        };
        let params = Params::tool_call(tool, raw).map_err(|error| bad_arguments(&error))?;
        Ok(Self::new(caller, server, "tools/call", params))
    }

    /// Gives up after this long, if the server's own limits don't end it before.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        // A time beyond what a clock can count is no limit.
        self.deadline = Instant::now().checked_add(time);
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

    /// What it is about is known to be the caller's own, such as a task whose
    /// id was handed out to this caller: beside the server itself, no rule is
    /// asked about the method.
    #[must_use]
    pub fn about_own(mut self) -> Self {
        self.is_vouched_for = true;
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
        match self.method {
            "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/get"
            | "server/discover" => MethodKind::Read,
            _ => MethodKind::Call,
        }
    }

    /// What rules are asked about before it is sent.
    pub(crate) fn wanted(&self) -> Result<Wanted<'_>, CallError> {
        Ok(match self.method {
            "tools/call" => Wanted::Item(Kind::Tools, self.params.name().unwrap_or_default()),
            "prompts/get" => Wanted::Item(Kind::Prompts, self.params.name().unwrap_or_default()),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                // What we can't read a server might, and no rule was asked about that.
                let uri = self.params.uri().ok_or_else(|| CallError::Invalid {
                    what: "`uri` is missing or not a string".into(),
                    hint: "name one resource".into(),
                })?;
                Wanted::Item(Kind::Resources, uri)
            }
            "completion/complete" => self.completed()?,
            // What a list shows is filtered, and the others touch nobody else.
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => Wanted::Server,
            "server/discover" | "ping" | "logging/setLevel" => Wanted::Server,
            _ if self.is_vouched_for => Wanted::Server,
            method => Wanted::Method(method),
        })
    }

    /// What a completion is for. A reference that names a prompt and a resource
    /// needs both, for the server may read either.
    fn completed(&self) -> Result<Wanted<'_>, CallError> {
        #[derive(Deserialize)]
        struct Completion {
            r#ref: Option<Reference>,
        }
        #[derive(Deserialize)]
        struct Reference {
            name: Option<String>,
            uri: Option<String>,
            #[serde(flatten)]
            others: BTreeMap<String, IgnoredAny>,
        }
        let completion: Completion =
            serde_json::from_slice(self.params.raw()).map_err(|error| CallError::Invalid {
                what: format!("`ref` can't be read: {error}"),
                hint: "name one prompt or one resource template".into(),
            })?;
        let Some(Reference { name, uri, others }) = completion.r#ref else {
            return Ok(Wanted::Method(self.method));
        };
        let is_alike = |key: &String| ["name", "uri"].iter().any(|known| ostler_wire::is_alike(known, key));
        if let Some(key) = others.keys().find(|key| is_alike(key)) {
            return Err(CallError::Invalid {
                what: format!("`ref` has a key `{key}`, which some servers would take for another"),
                hint: "its keys are `type`, `name` and `uri`".into(),
            });
        }
        Ok(match (uri, name) {
            (Some(uri), None) => Wanted::Item(Kind::Templates, uri.into()),
            (None, Some(name)) => Wanted::Item(Kind::Prompts, name.into()),
            (Some(uri), Some(name)) => Wanted::Either { prompt: name, template: uri },
            (None, None) => Wanted::Method(self.method),
        })
    }

    /// The tool that is called, if it is a call of one.
    pub(crate) fn tool_name(&self) -> Option<Cow<'_, str>> {
        (self.method == "tools/call").then(|| self.params.name().unwrap_or_default())
    }

    /// Whether it only asks what there is.
    pub(crate) fn is_list(&self) -> bool {
        self.method == "server/discover" || self.method.ends_with("/list")
    }

    /// Whether budgets count it. What asks what there is, or to be told of
    /// changes, is free; everything that may make the server work is not,
    /// methods that nobody knows included.
    pub(crate) fn is_counted(&self) -> bool {
        let is_free = matches!(
            self.method,
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

    /// The tool, prompt or resource that is meant.
    pub(crate) fn subject(&self) -> Cow<'_, str> {
        self.params.name().or_else(|| self.params.uri()).unwrap_or_default()
    }
}

/// What a request wants of its server, as far as rules are concerned.
#[derive(Debug)]
pub(crate) enum Wanted<'a> {
    /// Nothing that a caller who may see the server could be refused.
    Server,
    /// One item.
    Item(Kind, Cow<'a, str>),
    /// Whichever of the two the server takes the request to mean.
    Either { prompt: String, template: String },
    /// Something that only the server understands.
    Method(&'a str),
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
            .field("server", &self.server)
            .field("method", &self.method)
            .field("subject", &self.subject())
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

fn bad_arguments(why: &dyn std::fmt::Display) -> CallError {
    CallError::Invalid {
        what: format!("the arguments are not a JSON object: {why}"),
        hint: "pass an object such as {\"key\": \"value\"}".into(),
    }
}
