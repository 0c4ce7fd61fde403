//! `ostler trust`: consent to a config found in a working directory.

use std::path::{Path, PathBuf};

use ostler_core::shell::quote;

use super::operate::{self, LockOnDisk};
use crate::cli;
use crate::config_file::{self, Found, Reading, shown};
use crate::failure::Failure;
use crate::output::{self, Style, tell};
use crate::reach;
use crate::spot::Spot;
use crate::trust::store::{Store, path_of};
use crate::trust::{self, Effects};

pub(super) fn run(typed: &cli::Trust, shared: &cli::Shared) -> Result<(), Failure> {
    if typed.list {
        let store = Store::open()?;
        let lines: String = store
            .paths()
            .iter()
            .map(|path| format!("{}\n", output::clean(&path.to_string_lossy())))
            .collect();
        if lines.is_empty() {
            tell(
                "no config is trusted; `ostler trust` in a project's directory shows its config and trusts it",
            );
        }
        return output::print(&lines);
    }
    let file = config(typed, shared)?;
    if typed.revoke {
        return revoke(&file);
    }
    let Reading { config, problems, .. } = config_file::read(file.clone())?;
    let effects = Effects::of(&config_file::usable(&file, config, &problems)?);
    trust::record(&file, &effects)?;
    output::print(&format!("trusted {}\n{}\n", shown(&file).display(), effects.describe(Style::stdout())))?;
    take_up(&file)
}

/// The config that is meant: the named one, or the one that a command finds in the directory. A file that was typed
/// stands for itself alone: consent for another one would be a surprise.
fn config(typed: &cli::Trust, shared: &cli::Shared) -> Result<PathBuf, Failure> {
    let path = typed.folder.as_deref().unwrap_or(Path::new("."));
    if typed.revoke && shared.config.is_none() && Store::open()?.fingerprint(&path_of_typed(path)?).is_some()
    {
        return path_of_typed(path);
    }
    let found = match &shared.config {
        Some(named) => config_file::find(Some(named))?,
        None if path.is_dir() => config_file::find_in(path)?,
        None if path.exists() => return named_file(path),
        None => {
            return Err(Failure::Usage {
                what: format!("there is no directory `{}`", output::clean(&path.to_string_lossy())),
                hint: Some(
                    "name the directory of a config, or none for this one; `ostler trust --list` shows trusted \
                     configs"
                        .into(),
                ),
            });
        }
    };
    match found {
        Found::File { file, .. } => Ok(file),
        Found::Nowhere(looked_for) => Err(Failure::NoConfig { looked_for }),
    }
}

/// A file that was typed in place of its directory, if it is the config that commands find there.
fn named_file(typed: &Path) -> Result<PathBuf, Failure> {
    let wanted = path_of_typed(typed)?;
    let folder = wanted.parent().unwrap_or(&wanted);
    let found = config_file::find_in(folder)?;
    match found.file() {
        Some(file) if path_of(file) == wanted => Ok(wanted),
        found => {
            let name = output::clean(&typed.to_string_lossy());
            let trusted = found.map(|file| format!("; {} is", quote(&shown(file).display().to_string())));
            Err(Failure::Usage {
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

/// The path that consent for a typed path is for.
fn path_of_typed(typed: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(typed).map(|file| path_of(&file)).map_err(Failure::Machine)
}

fn revoke(file: &Path) -> Result<(), Failure> {
    let mut store = Store::open()?;
    match store.remove(&path_of(file)) {
        true => {
            store.write()?;
            tell(&format!(
                "{} is not trusted any more; a daemon that runs goes on with what it has",
                shown(file).display()
            ));
        }
        false => tell(&format!("{} was not trusted", shown(file).display())),
    }
    Ok(())
}

/// Has a running daemon apply an edit that waited for consent.
fn take_up(file: &Path) -> Result<(), Failure> {
    match Spot::of(Some(file)).ok().and_then(|spot| reach::running(&spot)) {
        Some(there) => operate::reload(there, LockOnDisk::Kept),
        None => Ok(()),
    }
}
