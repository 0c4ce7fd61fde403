//! Directories of the XDG base directory specification.

use std::path::{Path, PathBuf};

/// Returns the user's home; that of the user database where `HOME` is not set.
pub(crate) fn home() -> Option<PathBuf> {
    absolute_env("HOME").or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??;
        Some(user.dir).filter(|home| home.is_absolute())
    })
}

/// Returns the directory of Ostler's own config.
pub(crate) fn config_dir() -> Option<PathBuf> {
    xdg_dir("XDG_CONFIG_HOME", ".config")
}

/// Returns the directory of Ostler's state.
pub(crate) fn state_dir() -> Option<PathBuf> {
    xdg_dir("XDG_STATE_HOME", ".local/state")
}

/// Returns the directories for records of daemons, best first. Only the last depends on a variable that clients may
/// remove; it is for homes that can't be written to or have no locks.
pub(crate) fn instance_dirs() -> Vec<PathBuf> {
    let at_home = home().map(|home| home.join(".local/state/ostler"));
    let runtime = PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()));
    let runtime = runtime.is_dir().then(|| runtime.join("ostler"));
    let mut places: Vec<PathBuf> = Vec::new();
    for place in [at_home, runtime, state_dir()].into_iter().flatten() {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Returns a path with `~` for the home.
pub(crate) fn abbreviate_home(path: &Path) -> String {
    match home().and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => path.display().to_string(),
    }
}

fn xdg_dir(variable: &str, in_home: &str) -> Option<PathBuf> {
    let folder = absolute_env(variable).or_else(|| Some(home()?.join(in_home)))?;
    Some(folder.join("ostler"))
}

/// Returns the path in a variable. Relative paths are ignored, as the specification demands.
fn absolute_env(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
