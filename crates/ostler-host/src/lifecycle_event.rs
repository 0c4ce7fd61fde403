//! Lifecycle events of servers, reported to observers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::supervisor::EjectionReason;

use crate::host::{Host, WeakHost};

/// Lifecycle event of one server.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleEvent<'a> {
    /// Name of the server.
    pub server: &'a str,
    /// Partition of an isolated server's process; empty if all callers share one.
    pub partition: &'a str,
    /// The event itself.
    pub kind: LifecycleEventKind<'a>,
}

impl<'a> LifecycleEvent<'a> {
    /// Creates an event of a server as a whole.
    pub fn for_server(server: &'a str, kind: LifecycleEventKind<'a>) -> Self {
        Self { server, partition: "", kind }
    }
}

/// Kind of a lifecycle event, with its data.
#[derive(Debug, Clone, Copy)]
pub enum LifecycleEventKind<'a> {
    /// A session is up.
    Started {
        /// Number of the session.
        generation: u64,
        /// Its process, if it has a local one.
        pid: Option<u32>,
        /// Time from the decision to start until it could be used.
        took: Duration,
    },
    /// A session did not come up.
    StartFailed {
        /// Number of the session.
        generation: u64,
        /// Cause of the failure.
        cause: &'a str,
    },
    /// A session ended by itself, or hung.
    Lost {
        /// Number of the session.
        generation: u64,
        /// Cause of the loss.
        cause: &'a str,
    },
    /// The host ended a session: idle, stopped, or replaced by another.
    Ended {
        /// Number of the session.
        generation: u64,
    },
    /// Another start is planned, with or without a call.
    RestartPlanned {
        /// Delay before it.
        delay: Duration,
    },
    /// No other start is planned: the next call causes one.
    RestartOnDemand,
    /// The server is ejected until an operator reloads it, or until it is readmitted.
    Ejected {
        /// Reason of the ejection.
        ejection: EjectionReason,
        /// The last failure.
        cause: &'a str,
        /// Remedy for a person to apply.
        remedy: Option<&'a str>,
        /// Time until it is readmitted; `None` leaves that to an operator.
        readmit_in: Option<Duration>,
    },
    /// The server rejects its credentials, or requires some.
    NeedsAuth {
        /// The server's own message.
        cause: &'a str,
        /// Time until it is retried.
        retry_in: Duration,
    },
    /// The server is back after an ejection of the configured length.
    Readmitted,
    /// The breaker rejects calls to it.
    BreakerOpened {
        /// Time until the breaker lets a probe pass.
        wait: Duration,
    },
    /// Calls reach it again.
    BreakerClosed,
    /// An operator changed it.
    Operated {
        /// Action of the operator.
        action: OperatorAction,
        /// Operator, if the host was told.
        by: Option<&'a Caller>,
    },
    /// The server lists a resource or template that another server owns.
    ResourceShadowed {
        /// URI or template.
        uri: &'a str,
        /// Owner, which is asked instead.
        owner: &'a str,
    },
    /// A tool's definition is not the approved one.
    DefinitionChanged {
        /// Name of the tool.
        tool: &'a str,
        /// Status of the pin, a word of the pins.
        pin_status: &'a str,
        /// Set if callers are refused the tool.
        is_refused: bool,
    },
}

/// Operator's action on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorAction {
    /// Registered a server under a free name.
    Register,
    /// Replaced a server's spec.
    Replace,
    /// Removed the server.
    Remove,
    /// Started the server.
    Start,
    /// Stopped the server.
    Stop,
    /// Restarted the session with a clean record.
    Reload,
}

impl OperatorAction {
    /// Returns the word used in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Reload => "reload",
        }
    }
}

/// Receiver of lifecycle events. Called without a lock, but a server's task or a call may be waiting for it: it must
/// not block.
pub type LifecycleObserver = Arc<dyn Fn(&LifecycleEvent<'_>) + Send + Sync>;

impl Host {
    pub(crate) fn report_operator_action(&self, server: &str, act: OperatorAction, by: Option<&Caller>) {
        self.notify_observers(&LifecycleEvent::for_server(
            server,
            LifecycleEventKind::Operated { action: act, by },
        ));
    }
}

impl WeakHost {
    /// Reports an event to all observers, if the host still exists.
    pub(crate) fn notify_observers(&self, happening: &LifecycleEvent<'_>) {
        if let Some(host) = self.upgrade() {
            host.notify_observers(happening);
        }
    }
}
