//! Scenarios of remote servers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tests::CALL;
use super::*;
use crate::classify::{AttemptOutcome, classify};
use crate::fault::{ConnectFailure, ConnectFault, FaultKind, PermanentCause};
use crate::server_name::ServerName;
use crate::spec::{EndpointSpec, ServerTransport};
use crate::test_clock::at;

fn spec() -> ServerSpec {
    ServerSpec::stdio(ServerName::new("a").unwrap(), "a")
}

fn remote() -> ServerSpec {
    let endpoint = EndpointSpec { url: "https://example.com/mcp".into(), headers: BTreeMap::new() };
    ServerSpec::with_transport(ServerName::new("a").unwrap(), ServerTransport::Http(endpoint))
}

fn supervisor(spec: &ServerSpec) -> (Supervisor, fastrand::Rng) {
    (Supervisor::new(spec, at(0)), fastrand::Rng::with_seed(7))
}

fn port_closed() -> FaultKind {
    FaultKind::Connect(Box::new(ConnectFailure {
        authority: "example.com:443".into(),
        why: ConnectFault::Refused,
    }))
}

fn refused() -> FaultKind {
    FaultKind::NeedsAuth { code: 401, challenge: "Bearer".into() }
}

#[test]
fn wrong_credentials_are_tried_once_a_minute_and_cost_nothing() {
    let (mut supervisor, mut rng) = supervisor(&spec());
    for generation in 1..=20 {
        let now = generation * 60_000;
        assert_eq!(supervisor.poll(at(now)), Some(Action::Start { generation }));
        supervisor.on_start_failed(generation, ServerFailure::new(refused(), at(now)), &mut rng);
        assert!(matches!(supervisor.availability(at(now)), Availability::NeedsAuth { .. }));
        assert_eq!(supervisor.poll(at(now + 59_999)), None, "no storm");
        assert_eq!(supervisor.next_wake(), Some(at(now + 60_000)));
        assert_eq!((supervisor.consecutive_failures(), supervisor.restarts(at(now)).0), (0, 0));
    }
}

#[test]
fn credentials_that_end_during_a_session_end_it_and_a_reload_tries_again() {
    let (mut supervisor, mut rng) = supervisor(&spec().lazy());
    supervisor.on_wait();
    supervisor.poll(at(0));
    supervisor.on_started(1, at(0));
    assert!(supervisor.on_lost(1, ServerFailure::new(refused(), at(10)), &mut rng));
    assert!(matches!(supervisor.poll(at(10)), Some(Action::Retire { generation: 1, .. })));
    assert_eq!(supervisor.poll(at(10)), None);
    supervisor.on_reload();
    assert_eq!(supervisor.poll(at(11)), Some(Action::Start { generation: 2 }));
}

/// Returns the number of starts in a day of an eager server that always fails like this.
fn starts_in_a_day(spec: &ServerSpec, kind: &FaultKind) -> u64 {
    let (mut supervisor, mut rng) = supervisor(spec);
    let (mut now, mut starts) = (0, 0);
    while now < 24 * 3_600_000 {
        while let Some(action) = supervisor.poll(at(now)) {
            let Action::Start { generation } = action else { panic!("{action:?}") };
            starts += 1;
            supervisor.on_start_failed(generation, ServerFailure::new(kind.clone(), at(now)), &mut rng);
        }
        let wake = supervisor.next_wake().expect("an eager server is tried again");
        now = u64::try_from(wake.duration_since(at(0)).as_millis()).unwrap() + 1;
        assert!(matches!(supervisor.phase(), Phase::Backoff { .. }), "{:?}", supervisor.phase());
    }
    starts
}

#[test]
fn a_server_that_can_not_be_used_is_asked_ever_more_seldom_and_never_ejected() {
    let unreachable = (spec(), port_closed());
    let silent = (remote(), FaultKind::StartTimeout(Duration::from_secs(20)));
    let foreign = (remote(), FaultKind::Handshake("it speaks no MCP".into()));
    for (spec, kind) in [unreachable, silent, foreign] {
        let starts = starts_in_a_day(&spec, &kind);
        assert!((288..450).contains(&starts), "{kind:?}: {starts} starts in a day");
    }
}

fn away() -> ServerFailure {
    ServerFailure::new(port_closed(), at(0))
}

/// Starts a server that is away until `back` while a caller waits. Returns the time of the first start that
/// succeeds.
fn returns_at(supervisor: &mut Supervisor, rng: &mut fastrand::Rng, back: u64) -> u64 {
    let mut now = 0;
    loop {
        while let Some(action) = supervisor.poll(at(now)) {
            let Action::Start { generation } = action else { continue };
            if now >= back {
                return now;
            }
            supervisor.on_start_failed(generation, ServerFailure { at: at(now), ..away() }, rng);
        }
        let wake = supervisor.next_wake().expect("it is tried again");
        now = u64::try_from(wake.duration_since(at(0)).as_nanos().div_ceil(1_000_000)).unwrap();
    }
}

#[test]
fn a_server_that_is_away_is_found_within_five_seconds_of_its_return_if_a_caller_waits() {
    for seed in 0..100 {
        for back in [300, 1_000, 5_000, 60_000] {
            let (mut supervisor, _) = supervisor(&remote());
            let mut rng = fastrand::Rng::with_seed(seed);
            supervisor.poll(at(0));
            supervisor.on_started(1, at(0));
            assert!(supervisor.on_lost(1, away(), &mut rng));
            supervisor.on_wait();
            let found = returns_at(&mut supervisor, &mut rng, back);
            assert!(found - back <= 5_000, "{found} ms");
            assert!(back > 1_000 || found - back <= 1_600, "away for {back} ms, found after {found} ms");
            assert!(supervisor.admit(CALL, at(found)).is_ok(), "the breaker is closed");
        }
    }
}

#[test]
fn a_caller_that_comes_later_has_a_server_tried_that_is_seldom_asked() {
    let (mut supervisor, mut rng) = supervisor(&remote());
    let mut now = 0;
    while now < 3_600_000 {
        while let Some(Action::Start { generation }) = supervisor.poll(at(now)) {
            supervisor.on_start_failed(generation, ServerFailure { at: at(now), ..away() }, &mut rng);
        }
        now = u64::try_from((supervisor.next_wake().unwrap() - at(0)).as_millis()).unwrap() + 1;
    }
    assert_eq!(supervisor.poll(at(now - 100_000)), None, "it is tried every few minutes");
    supervisor.on_started_before();
    supervisor.on_wait();
    assert!(matches!(supervisor.poll(at(now - 100_000)), Some(Action::Start { .. })));
}

#[test]
fn a_server_that_was_never_reached_is_not_waited_for() {
    for (has_record, is_waited_for) in [(false, false), (true, true)] {
        let (mut supervisor, mut rng) = supervisor(&remote());
        if has_record {
            supervisor.on_started_before();
        }
        supervisor.on_wait();
        supervisor.poll(at(0));
        supervisor.on_start_failed(1, away(), &mut rng);
        let wake = supervisor.next_wake().unwrap();
        assert_eq!(supervisor.availability(at(0)) == Availability::Wait, is_waited_for);
        assert_eq!(supervisor.availability(wake), Availability::Wait, "the next call tries again");
    }
}

#[test]
fn what_an_endpoint_that_worked_says_of_itself_may_pass() {
    let (mut supervisor, mut rng) = supervisor(&remote());
    supervisor.poll(at(0));
    supervisor.on_started(1, at(0));
    supervisor.on_lost(1, away(), &mut rng);
    supervisor.on_wait();
    while supervisor.phase().as_str() != "starting" {
        supervisor.poll(at(100));
    }
    let kind = FaultKind::from(PermanentCause::NoEndpoint { code: 404, text: String::new() });
    supervisor.on_start_failed(2, ServerFailure::new(kind, at(100)), &mut rng);
    assert!(matches!(supervisor.phase(), Phase::Backoff { .. }), "{:?}", supervisor.phase());
}

#[test]
fn what_an_operator_has_to_correct_ejects_a_remote_server_too() {
    let (mut supervisor, mut rng) = supervisor(&remote());
    for generation in 1..=6 {
        let now = generation * 5_001;
        assert_eq!(supervisor.poll(at(now)), Some(Action::Start { generation }));
        let kind = FaultKind::Start("its `url` is no address".into());
        supervisor.on_start_failed(generation, ServerFailure::new(kind, at(now)), &mut rng);
    }
    assert!(matches!(supervisor.availability(at(30_006)), Availability::Ejected { .. }));
}

#[test]
fn a_server_that_asks_for_a_pause_gets_it_and_then_one_probe() {
    let mut spec = spec();
    spec.breaker.failures = 0;
    let (mut supervisor, _) = supervisor(&spec);
    supervisor.poll(at(0));
    supervisor.on_started(1, at(0));
    let permit = supervisor.admit(CALL, at(0)).unwrap();
    let wait = Duration::from_secs(7);
    let classification = classify(&AttemptOutcome::Fault(&FaultKind::RetryAfter { code: 429, wait }));
    supervisor.record_outcome(permit, CompletedCall { origin: CALL, generation: 1, classification }, at(0));
    assert_eq!(supervisor.admit(CALL, at(1_000)).unwrap_err().retry_after, Duration::from_secs(6));
    let probe = supervisor.admit(CALL, at(7_000)).unwrap();
    assert!(probe.is_probe() && supervisor.admit(CALL, at(7_000)).is_err());
    assert!(matches!(supervisor.phase(), Phase::Ready { generation: 1, .. }), "the session stays");
}

#[test]
fn a_pause_that_is_asked_for_at_the_start_delays_the_next_one() {
    let (mut supervisor, mut rng) = supervisor(&spec());
    supervisor.poll(at(0));
    let kind = FaultKind::RetryAfter { code: 503, wait: Duration::from_secs(30) };
    supervisor.on_start_failed(1, ServerFailure::new(kind, at(0)), &mut rng);
    assert_eq!(supervisor.poll(at(29_999)), None);
    assert!(supervisor.admit(CALL, at(1_000)).is_err());
    assert_eq!(supervisor.poll(at(30_000)), Some(Action::Start { generation: 2 }));
    assert_eq!(supervisor.restarts(at(30_000)).0, 0);
}

#[test]
fn a_remote_server_that_fails_twice_ends_the_wait_of_a_single_command_and_not_of_a_daemon() {
    let kind = || FaultKind::Status { code: 500, text: String::new() };
    let mut spec = remote().lazy();
    spec.restart.max = 1;
    for is_once in [false, true] {
        let (supervisor, mut rng) = supervisor(&spec);
        let mut supervisor = if is_once { supervisor.for_single_command() } else { supervisor };
        supervisor.on_wait();
        supervisor.poll(at(0));
        supervisor.on_start_failed(1, ServerFailure::new(kind(), at(0)), &mut rng);
        assert_eq!(supervisor.availability(at(0)), Availability::Wait, "once: {is_once}");
        let second = supervisor.next_wake().unwrap();
        assert_eq!(supervisor.poll(second), Some(Action::Start { generation: 2 }));
        supervisor.on_start_failed(2, ServerFailure::new(kind(), second), &mut rng);
        assert_eq!(
            matches!(supervisor.availability(second), Availability::Ejected { .. }),
            is_once,
            "{:?}",
            supervisor.phase()
        );
    }
}
