//! `[gateway]`: limits of MCP clients at the endpoints.

use std::time::Duration;

use crate::config::keys::section::section;
use crate::config::read::{ConfigNode, SectionReader};
use crate::config::values::secret_literals::quote;

section! {
    /// Limits of MCP clients at the endpoints.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GatewayConfig("gateway", default) {
        /// Longest message of a client.
        max_body: usize = size(1_024.., "4MiB");
        /// Sessions of legacy clients at once; the longest idle one is evicted.
        max_sessions: usize = count(1.., 10_000);
        /// Time such a session outlives its last use.
        session_idle: Duration = duration(1_000.., "30m");
        /// Connections at once; the longest idle one is evicted.
        max_connections: usize = count(1.., 1_024);
        /// Values of the Host header that are served beside loopback: a name, or a name with a port.
        allowed_hosts: Vec<String> = texts([]) => hosts;
        /// Origins whose pages may send requests beside those of loopback, such as https://app.example.
        allowed_origins: Vec<String> = texts([]) => origins;
        /// Time a list over all servers waits for one of them.
        list_patience: Duration = duration(1.., "10s");
    }
}

fn hosts(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    read_checked(reader, key, host_error)
}

fn origins(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    read_checked(reader, key, origin_error)
}

/// Returns the checked texts of a list; those that could never match anything are reported.
fn read_checked(
    reader: &SectionReader<'_>,
    key: &'static str,
    error: fn(&str) -> Option<&'static str>,
) -> Option<Vec<String>> {
    let is_good = |(text, node): &(&str, &ConfigNode)| match error(text) {
        None => true,
        Some(hint) => {
            let path = reader.key_path(key);
            reader.context.error(node.span, &path, format!("`{path}` can't hold {}", quote(text)), hint);
            false
        }
    };
    let texts = reader.texts(key)?;
    Some(texts.into_iter().filter(is_good).map(|(text, _)| text.to_owned()).collect())
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
