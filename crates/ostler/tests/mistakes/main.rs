//! Mistakes of a new user, and the output for each.
//!
//! Every test makes one mistake, types the commands that a person would type next, and keeps all of the output as a
//! snapshot. Commands have `HOME` and `PATH` and no other variable. `--nocapture` prints the duration of each.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

#[path = "../cli/daemon.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod daemon;
#[path = "../cli/home.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod home;
#[path = "../cli/http.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod http;

mod new_user;
mod web_servers;

mod commands;
mod configs;
mod daemons;
mod programs;
mod urls;
