//! Pins, from the outside: hashes, lock files and comparisons over arbitrary definitions.

#![expect(clippy::unwrap_used, reason = "what the tests share fails as they do")]

mod compare;
mod generators;
mod hash;
mod lint;
mod lock;
mod word_diff;
