//! Servers that a config names and that are not run.

use crate::error::{CallError, Unavailable, UnavailableState};
use crate::spec::ServerSpec;

/// A server that is named and not run.
#[derive(Debug, Clone, PartialEq)]
pub struct Disabled {
    /// As far as it could be read.
    pub spec: ServerSpec,
    /// Why it is not run.
    pub cause: String,
    /// What to change so that it is.
    pub remedy: String,
}

impl Disabled {
    /// What a call of it is told.
    pub fn error(&self) -> CallError {
        CallError::Unavailable(Unavailable {
            server: self.spec.name.clone(),
            state: UnavailableState::Disabled,
            cause: self.cause.clone(),
            action: self.remedy.as_str().into(),
            remedy: None,
            retry_after: None,
        })
    }
}
