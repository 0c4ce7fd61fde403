//! Parameters of a legacy client's `initialize`.

use std::borrow::Cow;

use ostler_wire::{ClientInfo, LEGACY_VERSIONS, Params, error_code};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client_request::GatewayReply;

/// Bytes of `clientInfo`. It is kept as long as the session, and there may be thousands of sessions.
const MAX_CLIENT_INFO: usize = 8 * 1024;

/// Name of a client that sends none.
const UNNAMED_CLIENT: &str = "unnamed";

/// Parameters of a legacy client's `initialize`, checked. Clients of one kind send the same, and their sessions share
/// one copy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct InitializeParams {
    /// Negotiated revision: the client's, or else the gateway's newest.
    pub(crate) version: &'static str,
    pub(crate) capabilities: Box<str>,
    pub(crate) identity: ClientInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawInitializeParams<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    client_info: Option<RawClientInfo>,
}

#[derive(Deserialize)]
struct RawClientInfo {
    name: Option<String>,
    version: Option<String>,
}

impl InitializeParams {
    pub(crate) fn parse(params: &Params) -> Result<Self, GatewayReply> {
        let said: RawInitializeParams<'_> = serde_json::from_slice(params.raw()).map_err(|why| {
            GatewayReply::refusal(
                error_code::INVALID_PARAMS,
                &format!("not the parameters of initialize: {why}"),
            )
        })?;
        let version = LEGACY_VERSIONS.into_iter().find(|version| *version == said.protocol_version);
        let capabilities = said.capabilities.map_or("{}", RawValue::get);
        let RawClientInfo { name, version: number } =
            said.client_info.unwrap_or(RawClientInfo { name: None, version: None });
        let identity = ClientInfo {
            name: name.unwrap_or_else(|| UNNAMED_CLIENT.into()),
            version: number.unwrap_or_default(),
        };
        if capabilities.len() + identity.name.len() + identity.version.len() > MAX_CLIENT_INFO {
            let why = format!("capabilities and clientInfo together have at most {MAX_CLIENT_INFO} bytes");
            return Err(GatewayReply::refusal(error_code::INVALID_PARAMS, &why));
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
struct CancelledNotification<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

/// Returns the request id that `notifications/cancelled` names.
pub(crate) fn cancelled_request_id(params: Option<&bytes::Bytes>) -> Option<ostler_wire::RequestId> {
    let params = params?;
    let CancelledNotification { request_id } = serde_json::from_slice(params).ok()?;
    ostler_wire::RequestId::parse(params.slice_ref(request_id.get().as_bytes())).ok()
}
