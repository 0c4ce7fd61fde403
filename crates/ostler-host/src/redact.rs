//! Secrets of one host: values that its servers were given by reference.

use std::borrow::Cow;

use arc_swap::ArcSwap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_core::secrets::Secrets;

use crate::host::Host;

/// Every value that a reference of the config has had in this run, redacted from all text for people. One server's
/// secret may turn up in another's output, so all servers of a host share the set.
#[derive(Debug, Default)]
pub(crate) struct Redactor(ArcSwap<Secrets>);

impl Redactor {
    /// Redacts a value from now on.
    pub(crate) fn add_secret(&self, label: &str, value: &str) {
        if self.0.load().contains(value) {
            return;
        }
        self.0.rcu(|known| {
            let mut secrets = Secrets::clone(known);
            secrets.insert(label, value);
            secrets
        });
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        self.0.load().redact(text).into_owned()
    }

    /// Redacts a text whose beginning was cut off.
    pub(crate) fn redact_truncated(&self, text: &str) -> String {
        self.0.load().redact_truncated(text).into_owned()
    }

    pub(crate) fn redact_kind(&self, kind: FaultKind) -> FaultKind {
        kind.redacted(&self.0.load())
    }

    pub(crate) fn redact_fault(&self, fault: Fault) -> Fault {
        Fault { kind: self.redact_kind(fault.kind), ..fault }
    }
}

impl Host {
    /// Returns the text with every value redacted that a reference of the config has had since this host began. For
    /// front ends that show or keep texts of servers.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.inner().telemetry.redactor.0.load().redact(text) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(hidden) => Cow::Owned(hidden),
        }
    }
}
