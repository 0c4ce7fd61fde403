//! History of a run: what callers saw, in the order they saw it.
//!
//! Times are microseconds of the wall clock of the one machine that everything runs on, so that
//! they compare with those of the [ledgers](crate::ledger).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub type Micros = u64;

/// The number of a call. It travels in the arguments, comes back in the answer, and stands in the
/// ledger of the server that executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNumber(pub u64);

impl fmt::Display for CallNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The route of a call into the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallRoute {
    /// Streamable HTTP in a session, at the endpoint of all servers.
    HttpLegacy,
    /// Streamable HTTP of revision 2026-07-28.
    HttpModern,
    /// The endpoint of one server.
    HttpFace,
    /// `ostler stdio`.
    Stdio,
    /// A worker, over the broker.
    Relay,
}

/// The purpose of a call, which decides what is checked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// An allowed call of a tool that must not run twice.
    Once,
    /// A call that the caller's role forbids: it must not run at all.
    Forbidden,
    /// A call whose answer may be cached for its caller only.
    Private,
    /// A call of a tool that fails on purpose, to open a breaker.
    Sick,
}

/// The facts of a call at its begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoke {
    pub call: CallNumber,
    pub at: Micros,
    pub way: CallRoute,
    /// The user, as the daemon's credential says.
    pub principal: String,
    pub role: String,
    pub server: String,
    pub tool: String,
    pub purpose: Purpose,
    /// The time by which it must be over, whatever happens.
    pub deadline: Micros,
}

/// The end of a call for its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum CallEnd {
    /// A result. `echoed` is the number found in it; `stamp` names the execution that made it.
    Ok { echoed: Option<CallNumber>, stamp: Option<String> },
    /// The daemon says that the tool did not run, or the tool itself refused.
    Fail { kind: String, code: i64, ran: Ran },
    /// `outcome-unknown`, or the connection to the daemon broke after the request was sent.
    Unknown { why: String },
}

/// The statement of a failure about the execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ran {
    /// Refused, overloaded, not sent: it did not run.
    No,
    /// The server itself answered with the error.
    Yes,
}

/// A process of the daemon's family, seen at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenProcess {
    pub pid: u32,
    pub name: String,
    pub is_zombie: bool,
}

/// One line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum HistoryEvent {
    Invoke(Invoke),
    End {
        call: CallNumber,
        at: Micros,
        #[serde(flatten)]
        end: CallEnd,
    },
    /// Names of tools that one route listed to one role, as `server__tool` on every route, also
    /// where the route itself lists them without their server.
    Listed {
        at: Micros,
        way: CallRoute,
        principal: String,
        role: String,
        tools: Vec<String>,
    },
    /// The nemesis begins or ends an act.
    Nemesis {
        at: Micros,
        act: String,
        target: String,
        begins: bool,
    },
    /// The settings of a server's breaker: how many failures in a row open it, and for how long at
    /// first. Servers without this line are not checked.
    Breaker {
        server: String,
        failures: u32,
        wait: Micros,
    },
    /// A server that good callers share with an abusive one, and that nothing else harms.
    Shared {
        server: String,
    },
    /// The tools that a role may not use, as `server__tool`, in addition to those of forbidden
    /// calls.
    Forbidden {
        role: String,
        tools: Vec<String>,
    },
    /// The nemesis is done for good: from here on everything works.
    Calm {
        at: Micros,
    },
    /// Every living descendant of the daemon, or of one that was killed.
    Census {
        at: Micros,
        occasion: Occasion,
        processes: Vec<SeenProcess>,
    },
}

/// The occasion of a census.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// During the run: a zombie may be about to be reaped.
    Running,
    /// While no caller makes a request: nothing may be started.
    Idle,
    /// Six seconds after the daemon was killed or ended: nothing may be left.
    Over,
}
