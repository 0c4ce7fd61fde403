//! Ostler's own tokens: their format, and their stored record.
//!
//! ```text
//! ostler_1f2e3d4c5b6a_8f…64 digits…e1
//!        │            └ the secret: 256 random bits, kept nowhere but as their SHA-256
//!        └ the id: finds the record, and is no secret
//! ```

pub(crate) mod store;

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Prefix of every token, so that secret scanners find it.
pub(crate) const PREFIX: &str = "ostler_";

const ID_DIGITS: usize = 12;
const SECRET_DIGITS: usize = 64;
const LENGTH: usize = PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS;

/// Stored record of a token; it never holds the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    /// Name for people; unique.
    pub(crate) name: String,
    /// Role of its callers.
    pub(crate) role: String,
    /// Id that finds the record when the token is presented.
    pub(crate) id: String,
    /// SHA-256 of the secret, in hexadecimal digits.
    pub(crate) sha256: String,
    /// Time of creation, in seconds since 1970.
    pub(crate) created: u64,
    /// Time from which it is invalid; `None` if it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// Budget of its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<TokenBudget>,
}

/// Calls in a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenBudget {
    pub(crate) calls: u64,
    pub(crate) per_ms: u64,
}

impl TokenBudget {
    pub(crate) fn per(self) -> Duration {
        Duration::from_millis(self.per_ms)
    }
}

/// Token in full, for its owner.
pub(crate) struct CreatedToken {
    pub(crate) text: String,
    pub(crate) id: String,
    pub(crate) sha256: String,
}

/// Creates a token with a random secret.
pub(crate) fn create() -> io::Result<CreatedToken> {
    let mut bits = [0; (ID_DIGITS + SECRET_DIGITS) / 2];
    getrandom::fill(&mut bits).map_err(|error| io::Error::other(error.to_string()))?;
    let (id, secret) = bits.split_at(ID_DIGITS / 2);
    let (id, secret) = (hex(id), hex(secret));
    Ok(CreatedToken { text: format!("{PREFIX}{id}_{secret}"), sha256: hex(&digest(&secret)), id })
}

/// Returns the id and the secret of a token; `None` for other text, which costs one look at its length.
pub(crate) fn parse(text: &str) -> Option<(&str, &str)> {
    if text.len() != LENGTH {
        return None;
    }
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == ID_DIGITS && is_hex(id) && is_hex(secret)).then_some((id, secret))
}

/// Returns the SHA-256 of a secret.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Compares in constant time.
pub(crate) fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Returns whether a text can be the name of a token or of a role.
pub(crate) fn is_valid_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_word)
}

/// Decodes hexadecimal digits, if they stand for 32 bytes.
pub(crate) fn decode_hex_32(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_is_read_back_and_only_its_hash_is_kept() {
        let fresh = create().unwrap();
        let (id, secret) = parse(&fresh.text).unwrap();
        assert_eq!(id, fresh.id);
        assert_eq!(decode_hex_32(&fresh.sha256), Some(digest(secret)));
        assert!(!fresh.sha256.contains(secret));
        assert_ne!(create().unwrap().text, fresh.text);
    }

    #[test]
    fn what_is_no_token_is_not_looked_at() {
        let good = format!("ostler_{}_{}", "a".repeat(12), "b".repeat(64));
        assert!(parse(&good).is_some());
        for bad in [
            "",
            "ostler_",
            &good[1..],
            &good.to_uppercase(),
            &good.replace('_', "-"),
            &format!("{good}0"),
            &good.replace("aa", "é"),
            &format!("ostler_{}_{}", "a".repeat(13), "b".repeat(63)),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_safe_everywhere() {
        assert!(["ci", "Build-2", "a_b"].into_iter().all(is_valid_name));
        assert!(!["", "a b", "a:b", "a/b", "é", &"x".repeat(65)].into_iter().any(is_valid_name));
    }
}
