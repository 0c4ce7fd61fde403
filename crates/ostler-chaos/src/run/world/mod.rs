//! Where a run takes place: a folder that knows nothing of its user, with a
//! config, tokens, a daemon, and everything that the daemon needs.

pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod family;
pub(crate) mod people;
pub(crate) mod site;
