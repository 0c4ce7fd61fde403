//! Where files of a user live, as the XDG base directory specification has it.

use std::path::{Path, PathBuf};

/// The user's home; that of the user database where `HOME` is not set.
pub(crate) fn home() -> Option<PathBuf> {
    absolute_env("HOME").or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??;
        Some(user.dir).filter(|home| home.is_absolute())
    })
}

/// Where Ostler's own config is looked for.
pub(crate) fn config_dir() -> Option<PathBuf> {
    xdg_dir("XDG_CONFIG_HOME", ".config")
}

/// Where Ostler keeps what it learns.
pub(crate) fn state_dir() -> Option<PathBuf> {
    xdg_dir("XDG_STATE_HOME", ".local/state")
}

/// Where daemons leave word of themselves, the best place first. None depends on a variable that clients filter away
/// but the last, which is for homes that can't be written to or have no locks.
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

/// A path as people write it: `~` is their home.
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

/// The specification says that relative paths are to be ignored.
fn absolute_env(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
