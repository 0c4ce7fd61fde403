//! Relay request: worker and role from the subject, the server from a header, method and params
//! from the body.

use std::borrow::Cow;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::Caller;
use ostler_wire::{Message, MethodName, Params, RequestId};

use super::call_registry::ReplyAddress;
use super::presence::WorkerInstance;
use crate::broker;
use crate::call_id::CallId;
use crate::envelope::CallHead;
use crate::name::RelayName;

/// Request of a worker with a parsed envelope; the body is still unparsed.
pub(super) struct RelayRequest {
    pub(super) worker_instance: WorkerInstance,
    pub(super) caller: Caller,
    pub(super) head: CallHead,
    pub(super) reply_address: ReplyAddress,
    body: Bytes,
}

/// Parsed body of a request.
pub(super) struct RelayRequestBody {
    pub(super) id: RequestId,
    pub(super) method: MethodName,
    pub(super) params: Params,
}

/// Returns the caller that a worker is to the host.
pub(super) fn worker_caller(worker: &RelayName, role: &RelayName) -> Caller {
    Caller::new(format!("worker:{worker}"), role.as_str())
}

impl RelayRequest {
    /// Parses the envelope. The error is text for the log.
    pub(super) fn read(
        role: &RelayName,
        worker: RelayName,
        message: broker::BrokerMessage,
        epoch: u64,
    ) -> Result<Self, String> {
        let head = CallHead::read(&message.headers).map_err(|error| error.to_string())?;
        let worker_instance = WorkerInstance { worker, instance: head.instance };
        let reply_address = ReplyAddress::new(&worker_instance, head.call, message.reply_to, epoch)?;
        let caller = worker_caller(&worker_instance.worker, role);
        Ok(Self { worker_instance, caller, reply_address, head, body: message.body })
    }

    /// Finds the id of an unparsed request.
    pub(super) fn find_id(&self) -> Option<RequestId> {
        let raw = ostler_wire::member(&self.body, "id")?;
        RequestId::parse(self.body.slice_ref(raw)).ok()
    }

    /// Finds the method of an unparsed request.
    pub(super) fn find_method(&self) -> Option<String> {
        serde_json::from_slice(ostler_wire::member(&self.body, "method")?).ok()
    }

    /// Parses the body, which must be a request for one server.
    pub(super) fn parse_body(&self) -> Result<RelayRequestBody, CallError> {
        let message = Message::parse(self.body.clone()).map_err(|error| invalid(error.to_string()))?;
        let Message::Request { id, method, params } = message else {
            return Err(invalid("the message is no request".into()));
        };
        let params = match params {
            Some(raw) => Params::parse(raw).map_err(|error| invalid(error.to_string()))?,
            None => Params::empty(),
        };
        ostler_host::check_item_param(method.as_str(), &params)?;
        Ok(RelayRequestBody { id, method, params })
    }

    /// Returns the id under which the journal claims the call.
    pub(super) fn claim_id(&self) -> CallId {
        self.head.call.scoped_to_worker(&self.worker_instance.worker)
    }

    /// Returns the error for a server that does not exist or is hidden from the caller.
    pub(super) fn unknown_server(&self) -> CallError {
        CallError::unknown_server(self.head.server.as_str(), std::iter::empty())
    }

    /// Returns the error for a call that may have been executed.
    pub(super) fn outcome_unknown(&self, cause: &str) -> CallError {
        let tool = self.parse_body().ok().and_then(|body| body.tool());
        CallError::OutcomeUnknown { server: self.head.server.clone(), tool, cause: cause.to_owned() }
    }
}

impl RelayRequestBody {
    /// Returns the tool of a `tools/call`.
    pub(super) fn tool(&self) -> Option<String> {
        let is_tool_call = self.method.as_str() == "tools/call";
        is_tool_call.then(|| self.params.name().map(Cow::into_owned)).flatten()
    }
}

fn invalid(what: String) -> CallError {
    CallError::Invalid { what, hint: "worker and host must speak the same version of the relay".into() }
}
