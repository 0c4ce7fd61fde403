//! A request as it came: who asks stands in the subject, what in the body.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::Caller;
use ostler_wire::{Id, Message, Params, Text};

use super::desk::Address;
use super::presence::Life;
use crate::broker;
use crate::call_id::CallId;
use crate::envelope::CallHead;
use crate::name::Name;
use crate::subject::Wanted;

/// A request of a worker, its envelope read.
pub(super) struct Order {
    pub(super) life: Life,
    pub(super) caller: Caller,
    pub(super) server: String,
    pub(super) what: Wanted,
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

/// Who asks for what, as the subject says.
pub(super) struct Subject {
    pub(super) role: Name,
    pub(super) worker: Name,
    pub(super) server: String,
    pub(super) what: Wanted,
}

/// Who a worker is to the host.
pub(super) fn caller_of(worker: &Name, role: &Name) -> Caller {
    Caller::new(format!("worker:{worker}"), role.as_str())
}

impl Order {
    /// Reads the envelope. The error is for people.
    pub(super) fn read(subject: Subject, message: broker::Message, epoch: u64) -> Result<Self, String> {
        let Subject { role, worker, server, what } = subject;
        let head = CallHead::read(&message.headers).map_err(|error| error.to_string())?;
        let life = Life { worker, instance: head.instance };
        let to = Address::of(&life, head.call, message.reply, epoch)?;
        let caller = caller_of(&life.worker, &role);
        Ok(Self { life, caller, server, what, to, head, body: message.body })
    }

    /// The id of a request that was not opened, if it can be found.
    pub(super) fn find_id(&self) -> Option<Id> {
        let raw = ostler_wire::member(&self.body, "id")?;
        Id::parse(self.body.slice_ref(raw)).ok()
    }

    /// Opens the body, which must ask for what the subject says: the broker
    /// has judged the subject and not the body.
    pub(super) fn open(&self) -> Result<Asked, CallError> {
        let message = Message::parse(self.body.clone()).map_err(|error| invalid(error.to_string()))?;
        let Message::Request { id, method, params } = message else {
            return Err(invalid("the message is no request".into()));
        };
        let params = match params {
            Some(raw) => Params::parse(raw).map_err(|error| invalid(error.to_string()))?,
            None => Params::empty(),
        };
        let agrees = match &self.what {
            Wanted::Tool(tool) => {
                method.as_str() == "tools/call" && params.name().as_deref() == Some(tool.as_str())
            }
            // A call of a tool has a subject of its own, which rules of the broker may name.
            Wanted::Method(wanted) => method.as_str() == wanted.as_str() && wanted != "tools/call",
        };
        ostler_host::check_naming(method.as_str(), &params)?;
        match agrees {
            true => Ok(Asked { id, method, params }),
            false => Err(invalid("the request asks for something else than its subject".into())),
        }
    }

    /// The id that it is claimed under.
    pub(super) fn claim_id(&self) -> CallId {
        self.head.call.claimed_by(&self.life.worker)
    }

    /// The method, as far as the subject tells.
    pub(super) fn method(&self) -> &str {
        match &self.what {
            Wanted::Tool(_) => "tools/call",
            Wanted::Method(method) => method,
        }
    }

    /// The tool, if it is a call of one.
    pub(super) fn tool(&self) -> Option<&str> {
        match &self.what {
            Wanted::Tool(tool) => Some(tool),
            Wanted::Method(_) => None,
        }
    }

    /// An error about its server; one that can't exist is not known.
    pub(super) fn about_server(&self, error: impl FnOnce(ServerName) -> CallError) -> CallError {
        match ServerName::new(&self.server) {
            Ok(server) => error(server),
            Err(_) => self.unknown_server(),
        }
    }

    /// There is no such server, to this caller.
    pub(super) fn unknown_server(&self) -> CallError {
        CallError::unknown_server(&self.server, std::iter::empty())
    }

    /// It may have been executed.
    pub(super) fn outcome_unknown(&self, cause: &str) -> CallError {
        let (tool, cause) = (self.tool().map(str::to_owned), cause.to_owned());
        self.about_server(|server| CallError::OutcomeUnknown { server, tool, cause })
    }
}

fn invalid(what: String) -> CallError {
    CallError::Invalid { what, hint: "worker and host must speak the same version of the relay".into() }
}
