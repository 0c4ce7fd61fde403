//! Token store of a config: one file that only its user may read, replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler_store::private_file;
use serde::{Deserialize, Serialize};

use super::TokenRecord;
use crate::config_file;

/// Upper bound on tokens of a config; an identity provider is better for more.
pub(crate) const MAX_TOKENS: usize = 10_000;
/// Fits [`MAX_TOKENS`] of the longest records.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Timeout of the lock that another command holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Format version of the file.
const VERSION: u32 = 1;

/// Last uses of tokens, by id.
pub(crate) type TokenUses = BTreeMap<String, u64>;

/// Token store of a config.
#[derive(Debug, Clone)]
pub(crate) struct TokenStore {
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct TokensFile {
    version: u32,
    tokens: Vec<TokenRecord>,
}

impl TokenStore {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns all tokens: none without a file. An unreadable file is an error, because its tokens are unknown.
    pub(crate) fn read(&self) -> io::Result<Vec<TokenRecord>> {
        let text = match config_file::read_at_most(&self.file, MAX_FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let TokensFile { version, tokens } = serde_json::from_str(&text)
            .map_err(|error| invalid(format!("it is not what was written: {error}")))?;
        if version != VERSION {
            return Err(invalid(format!("it is of format {version}, and this version knows {VERSION}")));
        }
        if tokens.len() > MAX_TOKENS {
            return Err(invalid(format!("it has more than {MAX_TOKENS} tokens")));
        }
        Ok(tokens)
    }

    /// Changes the tokens, one command at a time. A change that fails is not written.
    pub(crate) fn update<T, E: From<io::Error>>(
        &self,
        change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock()?;
        let mut tokens = self.read()?;
        let done = change(&mut tokens)?;
        let text = serde_json::to_vec(&TokensFile { version: VERSION, tokens }).map_err(io::Error::other)?;
        private_file::replace_file(&self.file, &text)?;
        Ok(done)
    }

    /// Returns the last uses of tokens, in seconds since 1970, by id. Only people read them, so an unreadable file
    /// counts as empty.
    pub(crate) fn read_uses(&self) -> TokenUses {
        let read = config_file::read_at_most(&self.with_suffix(".used"), MAX_FILE_BYTES).ok();
        read.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Writes the last uses of tokens.
    pub(crate) fn write_uses(&self, uses: &TokenUses) -> io::Result<()> {
        private_file::replace_file(&self.with_suffix(".used"), &serde_json::to_vec(uses)?)
    }

    /// Returns a path beside the file: its name with a suffix.
    fn with_suffix(&self, ending: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(ending);
        PathBuf::from(path)
    }

    /// Locks a file of its own, because every change replaces the store.
    fn lock(&self) -> io::Result<File> {
        let path = self.with_suffix(".lock");
        private_file::create_parent_dir(&path)?;
        let file = private_file::open_options().write(true).create(true).truncate(false).open(path)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if began.elapsed() >= LOCK_TIMEOUT => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another command is changing the tokens",
                    ));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> TokenRecord {
        TokenRecord {
            name: name.into(),
            role: "ci".into(),
            id: "0".repeat(12),
            sha256: "0".repeat(64),
            created: 1,
            expires: Some(2),
            budget: None,
        }
    }

    fn add(store: &TokenStore, name: &str) {
        try_add(store, name).unwrap();
    }

    fn try_add(store: &TokenStore, name: &str) -> io::Result<()> {
        store.update(|tokens| {
            tokens.push(record(name));
            Ok(())
        })
    }

    #[test]
    fn what_was_written_is_read_and_is_nobody_elses_to_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path().join("new/x.tokens"));
        assert_eq!(store.read().unwrap(), []);
        add(&store, "a");
        assert_eq!(store.read().unwrap(), [record("a")]);
        assert_eq!(std::fs::metadata(store.file()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn uses_that_can_not_be_read_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path().join("x.tokens"));
        assert_eq!(store.read_uses(), TokenUses::new());
        let uses = TokenUses::from([("0".repeat(12), 7)]);
        store.write_uses(&uses).unwrap();
        assert_eq!(store.read_uses(), uses);
        std::fs::write(store.with_suffix(".used"), "{").unwrap();
        assert_eq!(store.read_uses(), TokenUses::new());
    }

    #[test]
    fn commands_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path().join("x.tokens"));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let store = &store;
                scope.spawn(move || add(store, &format!("t{number}")));
            }
        });
        assert_eq!(store.read().unwrap().len(), 8);
    }

    #[test]
    fn a_file_that_is_not_understood_is_neither_empty_nor_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path().join("x.tokens"));
        for text in ["", "{", r#"{"version":2,"tokens":[]}"#, r#"{"version":1}"#] {
            std::fs::write(store.file(), text).unwrap();
            assert!(store.read().is_err(), "{text}");
            assert!(try_add(&store, "a").is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(store.file()).unwrap(), text);
        }
    }
}
