//! `_meta`: the entries we read and the entries we write.

use std::borrow::Cow;

use crate::era::ClientInfo;
use crate::json_string::{push_number, push_string};
use crate::object::select_members;
use crate::params::Params;

/// The entries of `_meta` that we read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaKey {
    /// The modern protocol version of the request.
    ProtocolVersion,
    /// The client's capabilities.
    ClientCapabilities,
    /// The client's declared identity.
    ClientInfo,
    /// The log level the client asks for.
    LogLevel,
    /// The token under which the client wants progress notifications.
    ProgressToken,
    /// The trace that the request belongs to.
    Traceparent,
    /// The key that all attempts of one call share.
    IdempotencyKey,
    /// The task that the request belongs to.
    RelatedTask,
}

impl MetaKey {
    /// All keys, in the order of their discriminants.
    pub const ALL: [MetaKey; 8] = [
        MetaKey::ProtocolVersion,
        MetaKey::ClientCapabilities,
        MetaKey::ClientInfo,
        MetaKey::LogLevel,
        MetaKey::ProgressToken,
        MetaKey::Traceparent,
        MetaKey::IdempotencyKey,
        MetaKey::RelatedTask,
    ];

    /// Returns the key on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            MetaKey::ProtocolVersion => "io.modelcontextprotocol/protocolVersion",
            MetaKey::ClientCapabilities => "io.modelcontextprotocol/clientCapabilities",
            MetaKey::ClientInfo => "io.modelcontextprotocol/clientInfo",
            MetaKey::LogLevel => "io.modelcontextprotocol/logLevel",
            MetaKey::ProgressToken => "progressToken",
            MetaKey::Traceparent => "traceparent",
            MetaKey::IdempotencyKey => "dev.ostler/idempotencyKey",
            MetaKey::RelatedTask => "io.modelcontextprotocol/related-task",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<MetaKey> {
        MetaKey::ALL.into_iter().find(|key| key.name() == name)
    }
}

/// The entries that a request of ours has in `_meta`. Entries set here replace the client's.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMeta<'a> {
    /// The modern session's part; `None` for legacy servers, and where the client's own part is passed on.
    pub session: Option<&'a SessionMeta>,
    /// The key that all attempts of one call share, so that a server can recognize a retry.
    pub idempotency_key: Option<&'a str>,
    /// Our own token. Tokens of different clients collide, so a client's token never goes upstream: it is
    /// replaced by this one, or removed.
    pub progress_token: Option<u64>,
    /// True for a legacy server: the entries in which a modern client describes itself are not sent to it.
    pub is_legacy: bool,
}

impl RequestMeta<'_> {
    fn is_empty(&self) -> bool {
        self.session.is_none() && self.idempotency_key.is_none() && self.progress_token.is_none()
    }

    /// Returns whether an entry of the client must be removed.
    fn is_replaced(&self, key: MetaKey) -> bool {
        match key {
            MetaKey::ProtocolVersion | MetaKey::ClientCapabilities | MetaKey::ClientInfo => {
                self.session.is_some() || self.is_legacy
            }
            MetaKey::IdempotencyKey => self.idempotency_key.is_some(),
            MetaKey::ProgressToken => true,
            MetaKey::LogLevel => self.is_legacy,
            MetaKey::Traceparent | MetaKey::RelatedTask => false,
        }
    }

    /// Returns whether the parameters are sent unchanged.
    pub(crate) fn is_noop_for(&self, params: &Params) -> bool {
        let is_removed = |key: &MetaKey| self.is_replaced(*key) && params.meta_entry(*key).is_some();
        self.is_empty() && (params.meta().is_none() || !MetaKey::ALL.iter().any(is_removed))
    }

    /// Appends the parameters with this `_meta` in them.
    pub(crate) fn write_params(&self, out: &mut Vec<u8>, params: &Params) {
        let raw = params.raw();
        if self.is_noop_for(params) {
            out.extend_from_slice(raw);
            return;
        }
        match params.meta() {
            Some(old) => {
                let start = old.as_ptr() as usize - raw.as_ptr() as usize;
                out.extend_from_slice(&raw[..start]);
                self.write_meta(out, params);
                out.extend_from_slice(&raw[start + old.len()..]);
            }
            None => {
                out.extend_from_slice(b"{\"_meta\":");
                self.write_meta(out, params);
                if params.spans.has_members {
                    out.push(b',');
                }
                out.extend_from_slice(&raw[1..]);
            }
        }
    }

    /// Appends the `_meta` object: our entries, then the client's that stay.
    fn write_meta(&self, out: &mut Vec<u8>, params: &Params) {
        out.push(b'{');
        if let Some(session) = self.session {
            out.extend_from_slice(&session.fragment);
        }
        if let Some(key) = self.idempotency_key {
            push_key(out, MetaKey::IdempotencyKey);
            push_string(out, key);
        }
        if let Some(token) = self.progress_token {
            push_key(out, MetaKey::ProgressToken);
            push_number(out, token);
        }
        for kept in self.kept(params) {
            push_comma(out);
            out.extend_from_slice(kept);
        }
        out.push(b'}');
    }

    /// Returns the client's entries that stay, as runs of text between removed ones.
    fn kept<'p>(&self, params: &'p Params) -> impl Iterator<Item = &'p [u8]> {
        let raw: &'p [u8] = params.raw();
        let (start, end) = match params.meta() {
            Some(meta) if meta.starts_with(b"{") => {
                let start = meta.as_ptr() as usize - raw.as_ptr() as usize;
                (start + 1, start + meta.len() - 1)
            }
            _ => (0, 0),
        };
        let mut removed = MetaKey::ALL.map(|key| {
            let entry = params.spans.entry(key).filter(|_| self.is_replaced(key));
            entry.map_or((end, end), |entry| (entry.whole.start as usize, entry.whole.end as usize))
        });
        removed.sort_unstable();
        let mut from = start;
        removed
            .into_iter()
            .chain([(end, end)])
            .map(move |(start, end)| {
                let run = &raw[from.min(start)..start];
                from = end;
                trim_separators(run)
            })
            .filter(|run| !run.is_empty())
    }
}

/// Trims whitespace and commas from both ends. A run of entries begins with a key's quote and ends with a
/// value, so only separators between entries are trimmed.
fn trim_separators(mut run: &[u8]) -> &[u8] {
    let is_separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
    while let [first, rest @ ..] = run
        && is_separator(first)
    {
        run = rest;
    }
    while let [rest @ .., last] = run
        && is_separator(last)
    {
        run = rest;
    }
    run
}

/// Appends a comma unless the object has just been opened.
fn push_comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

fn push_key(out: &mut Vec<u8>, key: MetaKey) {
    push_comma(out);
    push_string(out, key.name());
    out.push(b':');
}

/// Entries of every request to a modern server for version, capabilities and identity, serialized once per
/// session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMeta {
    /// Three entries of an object, without braces, on one line.
    fragment: Vec<u8>,
}

impl SessionMeta {
    /// Serializes the entries. `capabilities_json` is a JSON object; anything else is sent as `{}`, since
    /// declaring nothing is always safe.
    pub fn modern(version: &str, capabilities_json: &str, client: &ClientInfo) -> SessionMeta {
        let mut fragment = Vec::new();
        // The first entry has no comma in front of it.
        push_string(&mut fragment, MetaKey::ProtocolVersion.name());
        fragment.push(b':');
        push_string(&mut fragment, version);
        push_key(&mut fragment, MetaKey::ClientCapabilities);
        fragment.extend_from_slice(object_on_one_line(capabilities_json).as_bytes());
        push_key(&mut fragment, MetaKey::ClientInfo);
        push_client_info(&mut fragment, client);
        SessionMeta { fragment }
    }

    /// Adds the log level the client asks for.
    #[must_use]
    pub fn with_log_level(mut self, level: &str) -> SessionMeta {
        push_key(&mut self.fragment, MetaKey::LogLevel);
        push_string(&mut self.fragment, level);
        self
    }
}

/// Returns `json` on one line if it is an object, else an empty object.
pub(crate) fn object_on_one_line(json: &str) -> Cow<'_, str> {
    match select_members(json.as_bytes(), &[]) {
        Ok([]) if json.contains(['\n', '\r']) => Cow::Owned(json.replace(['\n', '\r'], " ")),
        Ok([]) => Cow::Borrowed(json),
        Err(_) => Cow::Borrowed("{}"),
    }
}

/// Appends `clientInfo`'s value.
pub(crate) fn push_client_info(out: &mut Vec<u8>, client: &ClientInfo) {
    out.extend_from_slice(b"{\"name\":");
    push_string(out, &client.name);
    out.extend_from_slice(b",\"version\":");
    push_string(out, &client.version);
    out.push(b'}');
}
