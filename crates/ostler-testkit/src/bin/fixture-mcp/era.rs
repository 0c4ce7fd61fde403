//! Revisions of the protocol that the fixture serves.

use std::borrow::Cow;

use rmcp::model::ProtocolVersion;

/// The last revision that begins with `initialize`.
const LAST_LEGACY: ProtocolVersion = ProtocolVersion::V_2025_11_25;
const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedEras {
    /// Both eras.
    Dual,
    /// Stateless requests only; `initialize` is refused.
    ModernOnly,
    /// Revisions with a handshake only; stateless requests are unknown.
    LegacyOnly,
}

impl ServedEras {
    pub(crate) fn versions(self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self {
            Self::Dual => ProtocolVersion::KNOWN_VERSIONS,
            Self::ModernOnly => MODERN,
            Self::LegacyOnly => ProtocolVersion::known_up_to(&LAST_LEGACY),
        })
    }

    /// Returns whether a request of this revision is answered.
    pub(crate) fn supports(self, version: &str) -> bool {
        self.versions().iter().any(|known| known.as_str() == version)
    }
}

/// Returns whether requests of this revision are stateless: the server can ask the client only in
/// the answer.
pub(crate) fn is_stateless(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() > LAST_LEGACY.as_str())
}
