//! The keys of users of a NATS server.

/// The public part of a user's key: `U…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserKey(String);

/// A text that is no public key of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no public nkey of a user, which has 56 letters and digits and begins with U")]
pub struct BadUserKey(String);

impl UserKey {
    /// Takes the public key of a user, and nothing else: a seed is a secret and
    /// does not belong here.
    pub fn new(text: &str) -> Result<Self, BadUserKey> {
        let is_one = text.starts_with('U') && nkeys::KeyPair::from_public_key(text).is_ok();
        // What was given may be a secret, and the reader has it anyway.
        let shown = || text.chars().take(4).chain("…".chars()).collect();
        if is_one { Ok(Self(text.to_owned())) } else { Err(BadUserKey(shown())) }
    }

    /// The public part of the key that a seed is of; `None` if it is no user's.
    pub fn from_seed(seed: &str) -> Option<Self> {
        let pair = nkeys::KeyPair::from_seed(seed).ok()?;
        Self::new(&pair.public_key()).ok()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A new key: its public part, and its seed, which is a secret and stands
/// nowhere else. `None` where the system has no chance to give.
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
