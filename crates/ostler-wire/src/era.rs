//! The two eras of MCP.

/// The revision of the modern, stateless era that we speak.
pub const MODERN_VERSION: &str = "2026-07-28";

/// Revisions of the legacy era, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How a peer wants to be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Stateless: every request carries version and capabilities in `_meta`.
    Modern,
    /// A session opened by `initialize`.
    Legacy,
}

/// Who we say we are: `clientInfo` in both eras.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientInfo {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
}
