//! Server card (SEP-2127): a server's published description of itself, available before a connection.
//!
//! A card is shown to people and compared with the running server. It is never a reason to trust a server,
//! and none of its text reaches a client.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::truncate;
use crate::server_name::ServerName;

/// Media type of a card.
pub const MEDIA_TYPE: &str = "application/mcp-server-card+json";
/// Schema of a card of our own.
pub const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json";
/// Last segment of a card's address, after that of the endpoint.
pub const PATH: &str = "server-card";
/// Longest document that is read.
pub const MAX_BYTES: usize = 1 << 20;

/// Time a card is kept unless its response says otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(5 * 60);
/// Longest time that a response may ask for.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest text of a card, in bytes. The schema allows less; a card is kept in memory, so there is a limit.
const MAX_TEXT: usize = 2_048;
/// Most remotes of a card, headers of a remote, and protocol versions of a remote.
const MAX_ITEMS: usize = 32;
/// Longest text of a card in a difference, in characters.
const MAX_QUOTED: usize = 80;
/// Length limits of `name` in the schema.
const NAME_LENGTH: std::ops::RangeInclusive<usize> = 3..=200;

/// A server's card. Icons, variables and `_meta` are not kept: nothing displays them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServerCard {
    /// The schema it conforms to.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Its name in reverse-DNS form, such as `com.example/weather`.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The server's purpose.
    pub description: String,
    /// The server's version.
    pub version: String,
    /// Its home page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// The location of its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
    /// Its endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<Remote>,
}

/// The source of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repository {
    /// Address for a browser.
    pub url: String,
    /// The hosting service, such as `github`.
    pub source: String,
}

/// An endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Remote {
    /// `streamable-http` or `sse`.
    #[serde(rename = "type")]
    pub transport: String,
    /// Its address, possibly with `{variables}`.
    pub url: String,
    /// Revisions of MCP that it supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_protocol_versions: Vec<String>,
    /// Headers that it requires or accepts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<RemoteHeader>,
}

/// A header of an endpoint. Values are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoteHeader {
    /// Its name.
    pub name: String,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if the endpoint requires it.
    #[serde(default)]
    pub is_required: bool,
    /// True if its value is a secret.
    #[serde(default)]
    pub is_secret: bool,
}

/// A card and its differences from the running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardReport {
    /// The operator's name for the server.
    pub server: ServerName,
    /// The file or address it was read from, without secrets.
    pub source: String,
    /// Age of the reading, in seconds.
    pub seconds_ago: u64,
    /// True if a running server was available for comparison.
    pub compared: bool,
    /// Differences of the running server from the card.
    pub differences: Vec<String>,
    /// The card.
    pub card: ServerCard,
}

/// The part of a card that is part of a server's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CardStatus {
    /// Its name in reverse-DNS form.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// The server's purpose.
    pub description: String,
    /// The server's version.
    pub version: String,
    /// Age of the reading, in seconds.
    pub seconds_ago: u64,
    /// Differences of the running server from the card.
    pub differences: Vec<String>,
}

impl From<CardReport> for CardStatus {
    fn from(report: CardReport) -> Self {
        let CardReport { seconds_ago, differences, card, .. } = report;
        let ServerCard { name, title, description, version, .. } = card;
        Self { name, title, description, version, seconds_ago, differences }
    }
}

/// Reason why a document is no card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardParseError(String);

impl fmt::Display for CardParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CardParseError {}

impl ServerCard {
    /// Parses a card of at most [`MAX_BYTES`].
    pub fn parse(text: &[u8]) -> Result<Self, CardParseError> {
        if text.len() > MAX_BYTES {
            return Err(CardParseError(format!("it is longer than {MAX_BYTES} bytes")));
        }
        let document: Value = serde_json::from_slice(text)
            .map_err(|error| CardParseError(format!("it is no card: it is not JSON ({error})")))?;
        let found = match &document {
            Value::Object(_) => None,
            Value::Array(_) => Some("a list"),
            Value::String(_) => Some("a text"),
            Value::Number(_) => Some("a number"),
            Value::Bool(_) | Value::Null => Some("a single word"),
        };
        if let Some(found) = found {
            return Err(CardParseError(format!("it is no card: it holds {found} in place of a JSON object")));
        }
        let card: Self = serde_json::from_value(document)
            .map_err(|error| CardParseError(format!("it is no card: {error}")))?;
        card.check()?;
        Ok(card)
    }

    fn check(&self) -> Result<(), CardParseError> {
        let has_name = self.name.split_once('/').is_some_and(|(namespace, name)| {
            let is_made_of = |text: &str, others: &str| {
                !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
            };
            is_made_of(namespace, ".-") && is_made_of(name, "._-")
        });
        if !has_name || !NAME_LENGTH.contains(&self.name.len()) {
            return Err(CardParseError("its `name` is no name such as `com.example/weather`".into()));
        }
        if let Some((key, _)) = [("description", &self.description), ("version", &self.version)]
            .into_iter()
            .find(|(_, text)| text.is_empty())
        {
            return Err(CardParseError(format!("its `{key}` is empty")));
        }
        let repository = self.repository.iter().flat_map(|it| [&it.url, &it.source]);
        let remotes = self.remotes.iter().flat_map(|remote| {
            let headers = remote
                .headers
                .iter()
                .flat_map(|header| std::iter::once(&header.name).chain(&header.description));
            [&remote.transport, &remote.url]
                .into_iter()
                .chain(&remote.supported_protocol_versions)
                .chain(headers)
        });
        let own = [&self.name, &self.description, &self.version].into_iter();
        let own = own.chain(&self.schema).chain(&self.title).chain(&self.website_url);
        if own.chain(repository).chain(remotes).any(|text| text.len() > MAX_TEXT) {
            return Err(CardParseError(format!("one of its texts is longer than {MAX_TEXT} bytes")));
        }
        let is_long = |remote: &Remote| {
            remote.headers.len() > MAX_ITEMS || remote.supported_protocol_versions.len() > MAX_ITEMS
        };
        if self.remotes.len() > MAX_ITEMS || self.remotes.iter().any(is_long) {
            return Err(CardParseError(format!("one of its lists has more than {MAX_ITEMS} items")));
        }
        Ok(())
    }

    /// Compares the card with the `serverInfo` of the running server, its protocol version and its address.
    pub fn differences(&self, running: Option<&[u8]>, protocol: &str, url: Option<&str>) -> Vec<String> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct RunningServerInfo {
            name: Option<String>,
            title: Option<String>,
            version: Option<String>,
        }
        let running: RunningServerInfo =
            running.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
        let short = self.name.rsplit('/').next().unwrap_or_default();
        let mut found = Vec::new();
        let mut compare = |key: &str, card: &str, running: Option<String>, is_same: bool| {
            // An empty text says nothing.
            if let Some(running) = running.filter(|running| !is_same && !running.is_empty()) {
                found.push(format!(
                    "the card says {key} `{}`, the server says `{}`",
                    truncate(card, MAX_QUOTED),
                    truncate(&running, MAX_QUOTED)
                ));
            }
        };
        let is_name = running.name.as_deref().is_some_and(|name| name == self.name || name == short);
        compare("name", &self.name, running.name, is_name);
        let is_version = running.version.as_deref() == Some(&self.version);
        compare("version", &self.version, running.version, is_version);
        if let Some(title) = &self.title {
            let is_title = running.title.as_deref() == Some(title);
            compare("title", title, running.title, is_title);
        }
        let Some(url) = url.filter(|_| !self.remotes.is_empty()) else { return found };
        let is_template = |remote: &Remote| remote.url.contains('{');
        let plain =
            |url: &str| url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned();
        match self.remotes.iter().find(|remote| plain(&remote.url) == plain(url)) {
            Some(remote) => {
                let spoken = &remote.supported_protocol_versions;
                if !spoken.is_empty() && !spoken.iter().any(|version| version == protocol) {
                    found.push(format!("the card does not list MCP {protocol}, which the server speaks"));
                }
            }
            None if self.remotes.iter().any(is_template) => {}
            None => found.push("the `remotes` of the card do not have the `url` of the server".into()),
        }
        found
    }
}

/// Returns whether the `card` of a config is an address, and not a file.
pub fn is_url(card: &str) -> bool {
    card.starts_with("https://") || card.starts_with("http://")
}

/// Returns the time a response may be kept, by its `Cache-Control`; `None` if it may not be kept.
pub fn cache_ttl<'a>(cache_control: impl Iterator<Item = &'a str>) -> Option<Duration> {
    let mut life = DEFAULT_TTL;
    for directive in cache_control.flat_map(|value| value.split(',')) {
        let (key, value) = directive.split_once('=').unwrap_or((directive, ""));
        match key.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return None,
            "max-age" => {
                // An unreadable number counts as expired (RFC 9111, section 4.2.1).
                let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                life = Duration::from_secs(seconds).min(MAX_TTL);
            }
            _ => {}
        }
    }
    Some(life).filter(|life| !life.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "$schema": SCHEMA, "name": "com.example/weather", "version": "1.2.0", "title": "Weather",
            "description": "Tells the weather.", "websiteUrl": "https://example.com",
            "repository": {"url": "https://example.com/git", "source": "git", "id": "7"},
            "icons": [{"src": "data:image/png;base64,AAAA"}],
            "remotes": [{
                "type": "streamable-http", "url": "https://example.com/mcp",
                "supportedProtocolVersions": ["2026-07-28"],
                "headers": [{"name": "Authorization", "isSecret": true, "value": "Bearer {token}"}],
            }],
            "_meta": {"com.example/x": 1},
        })
    }

    fn read(card: &Value) -> Result<ServerCard, String> {
        ServerCard::parse(card.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_card_is_read_without_what_nothing_shows() {
        let card = read(&whole()).unwrap();
        assert_eq!((card.name.as_str(), card.remotes.len()), ("com.example/weather", 1));
        let text = serde_json::to_string(&card).unwrap();
        for absent in ["icons", "_meta", "Bearer"] {
            assert!(!text.contains(absent), "{text}");
        }
        let smallest = json!({"name": "a/b", "version": "1", "description": "x"});
        assert_eq!(read(&smallest).unwrap().remotes, []);
    }

    #[test]
    fn what_is_no_card_is_told_with_its_reason() {
        let with = |key: &str, value: Value| {
            let mut card = whole();
            card[key] = value;
            read(&card).unwrap_err()
        };
        let without = |key: &str| {
            let mut card = whole();
            card.as_object_mut().unwrap().remove(key);
            read(&card).unwrap_err()
        };
        for key in ["name", "version", "description"] {
            assert!(without(key).contains(&format!("missing field `{key}`")), "{key}");
        }
        for name in ["weather", "a/b/c", "/b", "a/", "a b/c", "com.example/\u{1b}[2J", ""] {
            assert!(with("name", json!(name)).contains("`name`"), "{name}");
        }
        assert_eq!(with("version", json!("")), "its `version` is empty");
        assert!(with("description", json!("x".repeat(MAX_TEXT + 1))).contains("longer than"));
        assert!(with("remotes", json!(vec![whole()["remotes"][0].clone(); MAX_ITEMS + 1])).contains("items"));
        assert!(with("remotes", json!("none")).starts_with("it is no card: invalid type"));
        let deep = format!("{{\"_meta\":{}", "[".repeat(100_000));
        for rubbish in ["", "[]", "null", "<html>", &deep] {
            let error = ServerCard::parse(rubbish.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("it is no card"), "{error}");
        }
        assert!(ServerCard::parse(&vec![b' '; MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn a_document_that_is_no_object_is_told_in_words() {
        let error = |text: &str| ServerCard::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("[]"), "it is no card: it holds a list in place of a JSON object");
        assert_eq!(error("\"weather\""), "it is no card: it holds a text in place of a JSON object");
        assert!(error("weather").starts_with("it is no card: it is not JSON ("), "{}", error("weather"));
    }

    #[test]
    fn the_running_server_is_compared_in_what_both_say() {
        let card = read(&whole()).unwrap();
        let found =
            |running: &str, url: Option<&str>| card.differences(Some(running.as_bytes()), "2026-07-28", url);
        let url = Some("https://example.com/mcp");
        for same in [
            r#"{"name":"weather","version":"1.2.0"}"#,
            r#"{"name":"com.example/weather","title":"Weather"}"#,
            r#"{"name":"weather","version":"","title":""}"#,
            "{}",
            "rubbish",
        ] {
            assert_eq!(found(same, url), Vec::<String>::new(), "{same}");
        }
        assert_eq!(
            found(r#"{"name":"other","version":"2","title":"T"}"#, url),
            [
                "the card says name `com.example/weather`, the server says `other`",
                "the card says version `1.2.0`, the server says `2`",
                "the card says title `Weather`, the server says `T`",
            ]
        );
        assert_eq!(found("{}", Some("https://example.com/mcp/?key=1")).len(), 0);
        assert!(found("{}", Some("https://other.example/mcp"))[0].contains("`remotes`"));
        assert_eq!(found("{}", None).len(), 0, "a program has no address");
        assert!(card.differences(None, "2025-11-25", url)[0].contains("does not list MCP 2025-11-25"));
        assert!(found(&json!({"name": "x".repeat(500)}).to_string(), url)[0].len() < 300);
    }

    #[test]
    fn cache_control_tells_how_long_a_card_is_kept() {
        let seconds = |values: &[&str]| cache_ttl(values.iter().copied()).map(|life| life.as_secs());
        let table: [(&[&str], _); 12] = [
            (&[], Some(300)),
            (&["public"], Some(300)),
            (&["public, max-age=3600"], Some(3_600)),
            (&["private", "Max-Age = 60"], Some(60)),
            (&["max-age=\"7\""], Some(7)),
            (&["max-age=0"], None),
            (&["max-age=soon"], None),
            (&["max-age=99999999999999999999999"], None),
            (&["max-age=999999999"], Some(86_400)),
            (&["no-store"], None),
            (&["max-age=60, No-Cache"], None),
            (&["s-maxage=9"], Some(300)),
        ];
        for (values, expected) in table {
            assert_eq!(seconds(values), expected, "{values:?}");
        }
    }
}
