//! `[admin]`: what the admin API may do.

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;

/// What the admin API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Admin {
    /// Whether it may add servers with a `command`, which is to run programs on this machine.
    pub allow_spawn: bool,
}

pub(crate) static SECTION: Section = Section {
    name: "admin",
    doc: "What the admin API may do.",
    fields: &[Field {
        key: "allow_spawn",
        kind: Kind::Flag,
        preset: Preset::Flag(false),
        doc: "Whether it may add servers with a command, which is to run programs on this machine.",
    }],
};

pub(crate) fn read(reader: Reader<'_>) -> Admin {
    let admin = Admin { allow_spawn: reader.flag("allow_spawn").unwrap_or(false) };
    reader.finish();
    admin
}
