//! Pins and hashes: identity of a definition.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::json::Json;

/// Longest definition that can be pinned. One of this length fills a model's context several times over.
pub const MAX_DEFINITION: usize = 1 << 20;

/// The SHA-256 of a definition's canonical form, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinHash([u8; 32]);

impl PinHash {
    /// Creates the hash of these very bytes.
    pub fn digest(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the first 64 bits in hexadecimal digits: short enough to type, too long to collide by trial.
    pub fn short(&self) -> String {
        self.0[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the digest itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PinHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PinHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a [`PinHash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is written as `sha256:` and 64 hexadecimal digits in lower case")]
pub struct HashParseError;

impl FromStr for PinHash {
    type Err = HashParseError;

    fn from_str(text: &str) -> Result<Self, HashParseError> {
        let digits = text.strip_prefix("sha256:").ok_or(HashParseError)?.as_bytes();
        if digits.len() != 64 {
            return Err(HashParseError);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(hash))
    }
}

/// Returns the value of a digit. Capitals are refused, so that each hash has one spelling and a lock file one
/// form.
fn nibble(digit: u8) -> Result<u8, HashParseError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(HashParseError),
    }
}

/// An ambiguous definition: no object, a key that occurs twice, a number beyond a double's range, too deep or
/// too long. It can't be approved, because it does not describe one tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the definition can't be pinned: {why}")]
pub struct UnpinnableDefinition {
    why: String,
}

/// The approved definition of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Hash of `definition`.
    pub hash: PinHash,
    /// Canonical JSON.
    pub definition: Bytes,
}

impl Pin {
    /// Creates the pin of a definition as a server sends it.
    pub fn from_definition(definition: &[u8]) -> Result<Self, UnpinnableDefinition> {
        let form = canonical_definition(definition)?;
        Ok(Self::from_canonical(form))
    }

    /// Creates the pin of a canonical definition.
    pub(super) fn from_canonical(form: String) -> Self {
        Self { hash: PinHash::digest(form.as_bytes()), definition: form.into() }
    }
}

/// Returns the hash of a definition: of the RFC 8785 form of all of it, `_meta` included. Numbers that this
/// form would round are hashed as they are written.
pub fn hash_definition(definition: &[u8]) -> Result<PinHash, UnpinnableDefinition> {
    canonical_definition(definition).map(|form| PinHash::digest(form.as_bytes()))
}

fn canonical_definition(definition: &[u8]) -> Result<String, UnpinnableDefinition> {
    read_definition(definition).map(|json| json.canonical())
}

/// Parses a definition.
pub(super) fn read_definition(definition: &[u8]) -> Result<Json, UnpinnableDefinition> {
    let refuse = |why: String| UnpinnableDefinition { why };
    if definition.len() > MAX_DEFINITION {
        return Err(refuse(format!("it has more than {MAX_DEFINITION} bytes")));
    }
    let text = std::str::from_utf8(definition).map_err(|_| refuse("it is not UTF-8".into()))?;
    let json = Json::parse(text).map_err(|error| refuse(error.to_string()))?;
    match json {
        Json::Object(_) => Ok(json),
        _ => Err(refuse("it is not a JSON object".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_canonical_text() {
        // printf '{"description":"x","name":"a"}' | sha256sum
        let expected = "sha256:65fb4710c03bd0916615858be11197c36702700ae8938d6578ecf373a15550de";
        let found = hash_definition(br#"{ "name": "a",  "description": "x" }"#).unwrap();
        assert_eq!(found.to_string(), expected);
    }

    #[test]
    fn meta_counts_wherever_it_stands() {
        let plain = hash_definition(br#"{"name":"a","inputSchema":{}}"#).unwrap();
        assert_ne!(hash_definition(br#"{"_meta":{"x":1},"name":"a","inputSchema":{}}"#).unwrap(), plain);
        assert_ne!(hash_definition(br#"{"name":"a","inputSchema":{"_meta":{"x":1}}}"#).unwrap(), plain);
    }

    #[test]
    fn a_definition_without_one_meaning_has_no_hash() {
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(MAX_DEFINITION));
        for text in [
            r#"[]"#,
            r#""x""#,
            "",
            r#"{"name":"a","name":"a"}"#,
            r#"{"_meta":{"a":1,"a":2},"name":"a"}"#,
            &long,
        ] {
            assert!(hash_definition(text.as_bytes()).is_err(), "{}", &text[..text.len().min(40)]);
        }
        assert!(hash_definition(b"{\"name\":\"\xff\"}").is_err());
        let longest = format!(r#"{{"name":"{}"}}"#, "x".repeat((1 << 20) - r#"{"name":""}"#.len()));
        assert!(hash_definition(longest.as_bytes()).is_ok());
    }

    #[test]
    fn a_hash_has_one_spelling() {
        let hash = PinHash::digest(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!((hash.to_string(), format!("{hash:?}")), (text.into(), text.into()));
        assert_eq!(hash.as_bytes()[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(text.parse(), Ok(hash));
        for wrong in
            [&text[7..], &text.to_uppercase(), &text[..70], "", &format!("{text}0"), &text.replace('e', "é")]
        {
            assert_eq!(wrong.parse::<PinHash>(), Err(HashParseError), "{wrong}");
        }
    }
}
