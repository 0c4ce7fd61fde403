//! What a run says about each promise.

use std::fmt;

use ostler_chaos::check::{Evidence, Violation};
use serde::Serialize;

/// Kept means: held against something, and nothing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PromiseOutcome {
    Kept,
    Broken,
    NotTried,
}

/// One promise, with what it was held against.
#[derive(Debug, Serialize)]
pub(super) struct PromiseReport {
    #[serde(flatten)]
    pub(super) evidence: Evidence,
    pub(super) ruling: PromiseOutcome,
}

pub(super) fn outcomes(evidence: Vec<Evidence>, violations: &[Violation]) -> Vec<PromiseReport> {
    let of = |evidence: Evidence| {
        let is_broken = violations.iter().any(|violation| violation.promise == evidence.promise);
        let ruling = match evidence.count {
            _ if is_broken => PromiseOutcome::Broken,
            0 => PromiseOutcome::NotTried,
            _ => PromiseOutcome::Kept,
        };
        PromiseReport { evidence, ruling }
    };
    evidence.into_iter().map(of).collect()
}

impl fmt::Display for PromiseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::NotTried => "not tried",
        })
    }
}
