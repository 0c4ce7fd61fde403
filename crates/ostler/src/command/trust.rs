//! `ostler trust`: consent to a config found in a working directory.

use std::path::{Path, PathBuf};

use ostler_core::shell::quote;

use super::operate::{self, LockFileAction};
use crate::cli;
use crate::client;
use crate::config_file::{self, FoundConfig, LoadedConfig, relative_to_cwd};
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::output::{self, Style, print_stderr};
use crate::trust::store::{TrustStore, consent_path};
use crate::trust::{self, ConfigEffects};

pub(super) fn run(typed: &cli::TrustArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    if typed.list {
        let store = TrustStore::open()?;
        let lines: String = store
            .paths()
            .iter()
            .map(|path| format!("{}\n", output::escape_line(&path.to_string_lossy())))
            .collect();
        if lines.is_empty() {
            print_stderr(
                "no config is trusted; `ostler trust` in a project's directory shows its config and trusts it",
            );
        }
        return output::print(&lines);
    }
    let file = config_to_trust(typed, shared)?;
    if typed.revoke {
        return revoke(&file);
    }
    let LoadedConfig { config, problems, .. } = config_file::read(file.clone())?;
    let effects = ConfigEffects::of(&config_file::require_usable(&file, config, &problems)?);
    trust::record_consent(&file, &effects)?;
    output::print(&format!(
        "trusted {}\n{}\n",
        relative_to_cwd(&file).display(),
        effects.describe(Style::stdout())
    ))?;
    reload_daemon(&file)
}

/// Returns the config to trust: the named one, or the one that a command finds in the directory. A typed file never
/// stands for another one: consent must not extend to a config that was not named.
fn config_to_trust(typed: &cli::TrustArgs, shared: &cli::GlobalOptions) -> Result<PathBuf, CommandFailure> {
    let path = typed.folder.as_deref().unwrap_or(Path::new("."));
    if typed.revoke
        && shared.config.is_none()
        && TrustStore::open()?.fingerprint(&path_of_typed(path)?).is_some()
    {
        return path_of_typed(path);
    }
    let found = match &shared.config {
        Some(named) => config_file::find(Some(named))?,
        None if path.is_dir() => config_file::find_in(path)?,
        None if path.exists() => return named_file(path),
        None => {
            return Err(CommandFailure::Usage {
                what: format!("there is no directory `{}`", output::escape_line(&path.to_string_lossy())),
                hint: Some(
                    "name the directory of a config, or none for this one; `ostler trust --list` shows trusted \
                     configs"
                        .into(),
                ),
            });
        }
    };
    match found {
        FoundConfig::File { file, .. } => Ok(file),
        FoundConfig::NotFound(looked_for) => Err(CommandFailure::NoConfig { looked_for }),
    }
}

/// Returns a file that was typed in place of its directory, if it is the config that commands find there.
fn named_file(typed: &Path) -> Result<PathBuf, CommandFailure> {
    let wanted = path_of_typed(typed)?;
    let folder = wanted.parent().unwrap_or(&wanted);
    let found = config_file::find_in(folder)?;
    match found.file() {
        Some(file) if consent_path(file) == wanted => Ok(wanted),
        found => {
            let name = output::escape_line(&typed.to_string_lossy());
            let trusted =
                found.map(|file| format!("; {} is", quote(&relative_to_cwd(file).display().to_string())));
            Err(CommandFailure::Usage {
                what: format!(
                    "`{name}` is not a config that commands find by themselves{}",
                    trusted.unwrap_or_default()
                ),
                hint: Some(format!(
                    "use it with `--config {}`, which needs no trust",
                    quote(&typed.to_string_lossy())
                )),
            })
        }
    }
}

/// Returns the path that is stored for consent to a typed path.
fn path_of_typed(typed: &Path) -> Result<PathBuf, CommandFailure> {
    std::path::absolute(typed).map(|file| consent_path(&file)).map_err(CommandFailure::Machine)
}

fn revoke(file: &Path) -> Result<(), CommandFailure> {
    let mut store = TrustStore::open()?;
    match store.remove(&consent_path(file)) {
        true => {
            store.write()?;
            print_stderr(&format!(
                "{} is not trusted any more; a daemon that runs goes on with what it has",
                relative_to_cwd(file).display()
            ));
        }
        false => print_stderr(&format!("{} was not trusted", relative_to_cwd(file).display())),
    }
    Ok(())
}

/// Makes a running daemon apply an edit that waited for consent.
fn reload_daemon(file: &Path) -> Result<(), CommandFailure> {
    match DaemonInstance::for_config(Some(file)).ok().and_then(|spot| client::running_daemon(&spot).ok()?) {
        Some(there) => operate::reload(there, LockFileAction::Ignore),
        None => Ok(()),
    }
}
