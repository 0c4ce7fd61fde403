//! `[defaults]`: settings of all servers.

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;
use super::transport;
use crate::spec::{ServerSpec, Transport};

/// Settings of all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Variables that every server with a command is given, see [`Process::env_pass`](crate::spec::Process::env_pass).
    pub env_pass: Vec<String>,
    /// Whether a daemon that was started without a terminal adds the directories of the login shell's `PATH`.
    pub login_path: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { env_pass: Vec::new(), login_path: true }
    }
}

pub(crate) static SECTION: Section = Section {
    name: "defaults",
    doc: "Settings of all servers.",
    fields: &[
        Field {
            key: "env_pass",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "Variables of Ostler's environment that every program is given, beside its own env_pass.",
        },
        Field {
            key: "login_path",
            kind: Kind::Flag,
            preset: Preset::Flag(true),
            doc: "Whether a daemon that is started without a terminal and with the PATH of the system alone asks the login shell \
                  for more.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> Defaults {
    let env_pass = transport::read_env_pass(&reader);
    let login_path = reader.flag("login_path").unwrap_or(true);
    reader.finish();
    Defaults { env_pass, login_path }
}

impl Defaults {
    /// Adds the settings to a server that has its own.
    pub(crate) fn apply(&self, spec: &mut ServerSpec) {
        let Transport::Stdio(process) = &mut spec.transport else { return };
        let missing = self.env_pass.iter().filter(|pattern| !process.env_pass.contains(pattern));
        let missing: Vec<String> = missing.cloned().collect();
        process.env_pass.extend(missing);
    }
}
