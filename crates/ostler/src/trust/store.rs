//! Trusted configs: `trusted.json` in the state directory, readable by its user alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ostler_store::private_file;
use serde::{Deserialize, Serialize};

use crate::config_file::read_at_most;
use crate::failure::CommandFailure;
use crate::xdg;

/// Upper bound on trusted configs; the oldest consent is evicted.
const MAX_ENTRIES: usize = 1_000;
/// Fits [`MAX_ENTRIES`] entries with paths of the usual length.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Configs with consent, by path.
#[derive(Debug)]
pub(crate) struct TrustStore {
    file: PathBuf,
    entries: Vec<TrustEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrustEntry {
    file: PathBuf,
    /// Fingerprint of the effects that were consented to.
    sha256: String,
    /// Seconds since 1970.
    at: u64,
}

#[derive(Serialize, Deserialize)]
struct TrustFile {
    version: u32,
    trusted: Vec<TrustEntry>,
}

/// Returns the path that consent is for. Its directory is resolved, and the file itself is not: a link to a trusted
/// file is another config, whose relative paths start elsewhere.
pub(crate) fn consent_path(file: &Path) -> PathBuf {
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(file.file_name()).map_or_else(|| file.to_owned(), |(folder, name)| folder.join(name))
}

impl TrustStore {
    /// Reads the store. An unreadable store trusts no config.
    pub(crate) fn open() -> Result<Self, CommandFailure> {
        let homeless = || io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set");
        let file =
            xdg::state_dir().ok_or_else(homeless).map_err(CommandFailure::Machine)?.join("trusted.json");
        let text = read_at_most(&file, MAX_FILE_BYTES).unwrap_or_default();
        let document: Option<TrustFile> = serde_json::from_str(&text).ok();
        let entries = document.filter(|it| it.version == 1).map(|it| it.trusted).unwrap_or_default();
        Ok(Self { file, entries })
    }

    pub(crate) fn fingerprint(&self, path: &Path) -> Option<String> {
        self.entries.iter().find(|entry| entry.file == path).map(|entry| entry.sha256.clone())
    }

    /// Returns the paths of all configs with consent, sorted.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = self.entries.iter().map(|entry| entry.file.as_path()).collect();
        paths.sort_unstable();
        paths
    }

    pub(crate) fn add(&mut self, path: &Path, fingerprint: &str) {
        self.remove(path);
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.entries.push(TrustEntry { file: path.to_owned(), sha256: fingerprint.to_owned(), at });
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
    }

    /// Removes a config. Returns whether it was there.
    pub(crate) fn remove(&mut self, path: &Path) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.file != path);
        self.entries.len() < before
    }

    pub(crate) fn write(&self) -> Result<(), CommandFailure> {
        let unwritable = |why: io::Error| CommandFailure::Unwritable { file: self.file.clone(), why };
        let document = TrustFile { version: 1, trusted: self.entries.clone() };
        let text = serde_json::to_string_pretty(&document).map_err(io::Error::from).map_err(unwritable)?;
        let written = private_file::create_parent_dir(&self.file);
        written.and_then(|()| private_file::replace_file(&self.file, text.as_bytes())).map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_consent_goes_first() {
        let mut store = TrustStore { file: PathBuf::new(), entries: Vec::new() };
        for number in 0..=MAX_ENTRIES {
            store.add(Path::new(&format!("/{number}")), "x");
        }
        assert_eq!(store.entries.len(), MAX_ENTRIES);
        assert_eq!(store.fingerprint(Path::new("/0")), None);
        store.add(Path::new("/5"), "y");
        assert_eq!(
            (store.entries.len(), store.fingerprint(Path::new("/5"))),
            (MAX_ENTRIES, Some("y".into()))
        );
    }
}
