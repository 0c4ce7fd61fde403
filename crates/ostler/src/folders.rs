//! Where files of a user live, as the XDG base directory specification has it.

use std::path::{Path, PathBuf};

/// The user's home.
pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// Where Ostler's own config is looked for.
pub(crate) fn config() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// Where Ostler keeps what it learns.
pub(crate) fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// Where Ostler keeps what is true only while it runs; not every machine has such a place.
pub(crate) fn runtime() -> Option<PathBuf> {
    absolute("XDG_RUNTIME_DIR").map(|folder| folder.join("ostler"))
}

/// A path as people write it: `~` is their home.
pub(crate) fn short(path: &Path) -> String {
    match home().and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => path.display().to_string(),
    }
}

fn folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let folder = absolute(variable).or_else(|| Some(home()?.join(in_home)))?;
    Some(folder.join("ostler"))
}

/// The specification says that relative paths are to be ignored.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
