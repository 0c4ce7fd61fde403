//! Incoming messages as borrowed JSON: parses only what the server decides by; the rest stays raw.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A string borrowed from the line unless it holds escapes. A bare `Option<Cow<str>>` would always
/// allocate.
#[derive(Debug, Deserialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// One line: a request (`id` and `method`), a notification (`method`) or an answer to an `ask`
/// (`id`).
#[derive(Debug, Deserialize)]
pub(crate) struct FakeMessage<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
}

/// The parameters of all methods together, one level deep.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FakeParams<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) uri: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) cursor: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Option<FakeMeta<'a>>,
    #[serde(borrow, default)]
    pub(crate) input_responses: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) request_state: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) task_id: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) protocol_version: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub(crate) level: Option<BorrowedText<'a>>,
    /// The filter of a modern client's request to listen.
    #[serde(borrow, default)]
    pub(crate) notifications: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) request_id: Option<&'a RawValue>,
}

/// The `_meta` keys that the server reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct FakeMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) version: Option<BorrowedText<'a>>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.ostler/idempotencyKey")]
    pub(crate) idempotency_key: Option<BorrowedText<'a>>,
}

impl<'a> FakeParams<'a> {
    /// Parses raw parameters; absent ones are empty.
    pub(crate) fn read(raw: Option<&'a RawValue>) -> serde_json::Result<Self> {
        raw.map_or_else(|| Ok(Self::default()), |raw| serde_json::from_str(raw.get()))
    }

    /// Returns the arguments as they were written, `{}` when absent.
    pub(crate) fn arguments(&self) -> &'a str {
        self.arguments.map_or("{}", RawValue::get)
    }

    /// Returns the subject of the request: a name or a URI.
    pub(crate) fn subject(&self) -> &str {
        self.name.as_ref().or(self.uri.as_ref()).map_or("", |text| &text.0)
    }

    /// Returns the key that stays the same when a call is retried; empty when absent.
    pub(crate) fn idempotency_key(&self) -> &str {
        self.meta.as_ref().and_then(|meta| meta.idempotency_key.as_ref()).map_or("", |key| &key.0)
    }
}
