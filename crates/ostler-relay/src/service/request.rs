//! A request as it came: who asks stands in the subject, the server in a header, what is wanted in the body.

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

/// A request of a worker, its envelope read.
pub(super) struct RelayRequest {
    pub(super) worker_instance: WorkerInstance,
    pub(super) caller: Caller,
    pub(super) head: CallHead,
    pub(super) reply_address: ReplyAddress,
    body: Bytes,
}

/// What its body says.
pub(super) struct RelayRequestBody {
    pub(super) id: RequestId,
    pub(super) method: MethodName,
    pub(super) params: Params,
}

/// Who a worker is to the host.
pub(super) fn worker_caller(worker: &RelayName, role: &RelayName) -> Caller {
    Caller::new(format!("worker:{worker}"), role.as_str())
}

impl RelayRequest {
    /// Reads the envelope. The error is for people.
    pub(super) fn read(
        role: &RelayName,
        worker: RelayName,
        message: broker::BrokerMessage,
        epoch: u64,
    ) -> Result<Self, String> {
        let head = CallHead::read(&message.headers).map_err(|error| error.to_string())?;
        let life = WorkerInstance { worker, instance: head.instance };
        let to = ReplyAddress::new(&life, head.call, message.reply_to, epoch)?;
        let caller = worker_caller(&life.worker, role);
        Ok(Self { worker_instance: life, caller, reply_address: to, head, body: message.body })
    }

    /// The id of a request that was not opened, if it can be found.
    pub(super) fn find_id(&self) -> Option<RequestId> {
        let raw = ostler_wire::member(&self.body, "id")?;
        RequestId::parse(self.body.slice_ref(raw)).ok()
    }

    /// The method of a request that was not opened, if it can be found.
    pub(super) fn find_method(&self) -> Option<String> {
        serde_json::from_slice(ostler_wire::member(&self.body, "method")?).ok()
    }

    /// Opens the body, which must be a request that names one thing.
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

    /// The id that it is claimed under.
    pub(super) fn claim_id(&self) -> CallId {
        self.head.call.scoped_to_worker(&self.worker_instance.worker)
    }

    /// There is no such server, to this caller.
    pub(super) fn unknown_server(&self) -> CallError {
        CallError::unknown_server(self.head.server.as_str(), std::iter::empty())
    }

    /// It may have been executed.
    pub(super) fn outcome_unknown(&self, cause: &str) -> CallError {
        let tool = self.parse_body().ok().and_then(|asked| asked.tool());
        CallError::OutcomeUnknown { server: self.head.server.clone(), tool, cause: cause.to_owned() }
    }
}

impl RelayRequestBody {
    /// The tool, if it is a call of one.
    pub(super) fn tool(&self) -> Option<String> {
        let is_call = self.method.as_str() == "tools/call";
        is_call.then(|| self.params.name().map(Cow::into_owned)).flatten()
    }
}

fn invalid(what: String) -> CallError {
    CallError::Invalid { what, hint: "worker and host must speak the same version of the relay".into() }
}
