//! Signals that end a command: Ctrl-C, `SIGTERM` and others.

use std::io::{BufRead, BufReader};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::home::{Home, until};

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Starts a call that never returns, and waits until its tool runs.
fn hanging(home: &Home) -> Child {
    let child = home.command(&["call", "fake__hang"]).spawn().unwrap();
    until("the call arrives", || !home.lines("ledger").is_empty());
    child
}

#[test]
fn ctrl_c_ends_the_call_in_order_and_says_that_it_may_have_run() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    let child = hanging(&home);
    send(&child, Signal::SIGINT);
    insta::assert_snapshot!(home.finish(child));
}

#[test]
fn sigterm_ends_it_the_same_way_with_its_own_code() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    let child = hanging(&home);
    send(&child, Signal::SIGTERM);
    assert_eq!(home.finish(child).code, Some(143));
}

#[test]
fn ctrl_c_twice_leaves_a_stubborn_server_to_its_guard() {
    let home =
        Home::with_servers(&[("fake", &["--ledger", "ledger", "--ignore-stdin-close", "--ignore-sigterm"])]);
    let mut child = hanging(&home);
    send(&child, Signal::SIGINT);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("waiting for the servers to end")));
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_killed_command_leaves_no_server_behind() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger", "--fork-setsid", "stray"])]);
    let mut child = hanging(&home);
    child.kill().unwrap();
    child.wait().unwrap();
}
