//! Ostler is hurt on purpose.
//!
//! A run has two records that know nothing of each other: the [history](history)
//! that callers write, and the [ledgers](ledger) that servers write. The
//! [checker](check) reads both when everything is over and names every promise
//! that was broken, with the calls that show it.

pub mod check;
pub mod history;
pub mod ledger;
