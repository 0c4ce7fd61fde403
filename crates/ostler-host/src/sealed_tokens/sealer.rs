//! Sealer: authenticates texts that callers keep for the host and can neither make nor change.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Prefix that distinguishes sealed texts of this form from any other.
const PREFIX: &str = "o1.";

/// Returns whether a text has the form of a sealed one.
pub(super) fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Bytes of the tag: 128 bits can't be guessed, and cursors stay short.
const TAG_LEN: usize = 16;

/// Longest text that is opened: a request state of a server may be large, but no caller may make the host hash more.
const MAX_SEALED: usize = 8 << 20;

/// Sealer of texts under one key.
///
/// A sealed text is authenticated, not encrypted: a client can read it.
#[derive(Clone)]
pub(super) struct Sealer(Hmac<Sha256>);

impl Sealer {
    /// Creates a sealer with a key.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        // A key of 32 bytes is below the block size, where every length is accepted.
        let mut block = [0; 64];
        block[..32].copy_from_slice(key);
        Self(Hmac::new(&block.into()))
    }

    /// Seals `parts` for one purpose. A token of another purpose is not opened.
    pub(super) fn seal(&self, purpose: &str, parts: &[&[u8]]) -> String {
        let size: usize = parts.iter().map(|part| part.len() + 4).sum();
        let mut text = Vec::with_capacity(TAG_LEN + size);
        text.extend_from_slice(&[0; TAG_LEN]);
        for part in parts {
            // Lengths beyond 32 bits do not fit into MAX_SEALED anyway.
            text.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            text.extend_from_slice(part);
        }
        let tag = self.mac(purpose, &text[TAG_LEN..]).finalize().into_bytes();
        text[..TAG_LEN].copy_from_slice(&tag[..TAG_LEN]);
        let mut sealed = String::with_capacity(PREFIX.len() + text.len().div_ceil(3) * 4);
        sealed.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&text, &mut sealed);
        sealed
    }

    /// Returns the parts, if `sealed` was made by [`seal`](Self::seal) under the same key and for the same purpose.
    pub(super) fn open(&self, purpose: &str, sealed: &str) -> Option<Vec<Vec<u8>>> {
        if sealed.len() > MAX_SEALED {
            return None;
        }
        let text = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(PREFIX)?).ok()?;
        let (tag, body) = text.split_at_checked(TAG_LEN)?;
        // Compares in constant time.
        self.mac(purpose, body).verify_truncated_left(tag).ok()?;
        split(body)
    }

    fn mac(&self, purpose: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(&(purpose.len() as u64).to_be_bytes());
        mac.update(purpose.as_bytes());
        mac.update(body);
        mac
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

fn split(mut body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        body = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seal() -> Sealer {
        Sealer::new(&[7; 32])
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let parts: [&[u8]; 3] = [b"time", b"", b"\x00\xff"];
        let sealed = seal().seal("cursor", &parts);
        assert!(sealed.starts_with("o1."));
        assert_eq!(seal().open("cursor", &sealed).unwrap(), parts);
    }

    #[test]
    fn another_purpose_or_another_key_opens_nothing() {
        let sealed = seal().seal("cursor", &[b"time"]);
        assert_eq!(seal().open("task", &sealed), None);
        assert_eq!(Sealer::new(&[8; 32]).open("cursor", &sealed), None);
    }

    #[test]
    fn parts_can_not_be_moved_into_the_purpose() {
        let sealed = seal().seal("ab", &[b"c"]);
        assert_eq!(seal().open("a", &sealed), None);
    }

    #[test]
    fn a_text_beyond_all_measure_is_not_looked_at() {
        assert_eq!(seal().open("cursor", &format!("o1.{}", "A".repeat(MAX_SEALED))), None);
    }

    proptest! {
        #[test]
        fn no_changed_text_is_opened(at in 0usize..30, by in 1u8..64) {
            let sealed = seal().seal("cursor", &[b"time", b"echo"]);
            let mut changed = sealed.clone().into_bytes();
            let at = 3 + at % (changed.len() - 3);
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let old = alphabet.iter().position(|c| *c == changed[at]).unwrap();
            changed[at] = alphabet[(old + by as usize) % 64];
            let changed = String::from_utf8(changed).unwrap();
            prop_assert_eq!(seal().open("cursor", &changed), None);
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in ".{0,200}") {
            prop_assert_eq!(seal().open("cursor", &text), None);
        }
    }
}
