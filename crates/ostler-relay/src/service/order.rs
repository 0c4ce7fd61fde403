//! A request as it came: who asks stands in the subject, the server in a header, what is wanted in the body.

use std::borrow::Cow;

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_host::Caller;
use ostler_wire::{Id, Message, Params, Text};

use super::desk::Address;
use super::presence::Life;
use crate::broker;
use crate::call_id::CallId;
use crate::envelope::CallHead;
use crate::name::Name;

/// A request of a worker, its envelope read.
pub(super) struct Order {
    pub(super) life: Life,
    pub(super) caller: Caller,
    pub(super) head: CallHead,
    pub(super) to: Address,
    body: Bytes,
}

/// What its body says.
pub(super) struct Asked {
    pub(super) id: Id,
    pub(super) method: Text,
    pub(super) params: Params,
}

/// Who a worker is to the host.
pub(super) fn caller_of(worker: &Name, role: &Name) -> Caller {
    Caller::new(format!("worker:{worker}"), role.as_str())
}

impl Order {
    /// Reads the envelope. The error is for people.
    pub(super) fn read(
        role: &Name,
        worker: Name,
        message: broker::Message,
        epoch: u64,
    ) -> Result<Self, String> {
        let head = CallHead::read(&message.headers).map_err(|error| error.to_string())?;
        let life = Life { worker, instance: head.instance };
        let to = Address::of(&life, head.call, message.reply, epoch)?;
        let caller = caller_of(&life.worker, role);
        Ok(Self { life, caller, to, head, body: message.body })
    }

    /// The id of a request that was not opened, if it can be found.
    pub(super) fn find_id(&self) -> Option<Id> {
        let raw = ostler_wire::member(&self.body, "id")?;
        Id::parse(self.body.slice_ref(raw)).ok()
    }

    /// The method of a request that was not opened, if it can be found.
    pub(super) fn find_method(&self) -> Option<String> {
        serde_json::from_slice(ostler_wire::member(&self.body, "method")?).ok()
    }

    /// Opens the body, which must be a request that names one thing.
    pub(super) fn open(&self) -> Result<Asked, CallError> {
        let message = Message::parse(self.body.clone()).map_err(|error| invalid(error.to_string()))?;
        let Message::Request { id, method, params } = message else {
            return Err(invalid("the message is no request".into()));
        };
        let params = match params {
            Some(raw) => Params::parse(raw).map_err(|error| invalid(error.to_string()))?,
            None => Params::empty(),
        };
        ostler_host::check_naming(method.as_str(), &params)?;
        Ok(Asked { id, method, params })
    }

    /// The id that it is claimed under.
    pub(super) fn claim_id(&self) -> CallId {
        self.head.call.claimed_by(&self.life.worker)
    }

    /// There is no such server, to this caller.
    pub(super) fn unknown_server(&self) -> CallError {
        CallError::unknown_server(self.head.server.as_str(), std::iter::empty())
    }

    /// It may have been executed.
    pub(super) fn outcome_unknown(&self, cause: &str) -> CallError {
        let tool = self.open().ok().and_then(|asked| asked.tool());
        CallError::OutcomeUnknown { server: self.head.server.clone(), tool, cause: cause.to_owned() }
    }
}

impl Asked {
    /// The tool, if it is a call of one.
    pub(super) fn tool(&self) -> Option<String> {
        let is_call = self.method.as_str() == "tools/call";
        is_call.then(|| self.params.name().map(Cow::into_owned)).flatten()
    }
}

fn invalid(what: String) -> CallError {
    CallError::Invalid { what, hint: "worker and host must speak the same version of the relay".into() }
}
