//! The two eras of MCP.

/// Supported revision of the modern, stateless era.
pub const MODERN_VERSION: &str = "2026-07-28";

/// Supported revisions of the legacy era, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Protocol era of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Stateless: every request carries version and capabilities in `_meta`.
    Modern,
    /// Stateful: `initialize` opens a session.
    Legacy,
}

/// Our own identity: `clientInfo` in both eras.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientInfo {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
}
