//! `[pins]`: what happens when a tool's definition is not the approved one.

use serde::{Deserialize, Serialize};

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;

/// What happens when a tool's definition is not the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PinMode {
    /// The tool is hidden and refused until somebody approves it; without a lock file, nothing.
    #[default]
    Enforce,
    /// The tool is allowed and flagged.
    Warn,
    /// Definitions are not compared.
    Off,
}

pub(crate) static SECTION: Section = Section {
    name: "pins",
    doc: "What happens when a tool's definition is not the approved one.",
    fields: &[Field {
        key: "mode",
        kind: Kind::Choice(&["enforce", "warn", "off"]),
        preset: Preset::Text("enforce"),
        doc: "enforce hides and refuses a changed tool once a lock file exists; warn flags it; off looks away.",
    }],
};

pub(crate) fn read(reader: Reader<'_>) -> PinMode {
    let mode = match reader.choice("mode") {
        Some("warn") => PinMode::Warn,
        Some("off") => PinMode::Off,
        _ => PinMode::Enforce,
    };
    reader.finish();
    mode
}
