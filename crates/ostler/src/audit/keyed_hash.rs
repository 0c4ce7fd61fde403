//! Keyed hashes of arguments and sessions: the audit keeps these in place of the values.
//!
//! A plain hash of `{"account": 17}` can be reversed by trying some thousand numbers. A keyed hash can't, because the
//! key is in another file; within one installation equal arguments still have equal hashes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use ostler_store::private_file;
use sha2::Sha256;

use crate::instance;

/// Bytes of a hash that are kept: enough to make collisions of arguments negligible.
const ARGUMENTS_BYTES: usize = 16;
/// Bytes kept of a session's hash: sessions are few.
const SESSION_BYTES: usize = 4;

/// Keyed hash of a call's arguments.
pub(super) type ArgumentsHash = [u8; ARGUMENTS_BYTES];

/// HMAC-SHA256 with the installation's key.
pub(super) struct KeyedHasher(Hmac<Sha256>);

impl KeyedHasher {
    /// Opens the hasher with the key of an installation, and creates the key if there is none.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let key = match read_key(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create_key(file)?,
            other => other?,
        };
        Ok(Self::with(&key))
    }

    fn with(key: &[u8; 32]) -> Self {
        let mut block = [0; 64];
        block[..32].copy_from_slice(key);
        Self(Hmac::new(&block.into()))
    }

    /// Hashes arguments in their canonical form (RFC 8785), so that neither the order of keys nor white space matters.
    /// Text without such a form is hashed as it is.
    pub(super) fn hash_arguments(&self, text: &[u8]) -> ArgumentsHash {
        match ostler_wire::canonicalize_exact(text) {
            Ok(form) => self.hash("arguments", &form),
            Err(_) => self.hash("arguments", text),
        }
    }

    /// Hashes the name of a client's session. The name authenticates its holder, so it is never written down.
    pub(super) fn hash_session(&self, name: &str) -> String {
        instance::hex(&self.hash::<SESSION_BYTES>("session", name.as_bytes()))
    }

    /// Returns the first bytes of a hash.
    fn hash<const BYTES: usize>(&self, purpose: &str, text: &[u8]) -> [u8; BYTES] {
        let mut mac = self.0.clone();
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(text);
        let whole = mac.finalize().into_bytes();
        std::array::from_fn(|n| whole[n])
    }
}

fn read_key(file: &Path) -> io::Result<[u8; 32]> {
    let mut text = String::new();
    File::open(file)?.take(256).read_to_string(&mut text)?;
    let spoilt = || io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no key", file.display()));
    crate::token::decode_hex_32(text.trim()).ok_or_else(spoilt)
}

/// Creates a key. Of several processes that do so at once one succeeds, and all of them use its key.
fn create_key(file: &Path) -> io::Result<[u8; 32]> {
    private_file::create_parent_dir(file)?;
    let beside = file.with_extension(format!("key.{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let key = instance::random()?;
    let mut open = private_file::open_options().write(true).create_new(true).open(&beside)?;
    let linked = open.write_all(instance::hex(&key).as_bytes()).and_then(|()| fs::hard_link(&beside, file));
    let _ = fs::remove_file(&beside);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => read_key(file),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn equal_arguments_have_equal_hashes_within_one_installation_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.audit.key");
        let (one, same) = (KeyedHasher::open(&file).unwrap(), KeyedHasher::open(&file).unwrap());
        let other = KeyedHasher::open(&folder.path().join("b.audit.key")).unwrap();
        let hash = one.hash_arguments(br#"{"a": 1, "b": [true]}"#);
        assert_eq!(hash, same.hash_arguments(br#"{"b":[true],"a":1.0}"#));
        assert_ne!(hash, one.hash_arguments(br#"{"a":2,"b":[true]}"#));
        assert_ne!(hash, other.hash_arguments(br#"{"a":1,"b":[true]}"#));
        // Numbers that a double can't tell apart are told apart.
        assert_ne!(one.hash_arguments(b"9007199254740993"), one.hash_arguments(b"9007199254740992"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_is_made_once_however_many_want_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.audit.key");
        // Threads of one process share the name of the temporary file, so only some succeed; those that do agree.
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| KeyedHasher::open(&file))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        let mut hashes: Vec<_> = keys.iter().map(|key| key.hash_session("s")).collect();
        hashes.dedup();
        assert_eq!(hashes.len(), 1);
    }

    #[test]
    fn a_spoilt_key_is_said_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.audit.key");
        fs::write(&file, "nonsense").unwrap();
        assert!(KeyedHasher::open(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "nonsense");
    }
}
