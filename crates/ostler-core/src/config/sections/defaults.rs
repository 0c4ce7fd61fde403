//! `[defaults]`: settings of all servers.

use super::transport::env_pass;
use crate::config::keys::section::section;
use crate::spec::{ServerSpec, ServerTransport};

section! {
    /// Settings of all servers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DefaultsConfig("defaults", default, plan) {
        /// Variables of Ostler's environment that every program receives, beside its own env_pass.
        env_pass: Vec<String> = texts([]) => env_pass;
        /// True if a daemon started without a terminal and with only the system's PATH asks the login shell
        /// for a longer one.
        login_path: bool = flag(true), at_start;
    }
}

impl DefaultsConfig {
    /// Adds the settings to those of a server.
    pub(crate) fn apply(&self, spec: &mut ServerSpec) {
        let ServerTransport::Stdio(process) = &mut spec.transport else { return };
        let missing = self.env_pass.iter().filter(|pattern| !process.env_pass.contains(pattern));
        let missing: Vec<String> = missing.cloned().collect();
        process.env_pass.extend(missing);
    }
}
