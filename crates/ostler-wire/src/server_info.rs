//! The server's description of itself, from the handshake.

use bytes::Bytes;

use crate::era::{ClientInfo, Era, LEGACY_VERSIONS, MODERN_VERSION};
use crate::json_string::{decode_string, decode_string_lossy, push_string};
use crate::meta::SessionMeta;
use crate::object::{for_each_member, is_object, select_members};

/// The key in a result's `_meta` under which modern servers put their identity.
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Outcome of a handshake. Its texts are copies, so that it does not keep the server's line alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The era of the session.
    pub era: Era,
    /// The revision agreed on.
    pub version: String,
    /// The server's raw capabilities, always an object.
    pub capabilities: Bytes,
    /// The raw `serverInfo`, if the server sent one. Never a source of names.
    pub implementation: Option<Bytes>,
    /// The server's advice on how to use it.
    pub instructions: Option<Instructions>,
    /// The entries of `_meta` in every request to this server; `Some` in the modern era.
    pub session_meta: Option<SessionMeta>,
}

/// A server's advice on how to use it, as the server has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions(Bytes);

impl Instructions {
    /// Takes the text of a JSON value; `None` if it is no string.
    pub fn from_json(raw: &str) -> Option<Self> {
        decode_string_lossy(raw).map(|_| Self(Bytes::copy_from_slice(raw.as_bytes())))
    }

    /// Writes a text as a JSON string.
    pub fn from_text(text: &str) -> Self {
        let mut raw = Vec::new();
        push_string(&mut raw, text);
        Self(raw.into())
    }

    /// Returns the JSON string, quotes included, byte for byte.
    pub fn raw(&self) -> &Bytes {
        &self.0
    }

    /// Decodes the text, for people and for pins. A lone surrogate becomes U+FFFD.
    pub fn text(&self) -> String {
        self.as_str().and_then(decode_string_lossy).unwrap_or_default()
    }

    /// Returns the text between the quotes, for use inside another JSON string. It is written anew only if no
    /// client could read it.
    pub fn json_fragment(&self) -> Bytes {
        let inner = |raw: &Bytes| raw.slice(1..raw.len() - 1);
        match self.as_str().and_then(decode_string) {
            Some(_) => inner(&self.0),
            None => inner(&Self::from_text(&self.text()).0),
        }
    }

    fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl ServerInfo {
    /// Returns whether the server declares a capability, named by its path (`tools`, `tools.listChanged`). A
    /// capability counts if it is present and neither `false` nor `null`. Keys may contain dots themselves,
    /// as extensions' do.
    pub fn has_capability(&self, path: &str) -> bool {
        has_capability(&self.capabilities, path)
    }
}

/// Returns whether the JSON text of capabilities, of a server or a client, declares one by its path; see
/// [`ServerInfo::has_capability`].
pub fn has_capability(capabilities: &[u8], path: &str) -> bool {
    capabilities.len() > 2 && std::str::from_utf8(capabilities).is_ok_and(|text| has_path(text, path))
}

/// Returns the capability that a client must declare to receive requests of this method.
pub fn required_client_capability(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

/// Returns whether a client's capabilities include one that allows requests from servers.
pub fn may_receive_requests(capabilities: &[u8]) -> bool {
    ["elicitation", "sampling", "roots"].iter().any(|path| has_capability(capabilities, path))
}

fn has_path(object: &str, path: &str) -> bool {
    let mut is_found = false;
    let walked = for_each_member(object, |key, value| {
        let Some(rest) = path.strip_prefix(&*key.text()) else { return };
        is_found |= match rest.strip_prefix('.') {
            Some(rest) => is_object(value.as_bytes()) && has_path(value, rest),
            None => rest.is_empty() && !matches!(value, "false" | "null"),
        };
    });
    walked.is_ok() && is_found
}

/// Parsed result of `server/discover`.
pub(crate) enum DiscoverOutcome {
    Modern(ServerInfo),
    /// The versions the server supports, ours not among them.
    OtherVersions(Vec<String>),
    /// Not a discover result.
    NotDiscoverResult,
}

/// Parses the result of `server/discover`.
pub(crate) fn parse_discover_result(raw: &[u8], capabilities: &str, client: &ClientInfo) -> DiscoverOutcome {
    let keys = ["supportedVersions", "capabilities", "serverInfo", "instructions", "_meta"];
    let Ok([Some(versions), offered, server, instructions, meta]) = select_members(raw, &keys) else {
        return DiscoverOutcome::NotDiscoverResult;
    };
    let Ok(versions) = serde_json::from_str::<Vec<String>>(versions) else {
        return DiscoverOutcome::NotDiscoverResult;
    };
    if !versions.iter().any(|version| version == MODERN_VERSION) {
        return DiscoverOutcome::OtherVersions(versions);
    }
    let server = server.or_else(|| select_members(meta?.as_bytes(), &[SERVER_INFO_KEY]).ok()?[0]);
    DiscoverOutcome::Modern(ServerInfo {
        era: Era::Modern,
        version: MODERN_VERSION.to_owned(),
        capabilities: object_or_empty(offered),
        implementation: server.and_then(object),
        instructions: instructions.and_then(Instructions::from_json),
        session_meta: Some(SessionMeta::modern(MODERN_VERSION, capabilities, client)),
    })
}

/// Parsed result of `initialize`.
pub(crate) enum InitializeOutcome {
    Legacy(ServerInfo),
    /// The version the server chose, none of ours.
    OtherVersion(String),
    /// Not an initialize result.
    NotInitializeResult,
}

/// Parses the result of `initialize`.
pub(crate) fn parse_initialize_result(raw: &[u8]) -> InitializeOutcome {
    let keys = ["protocolVersion", "capabilities", "serverInfo", "instructions"];
    let Ok([Some(version), offered, server, instructions]) = select_members(raw, &keys) else {
        return InitializeOutcome::NotInitializeResult;
    };
    let Some(version) = decode_string_lossy(version) else { return InitializeOutcome::NotInitializeResult };
    if !LEGACY_VERSIONS.contains(&version.as_str()) {
        return InitializeOutcome::OtherVersion(version);
    }
    InitializeOutcome::Legacy(ServerInfo {
        era: Era::Legacy,
        version,
        capabilities: object_or_empty(offered),
        implementation: server.and_then(object),
        instructions: instructions.and_then(Instructions::from_json),
        session_meta: None,
    })
}

/// Returns `data.supported` of an error, if it is there.
pub(crate) fn supported_versions(error: &[u8]) -> Option<Vec<String>> {
    let [data] = select_members(error, &["data"]).ok()?;
    let [supported] = select_members(data?.as_bytes(), &["supported"]).ok()?;
    serde_json::from_str(supported?).ok()
}

fn object(raw: &str) -> Option<Bytes> {
    is_object(raw.as_bytes()).then(|| Bytes::copy_from_slice(raw.as_bytes()))
}

fn object_or_empty(raw: Option<&str>) -> Bytes {
    raw.and_then(object).unwrap_or_else(|| Bytes::from_static(b"{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_by_their_path() {
        let raw = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":false},"logging":null,
            "extensions":{"io.modelcontextprotocol/tasks":{"list":{}}}}"#;
        let result = format!(r#"{{"protocolVersion":"2024-11-05","capabilities":{raw}}}"#);
        let InitializeOutcome::Legacy(info) = parse_initialize_result(result.as_bytes()) else {
            panic!("a server info")
        };
        let table = [
            ("tools", true),
            ("tools.listChanged", true),
            ("tools.", false),
            ("tool", false),
            ("prompts", true),
            ("prompts.listChanged", false),
            ("logging", false),
            ("extensions.io.modelcontextprotocol/tasks", true),
            ("extensions.io.modelcontextprotocol/tasks.list", true),
            ("extensions.io.modelcontextprotocol/tasks.cancel", false),
            ("", false),
        ];
        for (path, is_there) in table {
            assert_eq!(info.has_capability(path), is_there, "{path}");
        }
    }

    #[test]
    fn the_identity_is_found_in_both_places() {
        let client = ClientInfo { name: "c".into(), version: "1".into() };
        for text in [
            r#"{"supportedVersions":["2026-07-28"],"serverInfo":{"name":"s"}}"#,
            r#"{"supportedVersions":["2026-07-28"],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        ] {
            let DiscoverOutcome::Modern(info) = parse_discover_result(text.as_bytes(), "{}", &client) else {
                panic!("a server info")
            };
            assert_eq!(info.implementation.unwrap(), r#"{"name":"s"}"#);
            assert_eq!(info.capabilities, "{}");
        }
    }

    #[test]
    fn instructions_keep_the_bytes_of_the_server() {
        let info = |raw: &str| {
            let text =
                format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"instructions":{raw}}}"#);
            match parse_initialize_result(text.as_bytes()) {
                InitializeOutcome::Legacy(info) => info.instructions,
                _ => panic!("a server info"),
            }
        };
        let raw = r#""caf\u00e9 \/ \ud83d\ude00""#;
        let advice = info(raw).unwrap();
        assert_eq!((&advice.raw()[..], advice.text().as_str()), (raw.as_bytes(), "café / 😀"));
        assert_eq!(advice.json_fragment(), raw.trim_matches('"'));
        let half = info(r#""a\ud800""#).unwrap();
        assert_eq!(half.raw(), r#""a\ud800""#);
        assert!(half.json_fragment().starts_with("a\u{fffd}".as_bytes()), "{half:?}");
        assert_eq!(Instructions::from_text("a\"b").raw(), r#""a\"b""#);
        assert_eq!((info("5"), info("null")), (None, None));
    }
}
