//! `[defaults]`: settings of all servers.

use super::transport::env_pass;
use crate::config::keys::section::section;
use crate::spec::{ServerSpec, ServerTransport};

section! {
    /// Settings of all servers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DefaultsConfig("defaults", default, plan) {
        /// Variables of Ostler's environment that every program is given, beside its own env_pass.
        env_pass: Vec<String> = texts([]) => env_pass;
        /// Whether a daemon that is started without a terminal and with the PATH of the system alone asks the login shell for more.
        login_path: bool = flag(true), at_start;
    }
}

impl DefaultsConfig {
    /// Adds the settings to a server that has its own.
    pub(crate) fn apply(&self, spec: &mut ServerSpec) {
        let ServerTransport::Stdio(process) = &mut spec.transport else { return };
        let missing = self.env_pass.iter().filter(|pattern| !process.env_pass.contains(pattern));
        let missing: Vec<String> = missing.cloned().collect();
        process.env_pass.extend(missing);
    }
}
