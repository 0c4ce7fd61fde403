//! What a legacy client says in `initialize`.

use std::borrow::Cow;

use ostler_wire::{ClientIdentity, LEGACY_VERSIONS, Params, code};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exchange::Reply;

/// The most that a client may say of itself. It is kept as long as the
/// session, and there may be thousands of those.
const MAX_SAID: usize = 8 * 1024;

/// What a client that does not name itself is called.
const NAMELESS: &str = "unnamed";

/// What a legacy client says in `initialize`, checked. Clients of one kind say
/// the same, and their sessions share it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Introduction {
    /// The revision that both speak: the client's, or else our newest.
    pub(crate) version: &'static str,
    pub(crate) capabilities: Box<str>,
    pub(crate) identity: ClientIdentity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    client_info: Option<Name>,
}

#[derive(Deserialize)]
struct Name {
    name: Option<String>,
    version: Option<String>,
}

impl Introduction {
    pub(crate) fn read(params: &Params) -> Result<Self, Reply> {
        let said: Said<'_> = serde_json::from_slice(params.raw()).map_err(|why| {
            Reply::refusal(code::INVALID_PARAMS, &format!("not the parameters of initialize: {why}"))
        })?;
        let version = LEGACY_VERSIONS.into_iter().find(|version| *version == said.protocol_version);
        let capabilities = said.capabilities.map_or("{}", RawValue::get);
        let Name { name, version: number } = said.client_info.unwrap_or(Name { name: None, version: None });
        let identity = ClientIdentity {
            name: name.unwrap_or_else(|| NAMELESS.into()),
            version: number.unwrap_or_default(),
        };
        if capabilities.len() + identity.name.len() + identity.version.len() > MAX_SAID {
            let why = format!("capabilities and clientInfo together have at most {MAX_SAID} bytes");
            return Err(Reply::refusal(code::INVALID_PARAMS, &why));
        }
        Ok(Self {
            version: version.unwrap_or(LEGACY_VERSIONS[0]),
            capabilities: capabilities.into(),
            identity,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// The id that `notifications/cancelled` names.
pub(crate) fn cancelled_id(params: Option<&bytes::Bytes>) -> Option<ostler_wire::Id> {
    let params = params?;
    let Cancelled { request_id } = serde_json::from_slice(params).ok()?;
    ostler_wire::Id::parse(params.slice_ref(request_id.get().as_bytes())).ok()
}
