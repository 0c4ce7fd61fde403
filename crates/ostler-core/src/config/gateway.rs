//! `[gateway]`: what MCP clients may do at the endpoints.

use std::time::Duration;

use super::field::{Field, Kind, Preset, Section};
use super::node::Node;
use super::reader::Reader;
use super::secret::quote;

/// What MCP clients may do at the endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// The longest message of a client, in bytes.
    pub max_body: usize,
    /// Sessions of legacy clients at once.
    pub max_sessions: usize,
    /// How long such a session outlives its last use.
    pub session_idle: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Hosts that are served beside loopback: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may ask beside those of loopback: `scheme://name[:port]`.
    pub allowed_origins: Vec<String>,
    /// How long a list over all servers waits for one of them.
    pub list_patience: Duration,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            max_body: 4 << 20,
            max_sessions: 10_000,
            session_idle: Duration::from_secs(30 * 60),
            max_connections: 1_024,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            list_patience: Duration::from_secs(10),
        }
    }
}

pub(crate) static SECTION: Section = Section {
    name: "gateway",
    doc: "What MCP clients may do at the endpoints.",
    fields: &[
        Field {
            key: "max_body",
            kind: Kind::Size(1 << 10),
            preset: Preset::Text("4MiB"),
            doc: "The longest message of a client.",
        },
        Field {
            key: "max_sessions",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Count(10_000),
            doc: "Sessions of legacy clients at once; the longest idle one makes room.",
        },
        Field {
            key: "session_idle",
            kind: Kind::Duration(1_000),
            preset: Preset::Text("30m"),
            doc: "How long such a session outlives its last use.",
        },
        Field {
            key: "max_connections",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Count(1_024),
            doc: "Connections at once; the longest idle one makes room.",
        },
        Field {
            key: "allowed_hosts",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "Values of the Host header that are served beside loopback: a name, or a name with a port.",
        },
        Field {
            key: "allowed_origins",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "Origins whose pages may ask beside those of loopback, such as https://app.example.",
        },
        Field {
            key: "list_patience",
            kind: Kind::Duration(1),
            preset: Preset::Text("10s"),
            doc: "How long a list over all servers waits for one of them.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> Gateway {
    let default = Gateway::default();
    let gateway = Gateway {
        max_body: reader.size("max_body").unwrap_or(default.max_body),
        max_sessions: reader.size_count("max_sessions").unwrap_or(default.max_sessions),
        session_idle: reader.duration("session_idle").unwrap_or(default.session_idle),
        max_connections: reader.size_count("max_connections").unwrap_or(default.max_connections),
        allowed_hosts: checked(&reader, "allowed_hosts", host_error),
        allowed_origins: checked(&reader, "allowed_origins", origin_error),
        list_patience: reader.duration("list_patience").unwrap_or(default.list_patience),
    };
    reader.finish();
    gateway
}

/// The texts of a list; those that could never match anything are reported.
fn checked(reader: &Reader<'_>, key: &'static str, error: fn(&str) -> Option<&'static str>) -> Vec<String> {
    let is_good = |(text, node): &(&str, &Node)| match error(text) {
        None => true,
        Some(hint) => {
            let path = reader.path_of(key);
            reader.scope.error(node.at, &path, format!("`{path}` can't hold {}", quote(text)), hint);
            false
        }
    };
    let texts = reader.texts(key).unwrap_or_default();
    texts.into_iter().filter(is_good).map(|(text, _)| text.to_owned()).collect()
}

fn host_error(text: &str) -> Option<&'static str> {
    let is_host = !text.is_empty() && !text.contains(|c: char| c == '/' || c.is_whitespace());
    match (is_host, text.contains('*')) {
        (true, false) => None,
        (_, true) => Some("write every name out; there are no patterns here"),
        (false, _) => Some("write a name such as \"box.example\" or \"box.example:7777\""),
    }
}

fn origin_error(text: &str) -> Option<&'static str> {
    if text.contains('*') {
        return Some("write every origin out; there are no patterns here");
    }
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains(|c: char| c == '/' || c.is_whitespace())
    });
    (!is_origin).then_some("write a scheme and a name without a path, such as \"https://app.example\"")
}
