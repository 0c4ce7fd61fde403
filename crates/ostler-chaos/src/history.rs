//! What callers saw, in the order they saw it.
//!
//! Times are microseconds of the wall clock of the one machine that everything
//! runs on, so that they compare with those of the [ledgers](crate::ledger).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub type Micros = u64;

/// A call's own number. It travels in the arguments, comes back in the answer,
/// and stands in the ledger of the server that executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallNumber(pub u64);

impl fmt::Display for CallNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The way a call takes into the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallRoute {
    /// Streamable HTTP in a session, everything behind one endpoint.
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

/// What a call is made for, and so what is checked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// An allowed call of a tool that must not run twice.
    Once,
    /// A call that the caller's role does not allow: it must not run at all.
    Forbidden,
    /// A call whose answer the server lets be remembered for its caller only.
    Private,
    /// A call of a tool that fails on purpose, to open a breaker.
    Sick,
}

/// What is known of a call when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoke {
    pub call: CallNumber,
    pub at: Micros,
    pub way: CallRoute,
    /// Whose call it is, as the daemon's credential says.
    pub principal: String,
    pub role: String,
    pub server: String,
    pub tool: String,
    pub purpose: Purpose,
    /// When it must be over, whatever happens.
    pub deadline: Micros,
}

/// How a call ended for its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum CallEnd {
    /// A result. `echoed` is the number found in it; `stamp` names the
    /// execution that made it.
    Ok { echoed: Option<CallNumber>, stamp: Option<String> },
    /// The daemon says that the tool did not run, or the tool itself said no.
    Fail { kind: String, code: i64, ran: Ran },
    /// `outcome-unknown`, or the connection to the daemon broke after the
    /// request was sent.
    Unknown { why: String },
}

/// What a failure says about the execution.
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
    /// Names of tools that one way showed to one role, as `server__tool` on
    /// every way, also where the way itself shows them without their server.
    Listed {
        at: Micros,
        way: CallRoute,
        principal: String,
        role: String,
        tools: Vec<String>,
    },
    /// The nemesis begins or ends something.
    Nemesis {
        at: Micros,
        act: String,
        target: String,
        begins: bool,
    },
    /// How the breaker of a server is set: how many failures in a row open it,
    /// and for how long at first. Servers without this line are not held to it.
    Breaker {
        server: String,
        failures: u32,
        wait: Micros,
    },
    /// A server that good callers share with an abusive one, and that nothing else harms.
    Shared {
        server: String,
    },
    /// What a role may not use, as `server__tool`, beside what calls say of that.
    Forbidden {
        role: String,
        tools: Vec<String>,
    },
    /// The nemesis is done for good: from here on everything works.
    Calm {
        at: Micros,
    },
    /// Everything that descends from the daemon, or did before it was killed.
    Census {
        at: Micros,
        occasion: Occasion,
        processes: Vec<SeenProcess>,
    },
}

/// When a census was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// In the middle of things: a zombie may be about to be reaped.
    Running,
    /// While no caller asks for anything: nothing may be started.
    Idle,
    /// Six seconds after the daemon was killed or ended: nothing may be left.
    Over,
}
