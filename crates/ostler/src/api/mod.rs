//! The admin API `/api/v1`: its types, for the daemon that answers and the commands that ask.
//!
//! Every shape is written once, here or in the crate that owns the value. `openapi.json` is made from these types; a
//! test compares the file with them, and a daemon serves the file.

mod error;
#[cfg(test)]
mod openapi;
mod types;

pub(crate) use self::error::{ErrorBody, ErrorResponse};
pub(crate) use self::types::*;

/// Description of the API, as a daemon serves it.
pub(crate) const OPENAPI: &str = include_str!("../../openapi.json");
