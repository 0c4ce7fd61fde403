//! Who calls.

use ostler_chaos::history::Way;

/// A caller's credential: a token, or the name and role of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) role: &'static str,
}

/// May use everything.
pub(crate) const ALL: &str = "all";
/// May use most, on most servers.
pub(crate) const SOME: &str = "some";
/// May use nothing.
pub(crate) const NONE: &str = "none";

/// Those with tokens.
pub(crate) const PEOPLE: [Person; 4] = [
    Person { name: "ada", role: ALL },
    Person { name: "cyd", role: SOME },
    Person { name: "bob", role: ALL },
    Person { name: "dan", role: NONE },
];

/// The abusive caller. Its calls are not in the records.
pub(crate) const ABUSER: Person = Person { name: "hal", role: ALL };

/// Those behind the relay.
pub(crate) const WORKERS: [Person; 3] = [
    Person { name: "eve", role: ALL },
    Person { name: "fay", role: SOME },
    Person { name: "gus", role: ALL },
];

/// The server that the role `some` may not see at all.
pub(crate) const HIDDEN: &str = "b";
/// The tools that are called.
pub(crate) const TOOLS: [&str; 3] = ["deed", FORBIDDEN, "secret"];
/// The tool that only the role `all` may use.
pub(crate) const FORBIDDEN: &str = "misdeed";

impl Person {
    /// Whether the config lets this person use a tool. The checker has its own opinion.
    pub(crate) fn may(&self, server: &str, tool: &str) -> bool {
        match self.role {
            ALL => true,
            SOME => server != HIDDEN && tool != FORBIDDEN,
            _ => false,
        }
    }
}

/// Who takes the n-th seat of a way.
pub(crate) fn seated(way: Way, number: usize) -> &'static Person {
    match way {
        Way::Relay => &WORKERS[number % WORKERS.len()],
        _ => &PEOPLE[number % PEOPLE.len()],
    }
}
