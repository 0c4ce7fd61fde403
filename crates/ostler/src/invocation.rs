//! Suggested commands: they repeat the config and daemon flags of this process, so that the line can be pasted as it
//! is.

use std::path::Path;
use std::sync::OnceLock;

use ostler_core::shell::quote;

use crate::cli::GlobalOptions;

/// Flags that every suggested command repeats.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    flags: String,
}

/// The flags of this process.
static PROCESS_FLAGS: OnceLock<Invocation> = OnceLock::new();

/// Stores the flags that were typed, for all commands that are suggested later.
pub(crate) fn remember_flags(shared: &GlobalOptions) {
    let mut typed = Invocation::new(shared.config.as_deref());
    if let Some(daemon) = &shared.daemon {
        typed.flags.push_str(&format!(" --daemon {}", quote(&daemon.to_string())));
    }
    let _ = PROCESS_FLAGS.set(typed);
}

/// Returns `ostler status time --config FILE`, in backticks, with the flags of this process.
pub(crate) fn command(words: &str) -> String {
    PROCESS_FLAGS.get_or_init(Invocation::default).command(words)
}

impl Invocation {
    /// Returns the flags of a command for this config, as it was typed.
    pub(crate) fn new(config: Option<&Path>) -> Self {
        let config = config.map(|file| format!(" --config {}", quote(&file.display().to_string())));
        Self { flags: config.unwrap_or_default() }
    }

    /// Returns a command line in backticks.
    pub(crate) fn command(&self, words: &str) -> String {
        format!("`{}`", self.line(words))
    }

    /// Returns a command line.
    pub(crate) fn line(&self, words: &str) -> String {
        format!("ostler {words}{}", self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_carries_the_config_that_was_named() {
        let named = Invocation::new(Some(Path::new("a b.json")));
        assert_eq!(named.command("status time --probe"), "`ostler status time --probe --config 'a b.json'`");
        assert_eq!(Invocation::default().line("serve"), "ostler serve");
    }
}
