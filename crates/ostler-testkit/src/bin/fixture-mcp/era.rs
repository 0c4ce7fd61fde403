//! Which revisions of the protocol the fixture admits to.

use std::borrow::Cow;

use rmcp::model::ProtocolVersion;

/// The last revision that begins with `initialize`.
const LAST_LEGACY: ProtocolVersion = ProtocolVersion::V_2025_11_25;
const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedEras {
    /// Both, as the client likes.
    Dual,
    /// Every request stands alone; `initialize` is refused.
    ModernOnly,
    /// Never heard of requests that stand alone.
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

    /// Whether a request of this revision is answered at all.
    pub(crate) fn supports(self, version: &str) -> bool {
        self.versions().iter().any(|known| known.as_str() == version)
    }
}

/// Whether a request of this revision stands alone, so that nothing can be
/// asked of its client but through the answer.
pub(crate) fn is_stateless(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() > LAST_LEGACY.as_str())
}
