//! Errors and results as clients read them, in one table.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_wire::{Change, Era, INVALID_PARAMS, RESOURCE_NOT_FOUND, code};

use crate::exchange::{Client, Reply};

impl Reply {
    /// A result as JSON text.
    pub(crate) fn result(json: impl Into<Bytes>) -> Self {
        Self::Result(json.into())
    }

    /// An error of the gateway's own.
    pub(crate) fn error(code: i64, message: &str, data: Option<&[u8]>) -> Self {
        let mut object = b"{\"code\":".to_vec();
        object.extend_from_slice(code.to_string().as_bytes());
        object.extend_from_slice(b",\"message\":");
        ostler_wire::push_text(&mut object, message);
        if let Some(data) = data {
            object.extend_from_slice(b",\"data\":");
            object.extend_from_slice(data);
        }
        object.push(b'}');
        Self::Error { code, object: object.into() }
    }

    /// The parameters are wrong.
    pub(crate) fn invalid(why: &str) -> Self {
        Self::error(INVALID_PARAMS, why, None)
    }

    /// There is no such method here.
    pub(crate) fn no_method(method: &str) -> Self {
        Self::error(code::METHOD_NOT_FOUND, &format!("no such method: {method}"), None)
    }

    /// What a failed call says. A server's own error passes unchanged, but for
    /// the one code that has another number in the modern era.
    pub(crate) fn failed(error: &CallError, era: Era) -> Self {
        let CallError::Rpc(answer) = error else {
            let message = error.to_string();
            let message = match error.cause() {
                Some(cause) => format!("{message}: {cause}"),
                None => message,
            };
            return Self::error(error.rpc_code(), &message, Some(error.data().to_string().as_bytes()));
        };
        if era == Era::Modern && answer.code == RESOURCE_NOT_FOUND {
            let code = INVALID_PARAMS.to_string();
            let object = ostler_wire::edit(&answer.raw, &[("code", Change::Set(code.as_bytes()))]);
            return Self::Error {
                code: INVALID_PARAMS,
                object: object.map_or_else(|| answer.raw.clone(), Bytes::from),
            };
        }
        Self::Error { code: answer.code, object: answer.raw.clone() }
    }
}

impl Client {
    pub(crate) fn era(&self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy(_) => Era::Legacy,
        }
    }
}
