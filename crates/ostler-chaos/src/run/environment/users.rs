//! Who calls.

use ostler_chaos::history::CallRoute;

/// A caller's credential: a token, or the name and role of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestUser {
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
pub(crate) const TOKEN_USERS: [TestUser; 4] = [
    TestUser { name: "ada", role: ALL },
    TestUser { name: "cyd", role: SOME },
    TestUser { name: "bob", role: ALL },
    TestUser { name: "dan", role: NONE },
];

/// The abusive caller. Its calls are not in the records.
pub(crate) const ABUSER: TestUser = TestUser { name: "hal", role: ALL };

/// Those behind the relay.
pub(crate) const WORKER_USERS: [TestUser; 3] = [
    TestUser { name: "eve", role: ALL },
    TestUser { name: "fay", role: SOME },
    TestUser { name: "gus", role: ALL },
];

/// The server that the role `some` may not see at all.
pub(crate) const HIDDEN: &str = "b";
/// The tools that are called.
pub(crate) const TOOLS: [&str; 3] = ["deed", FORBIDDEN, "secret"];
/// The tool that only the role `all` may use.
pub(crate) const FORBIDDEN: &str = "misdeed";

impl TestUser {
    /// Whether the config lets this person use a tool. The checker has its own opinion.
    pub(crate) fn may_use(&self, server: &str, tool: &str) -> bool {
        match self.role {
            ALL => true,
            SOME => server != HIDDEN && tool != FORBIDDEN,
            _ => false,
        }
    }
}

/// Who takes the n-th seat of a way.
pub(crate) fn user_for(way: CallRoute, number: usize) -> &'static TestUser {
    match way {
        CallRoute::Relay => &WORKER_USERS[number % WORKER_USERS.len()],
        _ => &TOKEN_USERS[number % TOKEN_USERS.len()],
    }
}
