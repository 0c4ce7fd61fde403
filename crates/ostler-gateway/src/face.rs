//! Which servers an endpoint shows.

use ostler_core::name::ServerName;

/// Which servers an endpoint shows, and under which names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Face {
    /// All that the caller may see; tools and prompts are called `server__name`.
    All,
    /// One server under its own names.
    One(ServerName),
}

impl Face {
    /// The server, if it is one server's.
    pub(crate) fn server(&self) -> Option<&ServerName> {
        match self {
            Self::All => None,
            Self::One(server) => Some(server),
        }
    }

    /// Returns whether the endpoint shows a server, to callers that may see it.
    pub(crate) fn shows(&self, server: &ServerName) -> bool {
        self.server().is_none_or(|only| only == server)
    }
}
