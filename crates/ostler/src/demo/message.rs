//! Messages of the demo server.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{INVALID_PARAMS, MODERN_VERSION, UNSUPPORTED_VERSION};

/// Message of a client.
#[derive(Debug, Deserialize)]
pub(super) struct DemoMessage<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
}

/// Parameters that the demo server reads, of all methods together.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DemoParams {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) protocol_version: Option<String>,
    pub(super) request_id: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    meta: Option<DemoMeta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DemoMeta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Value>,
}

/// Reason to refuse a request in its era.
#[derive(Debug)]
pub(super) enum DemoRefusal {
    /// `_meta` lacks a member that the modern era requires.
    MissingMeta,
    /// A protocol version that the demo server does not support.
    UnsupportedVersion(String),
}

impl DemoParams {
    /// Reads the parameters; `None` if they have another shape.
    pub(super) fn read(raw: Option<&RawValue>) -> Option<Self> {
        raw.map_or_else(|| Some(Self::default()), |raw| serde_json::from_str(raw.get()).ok())
    }

    /// Returns whether `_meta` belongs to the modern era.
    pub(super) fn is_modern(&self) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta.version.is_some() || meta.capabilities.is_some())
    }

    pub(super) fn refusal(&self, is_modern: bool) -> Option<DemoRefusal> {
        if !is_modern {
            return None;
        }
        match &self.meta {
            Some(DemoMeta { version: Some(version), capabilities: Some(_) }) => {
                (version != MODERN_VERSION).then(|| DemoRefusal::UnsupportedVersion(version.clone()))
            }
            _ => Some(DemoRefusal::MissingMeta),
        }
    }
}

impl DemoRefusal {
    pub(super) fn reply(&self, id: &str) -> DemoReply {
        match self {
            Self::MissingMeta => DemoReply::error(
                id,
                INVALID_PARAMS,
                "_meta lacks the protocol version or the client's capabilities",
            ),
            Self::UnsupportedVersion(requested) => {
                let error = json!({
                    "code": UNSUPPORTED_VERSION,
                    "message": "this protocol version is not supported",
                    "data": {"supported": [MODERN_VERSION], "requested": requested},
                });
                DemoReply(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
            }
        }
    }
}

/// Reply, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DemoReply(String);

impl DemoReply {
    pub(super) fn error(id: &str, code: i64, message: &str) -> Self {
        let error = json!({"code": code, "message": message});
        Self(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
    }

    /// Returns a result with these members, which are the inside of a JSON object.
    pub(super) fn result(id: &str, is_modern: bool, members: &str) -> Self {
        let kind = match (is_modern, members.is_empty()) {
            (true, false) => r#""resultType":"complete","#,
            (true, true) => r#""resultType":"complete""#,
            (false, _) => "",
        };
        Self(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{kind}{members}}}}}"#))
    }

    pub(super) fn text(id: &str, is_modern: bool, text: &str, is_error: bool) -> Self {
        let text = json!(text);
        let members = format!(r#""content":[{{"type":"text","text":{text}}}],"isError":{is_error}"#);
        Self::result(id, is_modern, &members)
    }

    pub(super) fn line(&self) -> String {
        format!("{}\n", self.0)
    }
}
