//! Version of the program, which distinguishes a sabotaged build from a normal one.

/// The text of `--version`.
#[cfg(not(ostler_sabotage))]
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(ostler_sabotage)]
pub(crate) use self::broken::{VERSION, refuse_unknown, warn};

#[cfg(ostler_sabotage)]
mod broken {
    use std::process::ExitCode;

    use ostler_core::sabotage::{FAULTS, VARIABLE, chosen};

    use crate::output::print_stderr;

    /// The text of `--version`.
    pub(crate) const VERSION: &str =
        concat!(env!("CARGO_PKG_VERSION"), " (sabotaged: broken on purpose, never to be used)");

    /// Exit code of a usage error.
    const USAGE: u8 = 2;

    /// Refuses an unknown fault: a proof with it would prove nothing.
    pub(crate) fn refuse_unknown() -> Option<ExitCode> {
        let name = chosen().err()?;
        let known = FAULTS.map(|(_, name)| name).join(", ");
        print_stderr(&format!("error: {VARIABLE} names no fault: `{name}`\nhint: there are {known}"));
        Some(ExitCode::from(USAGE))
    }

    /// Warns on stderr that this build is broken.
    pub(crate) fn warn() {
        let fault = chosen().ok().flatten().map_or("none chosen", |(_, name)| name);
        print_stderr(&format!(
            "warning: this build is broken on purpose and must never be used (fault: {fault})"
        ));
    }
}
