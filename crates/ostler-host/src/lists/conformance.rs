//! Conformance of definitions to the schema of MCP: the form of invalid ones that validating clients accept.
//!
//! Pins, the one-server endpoint and the operator's commands always see the definition as the server gives it.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::status::{InvalidDefinition, InvalidDefinitions};
use ostler_wire::{Conformance, Era, check_definition};

use super::Kind;
use crate::server::server_list::{ServerItem, ServerList};
use crate::server::slot::Slot;

/// Bounds the invalid definitions that the status names. A person reads a few, and a list may have thousands.
const MAX_NAMED: usize = 20;

/// Bounds the invalid definitions that one change of a list logs.
const MAX_LOGGED: usize = 20;

/// Flaw of a definition, and the form that clients of each era get.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConformanceIssue {
    /// Text for people.
    problem: String,
    legacy: ConformingForm,
    modern: ConformingForm,
}

#[derive(Debug, PartialEq, Eq)]
enum ConformingForm {
    AsGiven,
    Completed(Bytes),
    LeftOut,
}

impl ConformingForm {
    /// Returns the form for an era, and the problem if there is one.
    fn of(kind: Kind, definition: &[u8], era: Era) -> (Self, Option<String>) {
        match check_definition(kind.definition_kind(), definition, era) {
            Conformance::Valid => (Self::AsGiven, None),
            Conformance::Repaired { definition, problem } => {
                (Self::Completed(definition.into()), Some(problem))
            }
            Conformance::Unusable { problem } => (Self::LeftOut, Some(problem)),
        }
    }
}

impl ServerItem {
    /// Creates an item and checks its definition once.
    pub fn new(kind: Kind, name: impl Into<Arc<str>>, definition: Bytes) -> Self {
        // A definition that the legacy era allows is allowed in both.
        let flaw = match ConformingForm::of(kind, &definition, Era::Legacy) {
            (legacy, Some(problem)) => {
                let (modern, _) = ConformingForm::of(kind, &definition, Era::Modern);
                Some(Arc::new(ConformanceIssue { problem, legacy, modern }))
            }
            (_, None) => None,
        };
        Self { name: name.into(), definition, flaw }
    }

    /// Returns the definition in the form that validating clients of an era accept, byte for byte the server's unless
    /// the schema of MCP does not allow that. `None` if there is no such form.
    pub fn conforming(&self, era: Era) -> Option<&Bytes> {
        let form = self.flaw.as_ref().map_or(&ConformingForm::AsGiven, |flaw| match era {
            Era::Legacy => &flaw.legacy,
            Era::Modern => &flaw.modern,
        });
        match form {
            ConformingForm::AsGiven => Some(&self.definition),
            ConformingForm::Completed(definition) => Some(definition),
            ConformingForm::LeftOut => None,
        }
    }

    /// Returns the problem of the definition, for people.
    pub fn problem(&self) -> Option<&str> {
        self.flaw.as_ref().map(|flaw| flaw.problem.as_str())
    }
}

impl Slot {
    /// Logs the invalid definitions of a list that has changed.
    pub(super) fn log_invalid(&self, kind: Kind, known: &ServerList) {
        let server = &self.key.server;
        let mut invalid = known.items.iter().filter(|item| item.flaw.is_some());
        for item in invalid.by_ref().take(MAX_LOGGED) {
            let is_left_out = item.conforming(Era::Modern).is_none();
            let consequence = if is_left_out { "it is left out of /mcp" } else { "it is completed at /mcp" };
            let (name, problem) = (&*item.name, item.problem().unwrap_or_default());
            tracing::warn!(%server, ?name, problem, "the MCP schema does not allow this {}: {consequence}", kind.noun());
        }
        let more = invalid.count();
        if more > 0 {
            tracing::warn!(%server, more, "the MCP schema does not allow more definitions of the {} list", kind.noun());
        }
    }

    /// Counts the invalid definitions in its last lists, and names the first ones; `None` if there are none.
    pub(crate) fn invalid_definitions(&self) -> Option<InvalidDefinitions> {
        let mut all = InvalidDefinitions::default();
        for (kind, known) in Kind::ALL.into_iter().filter_map(|kind| Some((kind, self.cached_list(kind)?))) {
            for item in known.items.iter() {
                let Some(problem) = item.problem() else { continue };
                let is_left_out = item.conforming(Era::Modern).is_none();
                let count = if is_left_out { &mut all.left_out } else { &mut all.completed };
                *count += 1;
                if all.first.len() < MAX_NAMED {
                    all.first.push(InvalidDefinition {
                        kind: kind.noun().to_owned(),
                        name: item.name.to_string(),
                        left_out: is_left_out,
                        problem: problem.to_owned(),
                    });
                }
            }
        }
        (all.completed + all.left_out > 0).then_some(all)
    }
}
