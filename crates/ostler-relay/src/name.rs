//! Names of tenants, roles, workers and hosts: each is one token of a subject.

use std::fmt;
use std::sync::Arc;

/// Bounds the subjects, bucket names and file names that are built from names.
const MAX: usize = 64;

/// One to 64 letters, digits, `-` and `_`: literal in a subject, a bucket name and a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayName(Arc<str>);

/// Error: the text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to 64 letters, digits, `-` and `_`, found {0:?}")]
pub struct BadRelayName(pub String);

impl RelayName {
    /// Validates a name.
    pub fn new(text: &str) -> Result<Self, BadRelayName> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        match !text.is_empty() && text.len() <= MAX && text.bytes().all(is_fit) {
            true => Ok(Self(text.into())),
            false => Err(BadRelayName(text.chars().take(MAX + 1).collect())),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_itself_in_a_subject_is_a_name() {
        for good in ["a", "CI-7", "w_1", &"x".repeat(64)] {
            assert_eq!(RelayName::new(good).map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "a.b", "*", ">", "a b", "ä", "../x", &"x".repeat(65)] {
            assert!(RelayName::new(bad).is_err(), "{bad:?}");
        }
    }
}
