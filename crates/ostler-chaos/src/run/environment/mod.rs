//! Environment of a run: a folder independent of its user, with a config, tokens, a daemon, and
//! everything that the daemon needs.

pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod daemon_processes;
pub(crate) mod testbed;
pub(crate) mod users;
