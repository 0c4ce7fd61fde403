//! The secrets of one host: what its servers were given by reference.

use std::borrow::Cow;

use arc_swap::ArcSwap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_core::secrets::Secrets;

use crate::host::Host;

/// Every value that a reference of the config has had in this run, to be kept
/// out of whatever people read. One server's secret may turn up in another's
/// words, so all servers of a host share it.
#[derive(Debug, Default)]
pub(crate) struct Veil(ArcSwap<Secrets>);

impl Veil {
    /// Hides a value from now on.
    pub(crate) fn learn(&self, label: &str, value: &str) {
        if self.0.load().knows(value) {
            return;
        }
        self.0.rcu(|known| {
            let mut secrets = Secrets::clone(known);
            secrets.learn(label, value);
            secrets
        });
    }

    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.load().hide(text).into_owned()
    }

    /// As [`hide`](Self::hide), of a text whose beginning was cut off.
    pub(crate) fn hide_cut(&self, text: &str) -> String {
        self.0.load().hide_cut(text).into_owned()
    }

    pub(crate) fn over(&self, kind: FaultKind) -> FaultKind {
        kind.without(&self.0.load())
    }

    pub(crate) fn over_fault(&self, fault: Fault) -> Fault {
        Fault { kind: self.over(fault.kind), ..fault }
    }
}

impl Host {
    /// The text without the values that references of the config have had
    /// since this host began: for whoever shows or keeps what it is told.
    pub fn hide_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.shared().telemetry.redactor.0.load().hide(text) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(hidden) => Cow::Owned(hidden),
        }
    }
}
