//! What happens to servers, told to whoever keeps a record of it.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::supervisor::EjectionReason;

use crate::host::{Host, WeakHost};

/// Something that happened to one server.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleEvent<'a> {
    /// Which server.
    pub server: &'a str,
    /// Whose process of an isolated server; empty where all callers share one.
    pub partition: &'a str,
    /// What happened.
    pub kind: LifecycleEventKind<'a>,
}

impl<'a> LifecycleEvent<'a> {
    /// Something that happened to a server as a whole.
    pub fn for_server(server: &'a str, kind: LifecycleEventKind<'a>) -> Self {
        Self { server, partition: "", kind }
    }
}

/// What can happen to a server.
#[derive(Debug, Clone, Copy)]
pub enum LifecycleEventKind<'a> {
    /// A session is up.
    Started {
        /// Its number.
        generation: u64,
        /// Its process, where it has one here.
        pid: Option<u32>,
        /// From the decision to start it until it could be used.
        took: Duration,
    },
    /// A session did not come up.
    StartFailed {
        /// Its number.
        generation: u64,
        /// Why not.
        cause: &'a str,
    },
    /// A session ended by itself, or hung.
    Lost {
        /// Its number.
        generation: u64,
        /// What happened.
        cause: &'a str,
    },
    /// A session was ended: not needed any more, stopped, or replaced by another.
    Ended {
        /// Its number.
        generation: u64,
    },
    /// Another start will be tried, whether a call comes or not.
    RestartPlanned {
        /// How long it waits before that.
        delay: Duration,
    },
    /// No other start is planned: the next call brings one.
    RestartOnDemand,
    /// It is out until an operator reloads it, or until it is readmitted.
    Ejected {
        /// What led to it.
        ejection: EjectionReason,
        /// The last failure.
        cause: &'a str,
        /// What a person can do about that.
        remedy: Option<&'a str>,
        /// When it is readmitted; `None` leaves that to an operator.
        readmit_in: Option<Duration>,
    },
    /// It does not accept the credentials that it was shown, or wants some.
    NeedsAuth {
        /// What it said.
        cause: &'a str,
        /// When it is asked again.
        retry_in: Duration,
    },
    /// It has been out for as long as the config says, and is in again.
    Readmitted,
    /// Calls are held back from it.
    BreakerOpened {
        /// For how long.
        wait: Duration,
    },
    /// Calls reach it again.
    BreakerClosed,
    /// An operator did something with it.
    Operated {
        /// What.
        action: OperatorAction,
        /// Who, where the host was told.
        by: Option<&'a Caller>,
    },
    /// It lists a resource or template that another server owns.
    ResourceShadowed {
        /// The URI or template.
        uri: &'a str,
        /// The server that is asked instead.
        owner: &'a str,
    },
    /// A tool's definition is not the approved one.
    DefinitionChanged {
        /// Which tool.
        tool: &'a str,
        /// What that means: a word of the pins.
        pin_status: &'a str,
        /// Whether callers are refused it.
        is_refused: bool,
    },
}

/// What operators do with servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorAction {
    /// A server was registered under a free name.
    Register,
    /// Another spec took the place of one.
    Replace,
    /// It was taken out.
    Remove,
    /// It was brought up.
    Start,
    /// It was stopped.
    Stop,
    /// It got a fresh session and a clean record.
    Reload,
}

impl OperatorAction {
    /// The word used in records.
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

/// Takes what happens. No lock is held when it is called, but a server's task
/// or a call may be waiting for it: it must not block.
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
    /// Tells whoever observes, if the host is still there.
    pub(crate) fn notify_observers(&self, happening: &LifecycleEvent<'_>) {
        if let Some(host) = self.upgrade() {
            host.notify_observers(happening);
        }
    }
}
