//! Fault injection for a daemon, and a checker of its promises.
//!
//! A run has two independent records: the [history] that callers write, and the
//! [ledgers](ledger) that servers write. The [checker](check) reads both after the run and names
//! every broken promise, with the calls that show it.

pub mod check;
pub mod history;
pub mod ledger;
