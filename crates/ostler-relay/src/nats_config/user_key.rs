//! Nkeys of users of a NATS server.

/// Public key of a user: `U…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserKey(String);

/// Error: the text is not a user's public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no public nkey of a user, which has 56 letters and digits and begins with U")]
pub struct BadUserKey(String);

impl UserKey {
    /// Validates a user's public key. A seed is rejected: it is a secret.
    pub fn new(text: &str) -> Result<Self, BadUserKey> {
        let is_user_key = text.starts_with('U') && nkeys::KeyPair::from_public_key(text).is_ok();
        // The text may be a secret, so the error shows its first four characters only.
        let redacted = || text.chars().take(4).chain("…".chars()).collect();
        if is_user_key { Ok(Self(text.to_owned())) } else { Err(BadUserKey(redacted())) }
    }

    /// Derives the public key from a seed; `None` if the seed is not a user's.
    pub fn from_seed(seed: &str) -> Option<Self> {
        let pair = nkeys::KeyPair::from_seed(seed).ok()?;
        Self::new(&pair.public_key()).ok()
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Generates a key: the public key, and the seed, which exists nowhere else. `None` if the system's
/// random source fails.
pub fn generate_user_key() -> Option<(UserKey, String)> {
    let pair = nkeys::KeyPair::new_user();
    let seed = pair.seed().ok()?;
    Some((UserKey(pair.public_key()), seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_key_of_a_user_is_taken_and_no_seed_is_shown() {
        let (key, seed) = generate_user_key().unwrap_or_else(|| panic!("a key"));
        assert_eq!(UserKey::new(key.as_str()), Ok(key));
        let account = nkeys::KeyPair::new_account().public_key();
        for bad in [&*seed, &account, "", "U", "$PASSWORD", "U\" }"] {
            let error = UserKey::new(bad).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| !text.contains(&seed)), "{bad}: {error:?}");
        }
    }
}
