//! `[pins]`: handling of tools whose definition is not the approved one.

use serde::{Deserialize, Serialize};

use crate::config::keys::Settings as _;
use crate::config::keys::section::{section, words};
use crate::config::read::SectionReader;

words! {
    /// Handling of a tool whose definition is not the approved one.
    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum PinMode {
        /// The tool is hidden and refused until it is approved; without a lock file, nothing is checked.
        Enforce = "enforce",
        /// The tool is allowed and flagged.
        Warn = "warn",
        /// Definitions are not compared.
        Off = "off",
    }
}

section! {
    /// Handling of tools whose definition is not the approved one.
    pub(crate) struct PinsConfig("pins") {
        /// enforce hides and refuses a changed tool once a lock file exists; warn flags it; off does not
        /// compare.
        mode: PinMode = choice;
    }
}

/// Reads the section, which is its mode.
pub(crate) fn mode(reader: &SectionReader<'_>, key: &'static str) -> Option<PinMode> {
    reader.section(key).map(|found| PinsConfig::preset().filled(found).mode)
}
