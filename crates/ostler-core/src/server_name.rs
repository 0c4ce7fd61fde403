//! Names of servers: one grammar, checked once.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest server name.
pub const MAX_LEN: usize = 32;

/// A server's name: `[a-z0-9][a-z0-9_-]*`, at most 32 bytes, without `__`.
///
/// `__` separates server and tool in exposed names, so a server name can't hold it. The grammar also makes
/// names safe as file names and labels.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String")]
pub struct ServerName(Arc<str>);

/// Reason why a text is not a server name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An empty text.
    #[error("a server name can't be empty")]
    Empty,
    /// Longer than [`MAX_LEN`].
    #[error("a server name has at most {MAX_LEN} characters, this one has {0}")]
    TooLong(usize),
    /// A character outside the grammar, or one that may not come first.
    #[error("a server name is made of a-z, 0-9, `-` and `_`, and begins with a letter or digit; found {0:?}")]
    BadCharacter(char),
    /// Two underscores in a row.
    #[error("a server name can't contain `__`, which separates server and tool")]
    Separator,
}

impl ServerName {
    /// Checks the grammar.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let first = text.chars().next().ok_or(NameError::Empty)?;
        if !(first.is_ascii_lowercase() || first.is_ascii_digit()) {
            return Err(NameError::BadCharacter(first));
        }
        if let Some(bad) =
            text.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')))
        {
            return Err(NameError::BadCharacter(bad));
        }
        if text.len() > MAX_LEN {
            return Err(NameError::TooLong(text.len()));
        }
        if text.contains("__") {
            return Err(NameError::Separator);
        }
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ServerName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl std::borrow::Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for ServerName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_checked_character_by_character() {
        for good in ["a", "0", "time", "my-server", "a_b-c9", &"x".repeat(32)] {
            assert_eq!(ServerName::new(good).unwrap().as_str(), good);
        }
        let table = [
            ("", NameError::Empty),
            ("-a", NameError::BadCharacter('-')),
            ("Time", NameError::BadCharacter('T')),
            ("a b", NameError::BadCharacter(' ')),
            ("a/b", NameError::BadCharacter('/')),
            ("é", NameError::BadCharacter('é')),
            ("a__b", NameError::Separator),
        ];
        for (bad, why) in table {
            assert_eq!(ServerName::new(bad), Err(why), "{bad:?}");
        }
        assert_eq!(ServerName::new(&"x".repeat(33)), Err(NameError::TooLong(33)));
    }

    #[test]
    fn a_name_is_shown_as_it_is_and_logged_in_quotes() {
        let name = ServerName::new("my-server").unwrap();
        assert_eq!(format!("{name} {name:?}"), r#"my-server "my-server""#);
    }
}
