//! Outcome of a single call when one of the processes that carry it dies or stops.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ostler_testkit::Proc;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::home::{Home, until};
use crate::site::{Setup, Site, worker};

/// Returns a call that would take far longer than any test here.
fn long() -> Value {
    json!({"name": "fake__sleep", "arguments": {"ms": 600_000, "n": 1}})
}

/// Waits until the server executes a call, which a host has then accepted.
fn until_run(site: &Site) {
    until("the server has the call", || site.ledger().len() == 1);
}

fn is_cancelled(site: &Site) -> bool {
    site.home.lines("frames").iter().any(|frame| frame.contains("notifications/cancelled"))
}

/// Half of the calls' timeout. The limit of 3.5 s is asserted where time is simulated, and measured by `bench relay`.
const LONG_BEFORE: Duration = Duration::from_secs(30);

#[test]
fn the_death_of_a_host_that_has_a_call_is_told_long_before_the_call_is_over() {
    let (broker, sites) = Setup { call_timeout: "60s", ..Setup::default() }.build();
    let (far, daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    let id = agent.begin("tools/call", long());
    until_run(&sites[0]);
    daemon.signal(Signal::SIGKILL);
    let died = Instant::now();
    let answer = agent.answer(id);
    let took = died.elapsed();
    println!("the death of a host was told after {took:.2?}: {}", answer["error"]["message"]);
    assert_eq!(answer["error"]["data"]["code"], "outcome-unknown", "{answer}");
    assert!(took < LONG_BEFORE, "{took:?}");
}

#[test]
fn the_death_of_a_worker_ends_its_call_at_the_server_long_before_the_call_is_over() {
    let setup = Setup { call_timeout: "60s", args: &["--frames", "frames"], ..Setup::default() };
    let (broker, sites) = setup.build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    agent.begin("tools/call", long());
    until_run(&sites[0]);
    assert!(!is_cancelled(&sites[0]));
    agent.signal(Signal::SIGKILL);
    let died = Instant::now();
    until("the server hears of it", || is_cancelled(&sites[0]));
    let took = died.elapsed();
    println!("the death of a worker reached the server after {took:.2?}");
    assert!(took < LONG_BEFORE, "{took:?}");
}

#[test]
fn a_request_that_a_stopped_host_reads_too_late_never_runs() {
    let (broker, sites) = Setup { call_timeout: "60s", ..Setup::default() }.build();
    let (far, daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    assert!(agent.tools().contains(&"fake__echo".to_owned()));
    daemon.signal(Signal::SIGSTOP);
    let host = Proc::find(daemon.pid()).unwrap();
    until("the host is stopped", || host.is_frozen());
    let late = agent.call("fake__echo", json!({"n": 1}));
    assert_eq!(late["error"]["data"]["code"], "outcome-unknown", "{late}");
    daemon.signal(Signal::SIGCONT);
    // Sent later, so read later: when it is answered the other one was read.
    let next = agent.call("fake__echo", json!({"n": 2}));
    assert!(next.get("result").is_some(), "{next}");
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    assert_only_second(&sites[0]);
}

#[test]
fn a_request_that_a_stopped_broker_brings_too_late_never_runs() {
    let (broker, sites) = Setup { call_timeout: "60s", ..Setup::default() }.build();
    let (far, daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    assert!(agent.tools().contains(&"fake__echo".to_owned()));
    broker.freeze();
    let late = agent.call("fake__echo", json!({"n": 1}));
    assert_eq!(late["error"]["data"]["code"], "outcome-unknown", "{late}");
    broker.thaw();
    let next = agent.call("fake__echo", json!({"n": 2}));
    assert!(next.get("result").is_some(), "{next}");
    assert!(daemon.end().0.success(), "{}", sites[0].said());
    assert_only_second(&sites[0]);
}

#[test]
fn a_worker_that_has_slept_hears_the_answer_that_came_meanwhile() {
    let (broker, sites) = Setup { call_timeout: "60s", ..Setup::default() }.build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    let arguments = json!({"ms": 300, "n": 1});
    let id = agent.begin("tools/call", json!({"name": "fake__sleep", "arguments": arguments}));
    until_run(&sites[0]);
    agent.nudge(Signal::SIGSTOP);
    // Longer than the timeout of a silent host, which this test is about.
    std::thread::sleep(Duration::from_millis(4_500));
    agent.nudge(Signal::SIGCONT);
    let answer = agent.answer(id);
    assert!(answer.get("result").is_some(), "{answer}");
}

fn assert_only_second(site: &Site) {
    let ledger = site.ledger();
    assert!(ledger.len() == 1 && ledger[0].ends_with("{\"n\":2}"), "{ledger:?}");
}
