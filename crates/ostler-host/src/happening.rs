//! What happens to servers, told to whoever keeps a record of it.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::supervisor::Ejection;

use crate::host::{Host, WeakHost};

/// Something that happened to one server.
#[derive(Debug, Clone, Copy)]
pub struct Happening<'a> {
    /// Which server.
    pub server: &'a str,
    /// Whose process of an isolated server; empty where all callers share one.
    pub partition: &'a str,
    /// What happened.
    pub what: What<'a>,
}

impl<'a> Happening<'a> {
    /// Something that happened to a server as a whole.
    pub fn of(server: &'a str, what: What<'a>) -> Self {
        Self { server, partition: "", what }
    }
}

/// What can happen to a server.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
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
    /// Another start will be tried.
    RestartPlanned {
        /// How long it waits before that.
        delay: Duration,
    },
    /// It is out until an operator reloads it, or until it is readmitted.
    Ejected {
        /// What led to it.
        ejection: Ejection,
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
        act: Act,
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
        standing: &'a str,
        /// Whether callers are refused it.
        is_refused: bool,
    },
}

/// What operators do with servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
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

impl Act {
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
pub type Observer = Arc<dyn Fn(&Happening<'_>) + Send + Sync>;

impl Host {
    pub(crate) fn operated(&self, server: &str, act: Act, by: Option<&Caller>) {
        self.happened(&Happening::of(server, What::Operated { act, by }));
    }
}

impl WeakHost {
    /// Tells whoever observes, if the host is still there.
    pub(crate) fn happened(&self, happening: &Happening<'_>) {
        if let Some(host) = self.upgrade() {
            host.happened(happening);
        }
    }
}
