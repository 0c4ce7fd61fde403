//! Notifications of callers to servers. The host accepts those that MCP defines for clients, and a vendor's if a rule
//! allows it. It accepts nothing else: many servers carry out a request that lacks an id.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::policy::{Subject, Verdict};
use ostler_wire::{Params, is_valid_name};

use crate::host::Host;
use crate::record::BriefRecord;
use crate::request::Request;
use crate::server::Server;

/// Prefix of the method of every notification.
pub(crate) const METHOD_PREFIX: &str = "notifications/";

/// Kind of a notification that a caller may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientNotification {
    /// About the caller's own session or requests. The host opens sessions and numbers requests itself, so no server
    /// would understand it.
    HostManaged,
    /// About a request of the server. The caller that got the request is known only where it has the server to itself.
    AboutServerRequest,
    /// The caller's roots have changed.
    RootsChanged,
    /// Not defined by MCP.
    Vendor,
}

impl ClientNotification {
    fn from_method(method: &str) -> Option<Self> {
        match method.strip_prefix(METHOD_PREFIX)? {
            "initialized" | "cancelled" => Some(Self::HostManaged),
            "progress" | "tasks/status" => Some(Self::AboutServerRequest),
            "roots/list_changed" => Some(Self::RootsChanged),
            // Notifications of servers to clients.
            "message"
            | "tools/list_changed"
            | "prompts/list_changed"
            | "resources/list_changed"
            | "resources/updated"
            | "elicitation/complete"
            | "subscriptions/acknowledged" => None,
            _ if is_valid_name(method) => Some(Self::Vendor),
            _ => None,
        }
    }
}

impl Host {
    /// Passes a notification on to the live session of a server that the caller uses; without one nothing is started.
    /// Anything that is not a notification of a client is refused and recorded, and so is a vendor's that no rule
    /// allows (`server/method:notifications/…`). A vendor's counts as a call.
    pub fn notify(
        &self,
        caller: &Caller,
        server: &str,
        method: &str,
        params: Option<Bytes>,
    ) -> Result<(), CallError> {
        self.handle_notification(caller, Some(server), method, params)
    }

    /// Passes a notification on to every server that the caller may see. A vendor's names no server: it is passed on to
    /// none, and refused where no server would be allowed to have it.
    pub fn notify_all(&self, caller: &Caller, method: &str, params: Option<Bytes>) -> Result<(), CallError> {
        self.handle_notification(caller, None, method, params)
    }

    fn handle_notification(
        &self,
        caller: &Caller,
        server: Option<&str>,
        method: &str,
        raw: Option<Bytes>,
    ) -> Result<(), CallError> {
        let parsed = raw.clone().map_or(Ok(Params::empty()), Params::parse);
        let (params, readable) = match parsed {
            Ok(params) => (params, Ok(())),
            Err(error) => (Params::empty(), Err(invalid(error.to_string(), "send an object of parameters"))),
        };
        let request = Request::new(caller, method, params);
        let mut rule = None;
        let result = readable.and_then(|()| match server {
            Some(server) => self.notify_one(server, &request, raw.as_deref(), &mut rule),
            None => self.notify_each(&request, raw.as_deref()),
        });
        // A notification that MCP defines is no call; every other one that is sent is recorded.
        if result.is_err()
            || (server.is_some()
                && ClientNotification::from_method(method) == Some(ClientNotification::Vendor))
        {
            let wanted = request.subject();
            let subject = wanted.as_ref().map_or("", |wanted| wanted.item_name());
            let outcome = result.as_ref().map_or_else(CallError::code, |()| "ok");
            let (server, rule) = (server.unwrap_or_default(), rule.as_deref());
            self.record_brief(caller, BriefRecord { server, method, subject, outcome, rule });
        }
        result
    }

    fn notify_one(
        &self,
        server: &str,
        request: &Request<'_>,
        params: Option<&[u8]>,
        rule: &mut Option<String>,
    ) -> Result<(), CallError> {
        let caller = request.caller();
        let notice = ClientNotification::from_method(request.method())
            .ok_or_else(|| unknown_notification(request.method()))?;
        let server = self
            .visible_server(caller, server)
            .inspect_err(|_| *rule = self.current().denial_reason(caller, server, None))?;
        match notice {
            ClientNotification::HostManaged => {}
            // The session of a shared server is the host's: no caller's roots are its roots, and a flood of
            // notifications would take the server from the other callers.
            ClientNotification::AboutServerRequest | ClientNotification::RootsChanged
                if server.spec.isolation.is_shared_by_callers() => {}
            ClientNotification::AboutServerRequest | ClientNotification::RootsChanged => {
                forward(&server, request, params);
            }
            ClientNotification::Vendor => {
                let current = self.current();
                let item = Some(Subject::Method(request.method()));
                if let Verdict::Deny { reason } = current.decide(caller, &server, item) {
                    *rule = Some(reason);
                    return Err(CallError::UnknownMethod { method: request.method().to_owned() });
                }
                let admission = &self.inner().admission;
                let charge = admission.charge(&current.limits, request)?;
                if !forward(&server, request, params) {
                    admission.refund(caller, charge);
                }
            }
        }
        Ok(())
    }

    fn notify_each(&self, request: &Request<'_>, params: Option<&[u8]>) -> Result<(), CallError> {
        match ClientNotification::from_method(request.method()) {
            Some(ClientNotification::HostManaged | ClientNotification::AboutServerRequest) => Ok(()),
            Some(ClientNotification::RootsChanged) => {
                let is_own = |server: &&Arc<Server>| !server.spec.isolation.is_shared_by_callers();
                for server in self.visible_servers(request.caller()).iter().filter(is_own) {
                    forward(server, request, params);
                }
                Ok(())
            }
            Some(ClientNotification::Vendor) => {
                let subject = Some(Subject::Method(request.method()));
                let (current, caller) = (self.current(), request.caller());
                let may = |server: &Arc<Server>| {
                    current.may_see(caller, &server.spec.name)
                        && current.may_use(caller, &server.spec.name, subject)
                };
                match !current.is_restricted(caller) || current.servers.values().any(may) {
                    true => Ok(()),
                    false => Err(CallError::UnknownMethod { method: request.method().to_owned() }),
                }
            }
            None => Err(unknown_notification(request.method())),
        }
    }
}

/// Sends it to the live session that the caller uses; returns false if there is none.
fn forward(server: &Server, request: &Request<'_>, params: Option<&[u8]>) -> bool {
    let live = server.existing_slot(request.caller()).and_then(|slot| slot.live());
    live.is_some_and(|live| {
        live.session.notify(request.method(), params);
        true
    })
}

fn unknown_notification(method: &str) -> CallError {
    invalid(
        format!("`{method}` came without an id, and is no notification of a client"),
        "give a request an `id`; a vendor's notification begins with `notifications/`",
    )
}

fn invalid(what: String, hint: &str) -> CallError {
    CallError::Invalid { what, hint: hint.to_owned() }
}
