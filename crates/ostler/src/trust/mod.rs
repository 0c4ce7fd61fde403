//! Consent to configs found in the working directory.
//!
//! Such a file may be another person's. None of its commands runs and none of its addresses is contacted before the
//! user consents, with `ostler trust` or at a terminal. `--config` is consent; the user's own config needs none.
//! Consent is for one path and one [`ConfigEffects::fingerprint`]: limits and roles may change, commands may not.

pub(crate) mod effects;
pub(crate) mod store;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use ostler_core::config::Config;

pub(crate) use self::effects::ConfigEffects;
use self::store::{TrustStore, consent_path};
use crate::config_file::{ConfigOrigin, relative_to_cwd};
use crate::failure::CommandFailure;
use crate::output::{Style, Tint, print_stderr};

/// Upper bound on an answer from a terminal.
const MAX_ANSWER_BYTES: u64 = 16;

/// Trust in a config that was found in the working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustState {
    Trusted,
    /// It was trusted with other commands or addresses.
    Edited,
    New,
}

/// Refuses a config that needs consent and has none. Asks at a terminal.
pub(crate) fn require_trust(
    origin: ConfigOrigin,
    file: &Path,
    config: &Config,
) -> Result<(), CommandFailure> {
    let standing = trust_state(origin, file, config);
    if standing == TrustState::Trusted {
        return Ok(());
    }
    let effects = ConfigEffects::of(config);
    print_stderr(&format!(
        "{} wants to do this:\n{}",
        relative_to_cwd(file).display(),
        effects.describe(Style::stderr())
    ));
    if io::stdin().is_terminal() && io::stderr().is_terminal() && ask_consent(file, standing) {
        return record_consent(file, &effects);
    }
    Err(CommandFailure::Untrusted {
        file: relative_to_cwd(file).to_owned(),
        is_edited: standing == TrustState::Edited,
    })
}

/// Returns the trust in a config. Without a state directory no config is trusted.
pub(crate) fn trust_state(origin: ConfigOrigin, file: &Path, config: &Config) -> TrustState {
    if origin != ConfigOrigin::WorkingDirectory {
        return TrustState::Trusted;
    }
    let trusted = TrustStore::open().ok().and_then(|store| store.fingerprint(&consent_path(file)));
    match trusted {
        None => TrustState::New,
        Some(trusted) if trusted == ConfigEffects::of(config).fingerprint => TrustState::Trusted,
        Some(_) => TrustState::Edited,
    }
}

/// Reports that a config needs consent before its servers run, if it does.
pub(crate) fn print_trust_state(origin: ConfigOrigin, file: &Path, config: &Config) {
    match trust_state(origin, file, config) {
        TrustState::Trusted => {}
        TrustState::New => print_stderr("not trusted yet: `ostler trust`"),
        TrustState::Edited => print_stderr("not trusted as it is now: `ostler trust`"),
    }
}

/// Records consent to a config as it is now.
pub(crate) fn record_consent(file: &Path, effects: &ConfigEffects) -> Result<(), CommandFailure> {
    let mut store = TrustStore::open()?;
    store.add(&consent_path(file), &effects.fingerprint);
    store.write()
}

fn ask_consent(file: &Path, standing: TrustState) -> bool {
    let style = Style::stderr();
    let reason = match standing {
        TrustState::Edited => "has changed since it was trusted",
        TrustState::New | TrustState::Trusted => "was found in this directory",
    };
    let file = style.paint(Tint::Heading, &relative_to_cwd(file).display().to_string());
    // Without a question on the screen there is no consent.
    let question = format!("{file} {reason}. Trust it and go on? [y/N] ");
    if io::stderr().write_all(question.as_bytes()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = io::Read::take(io::stdin().lock(), MAX_ANSWER_BYTES).read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
