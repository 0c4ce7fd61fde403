//! Consent to configs found in the working directory.
//!
//! Such a file may be another person's. None of its commands runs and none of its addresses is contacted before the
//! user consents, with `ostler trust` or at a terminal. `--config` is consent; the user's own config needs none.
//! Consent is for one path and one [`Effects::fingerprint`]: limits and roles may change, commands may not.

pub(crate) mod effects;
pub(crate) mod store;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use ostler_core::config::Config;

pub(crate) use self::effects::Effects;
use self::store::{Store, path_of};
use crate::config_file::{Origin, shown};
use crate::failure::Failure;
use crate::output::{Style, Tint, tell};

/// The longest answer that is read from a terminal.
const LONGEST_ANSWER: u64 = 16;

/// State of a config that was found in the working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Trusted,
    /// It was trusted with other commands or addresses.
    Edited,
    New,
}

/// Refuses a config that needs consent and has none. A terminal is asked.
pub(crate) fn require(origin: Origin, file: &Path, config: &Config) -> Result<(), Failure> {
    let standing = standing(origin, file, config);
    if standing == Standing::Trusted {
        return Ok(());
    }
    let effects = Effects::of(config);
    tell(&format!("{} wants to do this:\n{}", shown(file).display(), effects.describe(Style::stderr())));
    if io::stdin().is_terminal() && io::stderr().is_terminal() && ask(file, standing) {
        return record(file, &effects);
    }
    Err(Failure::Untrusted { file: shown(file).to_owned(), is_edited: standing == Standing::Edited })
}

/// State of a config. Without a state directory nothing has been consented to.
pub(crate) fn standing(origin: Origin, file: &Path, config: &Config) -> Standing {
    if origin != Origin::WorkingDirectory {
        return Standing::Trusted;
    }
    let trusted = Store::open().ok().and_then(|store| store.fingerprint(&path_of(file)));
    match trusted {
        None => Standing::New,
        Some(trusted) if trusted == Effects::of(config).fingerprint => Standing::Trusted,
        Some(_) => Standing::Edited,
    }
}

/// Tells that a config needs consent before its servers run, if it does.
pub(crate) fn tell_standing(origin: Origin, file: &Path, config: &Config) {
    match standing(origin, file, config) {
        Standing::Trusted => {}
        Standing::New => tell("not trusted yet: `ostler trust`"),
        Standing::Edited => tell("not trusted as it is now: `ostler trust`"),
    }
}

/// Records consent to a config as it is now.
pub(crate) fn record(file: &Path, effects: &Effects) -> Result<(), Failure> {
    let mut store = Store::open()?;
    store.add(&path_of(file), &effects.fingerprint);
    store.write()
}

fn ask(file: &Path, standing: Standing) -> bool {
    let style = Style::stderr();
    let reason = match standing {
        Standing::Edited => "has changed since it was trusted",
        Standing::New | Standing::Trusted => "was found in this directory",
    };
    let file = style.paint(Tint::Heading, &shown(file).display().to_string());
    // Without a question on the screen there is no consent.
    let question = format!("{file} {reason}. Trust it and go on? [y/N] ");
    if io::stderr().write_all(question.as_bytes()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = io::Read::take(io::stdin().lock(), LONGEST_ANSWER).read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
