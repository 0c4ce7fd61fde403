//! What a server said of itself.

use bytes::Bytes;

use crate::era::{ClientIdentity, Era, LEGACY_VERSIONS, MODERN_VERSION};
use crate::meta::SessionMeta;
use crate::object::{is_object, members, open};
use crate::text::{decode, decode_lossy, push_string};

/// Where modern servers put their identity in a result's `_meta`.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The outcome of a handshake. Its texts are copies, so that it does not keep the server's line alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// How the server wants to be spoken to.
    pub era: Era,
    /// The revision agreed on.
    pub version: String,
    /// The server's raw capabilities, always an object.
    pub capabilities: Bytes,
    /// The raw `serverInfo`, if the server says who it is. Never a source of names.
    pub server: Option<Bytes>,
    /// The server's advice on how to use it.
    pub instructions: Option<Instructions>,
    /// What every request to this server says in `_meta`; `Some` in the modern era.
    pub session_meta: Option<SessionMeta>,
}

/// A server's advice on how to use it, as the server has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions(Bytes);

impl Instructions {
    /// Takes the text of a JSON value; `None` if it is no string.
    pub fn read(raw: &str) -> Option<Self> {
        decode_lossy(raw).map(|_| Self(Bytes::copy_from_slice(raw.as_bytes())))
    }

    /// Writes a text as a JSON string.
    pub fn of_text(text: &str) -> Self {
        let mut raw = Vec::new();
        push_string(&mut raw, text);
        Self(raw.into())
    }

    /// The JSON string, quotes included, byte for byte.
    pub fn raw(&self) -> &Bytes {
        &self.0
    }

    /// The text, for people and for pins. Half a surrogate pair becomes U+FFFD.
    pub fn text(&self) -> String {
        self.as_str().and_then(decode_lossy).unwrap_or_default()
    }

    /// What stands between the quotes, good for a part of another JSON string. Written anew only where no client could
    /// read it.
    pub fn inner(&self) -> Bytes {
        let inner = |raw: &Bytes| raw.slice(1..raw.len() - 1);
        match self.as_str().and_then(decode) {
            Some(_) => inner(&self.0),
            None => inner(&Self::of_text(&self.text()).0),
        }
    }

    fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Hello {
    /// Whether the server declares a capability, named by its path (`tools`, `tools.listChanged`). Present and
    /// neither `false` nor `null` counts. Keys may contain dots themselves, as extensions' do.
    pub fn has_capability(&self, path: &str) -> bool {
        has_capability(&self.capabilities, path)
    }
}

/// Whether the JSON text of capabilities, of a server or a client, declares one by its path; see
/// [`Hello::has_capability`].
pub fn has_capability(capabilities: &[u8], path: &str) -> bool {
    capabilities.len() > 2 && std::str::from_utf8(capabilities).is_ok_and(|text| has_path(text, path))
}

/// The capability that a client declares to be asked by this method.
pub fn capability_to_be_asked(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

/// Whether a client's capabilities declare anything that answers requests of servers.
pub fn can_be_asked(capabilities: &[u8]) -> bool {
    ["elicitation", "sampling", "roots"].iter().any(|path| has_capability(capabilities, path))
}

fn has_path(object: &str, path: &str) -> bool {
    let mut is_found = false;
    let walked = members(object, |key, value| {
        let Some(rest) = path.strip_prefix(&*key.text()) else { return };
        is_found |= match rest.strip_prefix('.') {
            Some(rest) => is_object(value.as_bytes()) && has_path(value, rest),
            None => rest.is_empty() && !matches!(value, "false" | "null"),
        };
    });
    walked.is_ok() && is_found
}

/// What a `server/discover` result amounts to.
pub(crate) enum Discovered {
    Modern(Hello),
    /// The versions the server speaks, ours not among them.
    Others(Vec<String>),
    /// Not a discover result at all.
    Strange,
}

/// Reads the result of `server/discover`.
pub(crate) fn read_discovery(raw: &[u8], capabilities: &str, client: &ClientIdentity) -> Discovered {
    let keys = ["supportedVersions", "capabilities", "serverInfo", "instructions", "_meta"];
    let Ok([Some(versions), offered, server, instructions, meta]) = open(raw, &keys) else {
        return Discovered::Strange;
    };
    let Ok(versions) = serde_json::from_str::<Vec<String>>(versions) else { return Discovered::Strange };
    if !versions.iter().any(|version| version == MODERN_VERSION) {
        return Discovered::Others(versions);
    }
    let server = server.or_else(|| open(meta?.as_bytes(), &[SERVER_INFO]).ok()?[0]);
    Discovered::Modern(Hello {
        era: Era::Modern,
        version: MODERN_VERSION.to_owned(),
        capabilities: object_or_empty(offered),
        server: server.and_then(object),
        instructions: instructions.and_then(Instructions::read),
        session_meta: Some(SessionMeta::modern(MODERN_VERSION, capabilities, client)),
    })
}

/// What an `initialize` result amounts to.
pub(crate) enum Initialized {
    Legacy(Hello),
    /// The version the server chose, none of ours.
    Other(String),
    /// Not an initialize result at all.
    Strange,
}

/// Reads the result of `initialize`.
pub(crate) fn read_initialized(raw: &[u8]) -> Initialized {
    let keys = ["protocolVersion", "capabilities", "serverInfo", "instructions"];
    let Ok([Some(version), offered, server, instructions]) = open(raw, &keys) else {
        return Initialized::Strange;
    };
    let Some(version) = decode_lossy(version) else { return Initialized::Strange };
    if !LEGACY_VERSIONS.contains(&version.as_str()) {
        return Initialized::Other(version);
    }
    Initialized::Legacy(Hello {
        era: Era::Legacy,
        version,
        capabilities: object_or_empty(offered),
        server: server.and_then(object),
        instructions: instructions.and_then(Instructions::read),
        session_meta: None,
    })
}

/// `data.supported` of an error, if it is there.
pub(crate) fn supported_versions(error: &[u8]) -> Option<Vec<String>> {
    let [data] = open(error, &["data"]).ok()?;
    let [supported] = open(data?.as_bytes(), &["supported"]).ok()?;
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
        let Initialized::Legacy(hello) = read_initialized(result.as_bytes()) else { panic!("a hello") };
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
            assert_eq!(hello.has_capability(path), is_there, "{path}");
        }
    }

    #[test]
    fn the_identity_is_found_in_both_places() {
        let client = ClientIdentity { name: "c".into(), version: "1".into() };
        for text in [
            r#"{"supportedVersions":["2026-07-28"],"serverInfo":{"name":"s"}}"#,
            r#"{"supportedVersions":["2026-07-28"],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        ] {
            let Discovered::Modern(hello) = read_discovery(text.as_bytes(), "{}", &client) else {
                panic!("a hello")
            };
            assert_eq!(hello.server.unwrap(), r#"{"name":"s"}"#);
            assert_eq!(hello.capabilities, "{}");
        }
    }

    #[test]
    fn instructions_keep_the_bytes_of_the_server() {
        let hello = |raw: &str| {
            let text =
                format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"instructions":{raw}}}"#);
            match read_initialized(text.as_bytes()) {
                Initialized::Legacy(hello) => hello.instructions,
                _ => panic!("a hello"),
            }
        };
        let raw = r#""caf\u00e9 \/ \ud83d\ude00""#;
        let advice = hello(raw).unwrap();
        assert_eq!((&advice.raw()[..], advice.text().as_str()), (raw.as_bytes(), "café / 😀"));
        assert_eq!(advice.inner(), raw.trim_matches('"'));
        let half = hello(r#""a\ud800""#).unwrap();
        assert_eq!(half.raw(), r#""a\ud800""#);
        assert!(half.inner().starts_with("a\u{fffd}".as_bytes()), "{half:?}");
        assert_eq!(Instructions::of_text("a\"b").raw(), r#""a\"b""#);
        assert_eq!((hello("5"), hello("null")), (None, None));
    }
}
