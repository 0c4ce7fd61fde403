//! Ids of calls and of process instances.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::name::RelayName;

/// Id of one call: a UUID of version 7, equal for every attempt of that call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(Uuid);

impl CallId {
    /// Builds an id from a time and ten random bytes.
    pub fn new(unix_millis: u64, random: &[u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_millis, random).into_uuid())
    }

    /// Derives the id of a call with an idempotency key. Every attempt within one instance of a
    /// worker gets the same id; its timestamp is `began`, when the instance started.
    pub fn from_key(instance: Instance, began: u64, key: &str) -> Self {
        let digest = Sha256::new_with_prefix(instance.0.to_be_bytes()).chain_update(key).finalize();
        let mut random = [0; 10];
        random.copy_from_slice(&digest[..10]);
        Self::new(began, &random)
    }

    /// Returns the id under which the journal claims the call. Workers choose their call ids, so
    /// the same id from another worker is a different claim.
    pub fn scoped_to_worker(self, worker: &RelayName) -> Self {
        let digest = Sha256::new_with_prefix(self.as_bytes()).chain_update(worker.as_str()).finalize();
        let mut random = [0; 10];
        random.copy_from_slice(&digest[..10]);
        let millis = self.as_bytes()[..6].iter().fold(0, |millis, byte| millis << 8 | u64::from(*byte));
        Self::new(millis, &random)
    }

    /// Parses the one spelling that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        let is_ours = id.get_version_num() == 7 && text.len() == 36 && !text.contains(char::is_uppercase);
        is_ours.then_some(Self(id))
    }

    /// Returns the sixteen bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// One process of a worker or of a host: a random number that changes with every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(pub u64);

impl Instance {
    /// Parses the one spelling that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_fit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(is_fit) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_in_its_own_spelling_only() {
        let id = CallId::new(1_700_000_000_000, &[7; 10]);
        assert_eq!(CallId::parse(&id.to_string()), Some(id));
        let text = id.to_string();
        for bad in [text.to_uppercase(), text.replace('-', ""), format!("{{{text}}}"), text[1..].to_owned()] {
            assert_eq!(CallId::parse(&bad), None, "{bad}");
        }
        assert_eq!(CallId::parse("67e55044-10b1-426f-9247-bb680e5fe0c8"), None, "version 4");
    }

    #[test]
    fn attempts_of_one_call_share_their_id_and_nobody_else_does() {
        let (instance, next) = (Instance(1), Instance(2));
        assert_eq!(CallId::from_key(instance, 5, "a-1"), CallId::from_key(instance, 5, "a-1"));
        assert_ne!(CallId::from_key(instance, 5, "a-1"), CallId::from_key(instance, 5, "a-2"));
        assert_ne!(CallId::from_key(instance, 5, "a-1"), CallId::from_key(next, 5, "a-1"));
    }

    #[test]
    fn two_workers_claim_the_same_id_apart_and_each_always_the_same() {
        let [one, two] =
            ["w1", "w2"].map(|name| RelayName::new(name).unwrap_or_else(|error| panic!("{error}")));
        let id = CallId::new(1_700_000_000_000, &[7; 10]);
        assert_eq!(id.scoped_to_worker(&one), id.scoped_to_worker(&one));
        assert_ne!(id.scoped_to_worker(&one), id.scoped_to_worker(&two));
        let claimed = id.scoped_to_worker(&one);
        assert_eq!(CallId::parse(&claimed.to_string()), Some(claimed));
        assert_eq!(claimed.as_bytes()[..6], id.as_bytes()[..6], "the time is that of the call");
    }

    #[test]
    fn an_instance_is_sixteen_digits() {
        let instance = Instance(0xab);
        assert_eq!(instance.to_string(), "00000000000000ab");
        assert_eq!(Instance::parse("00000000000000ab"), Some(instance));
        for bad in ["ab", "00000000000000AB", "+0000000000000ab", ""] {
            assert_eq!(Instance::parse(bad), None, "{bad:?}");
        }
    }
}
