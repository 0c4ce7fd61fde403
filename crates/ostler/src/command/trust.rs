//! `ostler trust`: consent to a config found in a working directory.

use std::path::{Path, PathBuf};

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

/// The config that is meant: the named one, or the one that a command finds in the directory.
fn config(typed: &cli::Trust, shared: &cli::Shared) -> Result<PathBuf, Failure> {
    let folder = typed.folder.as_deref().unwrap_or(Path::new("."));
    let found = match &shared.config {
        Some(named) => config_file::find(Some(named))?,
        None => config_file::find_in(folder)?,
    };
    match found {
        Found::File { file, .. } => Ok(file),
        Found::Nowhere(looked_for) => Err(Failure::NoConfig { looked_for }),
    }
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
