//! What a build that is broken on purpose says of itself.

#[cfg(feature = "sabotage")]
pub(crate) use self::broken::{VERSION, refuse_unknown, warn};
#[cfg(not(feature = "sabotage"))]
pub(crate) use self::honest::{VERSION, refuse_unknown, warn};

#[cfg(not(feature = "sabotage"))]
mod honest {
    use std::process::ExitCode;

    /// What `--version` says.
    pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

    pub(crate) const fn refuse_unknown() -> Option<ExitCode> {
        None
    }

    pub(crate) const fn warn() {}
}

#[cfg(feature = "sabotage")]
mod broken {
    use std::process::ExitCode;

    use ostler_core::sabotage::{Sabotage, VARIABLE, chosen};

    use crate::output::tell;

    /// What `--version` says.
    pub(crate) const VERSION: &str =
        concat!(env!("CARGO_PKG_VERSION"), " (sabotaged: broken on purpose, never to be used)");

    /// The exit code of what was typed wrong.
    const USAGE: u8 = 2;

    /// A proof with a fault that does not exist would prove nothing.
    pub(crate) fn refuse_unknown() -> Option<ExitCode> {
        let name = chosen().err()?;
        let known: Vec<&str> = Sabotage::ALL.into_iter().map(Sabotage::name).collect();
        tell(&format!("error: {VARIABLE} names no fault: `{name}`\nhint: there are {}", known.join(", ")));
        Some(ExitCode::from(USAGE))
    }

    /// Says it where people look first.
    pub(crate) fn warn() {
        let fault = chosen().ok().flatten().map_or("none chosen", Sabotage::name);
        tell(&format!("warning: this build is broken on purpose and must never be used (fault: {fault})"));
    }
}
