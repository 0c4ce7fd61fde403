//! Error and result replies as clients read them, in one table.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_wire::{Era, INVALID_PARAMS, MemberEdit, RESOURCE_NOT_FOUND};

use crate::client_request::{ClientEra, GatewayReply};

impl GatewayReply {
    /// Makes a reply from the JSON text of a result.
    pub(crate) fn result(json: impl Into<Bytes>) -> Self {
        Self::Result(json.into())
    }

    /// Makes a reply with an error of the gateway's own.
    pub(crate) fn error(code: i64, message: &str, data: Option<&[u8]>) -> Self {
        Self::Error { code, object: ostler_wire::error_object(code, message, data).into() }
    }

    /// Makes a reply for invalid parameters.
    pub(crate) fn invalid_params(why: &str) -> Self {
        Self::error(INVALID_PARAMS, why, None)
    }

    /// Makes a reply for an unknown method.
    pub(crate) fn method_not_found(method: &str) -> Self {
        Self::from_own_error(&CallError::UnknownMethod { method: method.to_owned() })
    }

    /// Makes the same reply with a reason.
    pub(crate) fn method_not_found_because(method: &str, why: &str) -> Self {
        let error = CallError::UnknownMethod { method: method.to_owned() };
        Self::error(error.rpc_code(), why, Some(error.data().to_string().as_bytes()))
    }

    /// Makes the reply to a failed call. A server's own error passes unchanged, except the one code that has another
    /// number in the modern era.
    pub(crate) fn from_call_error(error: &CallError, era: Era) -> Self {
        let CallError::Rpc(answer) = error else { return Self::from_own_error(error) };
        if era == Era::Modern && answer.code == RESOURCE_NOT_FOUND {
            let code = INVALID_PARAMS.to_string();
            let object = ostler_wire::edit(&answer.raw, &[("code", MemberEdit::Set(code.as_bytes()))]);
            return Self::Error {
                code: INVALID_PARAMS,
                object: object.map_or_else(|| answer.raw.clone(), Bytes::from),
            };
        }
        Self::Error { code: answer.code, object: answer.raw.clone() }
    }

    /// Makes the reply for an error that is not a server's own.
    pub(crate) fn from_own_error(error: &CallError) -> Self {
        let object = error.rpc_object().into();
        match error {
            CallError::UnknownServer { .. } => Self::UnknownServer(object),
            _ => Self::Error { code: error.rpc_code(), object },
        }
    }
}

impl ClientEra {
    pub(crate) fn era(&self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy(_) => Era::Legacy,
        }
    }
}
