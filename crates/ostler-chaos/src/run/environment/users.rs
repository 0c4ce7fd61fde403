//! Users of a run, with their roles.

use ostler_chaos::history::CallRoute;

/// A caller's credential: a token, or the name and role of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestUser {
    pub(crate) name: &'static str,
    pub(crate) role: &'static str,
}

/// The role that may use everything.
pub(crate) const ALL: &str = "all";
/// The role that may use most tools, on most servers.
pub(crate) const SOME: &str = "some";
/// The role that may use nothing.
pub(crate) const NONE: &str = "none";

/// Users with tokens.
pub(crate) const TOKEN_USERS: [TestUser; 4] = [
    TestUser { name: "ada", role: ALL },
    TestUser { name: "cyd", role: SOME },
    TestUser { name: "bob", role: ALL },
    TestUser { name: "dan", role: NONE },
];

/// The abusive caller. Its calls are not in the records.
pub(crate) const ABUSER: TestUser = TestUser { name: "hal", role: ALL };

/// Users behind the relay.
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
    /// Returns whether the config lets this user call a tool. The checker does not rely on it.
    pub(crate) fn may_use(&self, server: &str, tool: &str) -> bool {
        match self.role {
            ALL => true,
            SOME => server != HIDDEN && tool != FORBIDDEN,
            _ => false,
        }
    }
}

/// Returns the user of the nth caller of a route.
pub(crate) fn user_for(way: CallRoute, number: usize) -> &'static TestUser {
    match way {
        CallRoute::Relay => &WORKER_USERS[number % WORKER_USERS.len()],
        _ => &TOKEN_USERS[number % TOKEN_USERS.len()],
    }
}
