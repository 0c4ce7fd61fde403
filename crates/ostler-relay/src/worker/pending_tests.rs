//! Tables and properties of [`PendingRelayCall`].

use ostler_core::fault::Delivery;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
}

fn pending(now: Instant) -> PendingRelayCall {
    let (deadline, hard_deadline) = (now + SECOND * 60, now + SECOND * 600);
    PendingRelayCall::new(CallTimes { began: now, deadline, hard_deadline, progress_extension: SECOND * 60 })
}

fn sent(now: Instant) -> PendingRelayCall {
    let mut pending = pending(now);
    pending.on_publishing();
    pending.on_published(now);
    pending
}

fn running(now: Instant) -> PendingRelayCall {
    let mut pending = sent(now);
    assert_eq!(pending.on_accepted(name("h"), Instance(1), now), PendingAction::Nothing);
    pending
}

fn delivery(fault: Option<Fault>) -> Option<Delivery> {
    fault.map(|fault| fault.delivery)
}

#[test]
fn only_what_has_not_left_was_not_sent() {
    let now = Instant::now();
    let end = now + SECOND * 60;
    let mut publishing = pending(now);
    publishing.on_publishing();
    assert_eq!(delivery(pending(now).on_time_passed(end)), Some(Delivery::NotSent));
    assert_eq!(delivery(publishing.on_time_passed(end)), Some(Delivery::NotSent));
    assert_eq!(delivery(sent(now).on_time_passed(end)), Some(Delivery::Unknown));
    assert_eq!(delivery(running(now).on_time_passed(end)), Some(Delivery::Unknown));
}

#[test]
fn who_is_heard_by_nobody_may_be_sent_again_and_who_was_heard_may_not() {
    let now = Instant::now();
    let mut call = sent(now);
    assert!(call.on_no_responders());
    assert!(!call.may_have_left());
    assert!(!call.on_no_responders(), "it is with us already");
    let mut call = running(now);
    assert!(!call.on_no_responders());
    assert!(call.may_have_left());
    // The no-responders report may arrive before the publish returns.
    let mut call = pending(now);
    call.on_publishing();
    assert!(call.on_no_responders());
    call.on_published(now);
    assert!(!call.may_have_left());
}

#[test]
fn a_denial_is_about_what_no_host_has() {
    let now = Instant::now();
    assert_eq!(delivery(sent(now).on_denied("x")), Some(Delivery::Rejected));
    assert_eq!(running(now).on_denied("x"), None);
    assert_eq!(pending(now).on_denied("x"), None);
}

#[test]
fn time_alone_ends_each_stage_to_the_moment() {
    let now = Instant::now();
    let (accept, silence) = (now + ACCEPT, now + SILENCE);
    let mut resumed = sent(now);
    resumed.on_link_lost();
    resumed.on_resumed(now);
    let mut known = running(now);
    known.on_link_lost();
    known.on_resumed(now);
    for (mut call, end) in [(sent(now), accept), (running(now), silence), (resumed, accept), (known, silence)]
    {
        assert_eq!(call.next_wake(), end, "{call:?}");
        assert_eq!(call.on_time_passed(end - Duration::from_nanos(1)), None, "{call:?}");
        assert_eq!(delivery(call.on_time_passed(end)), Some(Delivery::Unknown), "{call:?}");
    }
}

#[test]
fn while_the_connection_is_lost_only_the_calls_own_time_runs() {
    let now = Instant::now();
    let mut call = running(now);
    call.on_link_lost();
    assert_eq!(call.next_wake(), now + SECOND * 60);
    assert_eq!(call.on_time_passed(now + SECOND * 59), None);
}

#[test]
fn a_host_of_another_life_ends_its_calls_and_no_others() {
    let now = Instant::now();
    let ends = |mut call: PendingRelayCall, host: &str, generation| {
        matches!(call.on_heartbeat(&name(host), Instance(generation), now), PendingAction::Fail(_))
    };
    assert!(ends(running(now), "h", 2));
    assert!(!ends(running(now), "h", 1));
    assert!(!ends(running(now), "other", 2));
    assert!(!ends(sent(now), "h", 2));
}

#[test]
fn a_host_that_comes_back_later_than_we_is_asked_again_until_it_says_something() {
    let now = Instant::now();
    let mut call = running(now);
    call.on_link_lost();
    call.on_resumed(now);
    let later = now + SECOND * 3;
    assert_eq!(call.on_heartbeat(&name("h"), Instance(1), later), PendingAction::Resume);
    assert_eq!(call.on_heartbeat(&name("h"), Instance(1), later + SECOND), PendingAction::Resume);
    assert_eq!(call.next_wake(), later + ACCEPT, "that is no more time");
    assert_eq!(call.on_accepted(name("h"), Instance(1), later + SECOND), PendingAction::Nothing);
    assert_eq!(call.next_wake(), later + SECOND + SILENCE);
    assert_eq!(call.on_heartbeat(&name("h"), Instance(1), later + SECOND), PendingAction::Nothing);
}

#[test]
fn whoever_is_heard_is_asked_about_a_call_whose_host_is_not_known() {
    let now = Instant::now();
    let mut call = sent(now);
    assert_eq!(
        call.on_heartbeat(&name("h"), Instance(1), now),
        PendingAction::Nothing,
        "it has just been sent"
    );
    call.on_link_lost();
    call.on_resumed(now);
    assert_eq!(call.on_heartbeat(&name("other"), Instance(1), now + SECOND), PendingAction::Resume);
    assert_eq!(call.on_heartbeat(&name("h"), Instance(1), now + SECOND * 2), PendingAction::Resume);
    assert_eq!(call.next_wake(), now + SECOND + ACCEPT);
}

#[test]
fn accepted_after_an_outage_may_be_no_answer_to_what_was_asked() {
    let now = Instant::now();
    for mut call in [sent(now), running(now)] {
        call.on_link_lost();
        call.on_resumed(now);
        assert_eq!(
            call.on_accepted(name("h"), Instance(1), now),
            PendingAction::Resume,
            "it could not hear us before"
        );
        assert_eq!(
            call.on_heartbeat(&name("h"), Instance(1), now),
            PendingAction::Resume,
            "nor, perhaps, then"
        );
        assert_eq!(call.on_accepted(name("h"), Instance(1), now), PendingAction::Nothing);
        assert_eq!(call.on_heartbeat(&name("h"), Instance(1), now), PendingAction::Nothing);
    }
    // Another host was heard and asked first.
    let mut call = sent(now);
    call.on_link_lost();
    call.on_resumed(now);
    assert_eq!(call.on_heartbeat(&name("other"), Instance(1), now), PendingAction::Resume);
    assert_eq!(call.on_accepted(name("h"), Instance(1), now), PendingAction::Resume);
}

#[test]
fn an_answer_that_is_on_its_way_in_chunks_is_not_asked_for_again() {
    let now = Instant::now();
    let mut call = running(now);
    call.on_link_lost();
    call.on_resumed(now);
    call.on_progress(now);
    assert_eq!(call.on_heartbeat(&name("h"), Instance(1), now), PendingAction::Nothing);
}

#[test]
fn accepted_once_more_asks_for_the_answer_and_that_is_no_circle() {
    let now = Instant::now();
    let mut call = running(now);
    assert_eq!(call.on_accepted(name("h"), Instance(1), now), PendingAction::Resume);
    assert_eq!(
        call.on_accepted(name("h"), Instance(1), now),
        PendingAction::Nothing,
        "that is the answer to it"
    );
    assert_eq!(call.on_accepted(name("h"), Instance(1), now), PendingAction::Resume);
    let later = now + ACCEPT;
    assert_eq!(
        call.on_accepted(name("h"), Instance(1), later),
        PendingAction::Resume,
        "what was asked was lost"
    );
}

#[test]
fn a_second_host_that_has_accepted_it_too_is_not_asked() {
    let now = Instant::now();
    let mut call = running(now);
    assert_eq!(call.on_accepted(name("other"), Instance(2), now), PendingAction::Nothing);
    let later = now + SILENCE;
    assert_eq!(call.on_accepted(name("other"), Instance(2), later), PendingAction::Nothing);
    assert_eq!(delivery(call.on_time_passed(later)), Some(Delivery::Unknown), "its own host is silent");
}

#[test]
fn progress_moves_the_end_and_questions_stop_it_up_to_the_hard_end() {
    let now = Instant::now();
    let mut call = running(now);
    let at = now + SECOND * 50;
    call.on_progress(at);
    assert_eq!(call.times.deadline, at + SECOND * 60);
    call.on_progress(now + SECOND * 599);
    assert_eq!(call.times.deadline, now + SECOND * 600);
    let mut call = running(now);
    call.on_server_request(now);
    call.on_server_request(now);
    call.on_server_request_closed(at);
    assert_eq!(call.times.deadline, now + SECOND * 600, "one is open still");
    call.on_server_request_closed(at);
    assert_eq!(call.times.deadline, at + SECOND * 60);
}

/// Events of a call.
#[derive(Debug, Clone, Copy)]
enum PendingEvent {
    Publishing,
    Published,
    PublishFailed,
    NoResponders,
    Accepted(bool),
    HostMessage,
    Heartbeat(bool),
    LinkLost,
    Resumed,
    Progress,
    ServerRequest,
    ServerRequestClosed,
    Time(u16),
}

fn pending_event() -> impl Strategy<Value = PendingEvent> {
    prop_oneof![
        Just(PendingEvent::Publishing),
        Just(PendingEvent::Published),
        Just(PendingEvent::PublishFailed),
        Just(PendingEvent::NoResponders),
        any::<bool>().prop_map(PendingEvent::Accepted),
        Just(PendingEvent::HostMessage),
        any::<bool>().prop_map(PendingEvent::Heartbeat),
        Just(PendingEvent::LinkLost),
        Just(PendingEvent::Resumed),
        Just(PendingEvent::Progress),
        Just(PendingEvent::ServerRequest),
        Just(PendingEvent::ServerRequestClosed),
        (0..5_000_u16).prop_map(PendingEvent::Time),
    ]
}

proptest! {
    /// Compares with a model that knows only the events: a call is unsent as long as each publish
    /// was followed by a no-responders report. No call outlives its hard deadline.
    #[test]
    fn what_may_have_run_is_never_called_unsent(events in proptest::collection::vec(pending_event(), 0..60)) {
        let began = Instant::now();
        let mut now = began;
        let mut call = pending(now);
        let (mut is_publishing, mut is_out) = (false, false);
        for event in events {
            let mut end = None;
            match event {
                PendingEvent::Publishing => {
                    is_publishing |= !is_out;
                    call.on_publishing();
                }
                PendingEvent::Published => {
                    is_out |= std::mem::take(&mut is_publishing);
                    call.on_published(now);
                }
                PendingEvent::PublishFailed => {
                    is_publishing = false;
                    call.on_publish_failed();
                }
                PendingEvent::NoResponders => {
                    if call.on_no_responders() {
                        (is_publishing, is_out) = (false, false);
                    }
                }
                PendingEvent::Accepted(instance) => {
                    (is_publishing, is_out) = (false, true);
                    call.on_accepted(name("h"), Instance(u64::from(instance)), now);
                }
                PendingEvent::HostMessage => {
                    (is_publishing, is_out) = (false, true);
                    call.on_host_message(now);
                }
                PendingEvent::Heartbeat(instance) => {
                    if let PendingAction::Fail(fault) = call.on_heartbeat(&name("h"), Instance(u64::from(instance)), now) {
                        end = Some(fault);
                    }
                }
                PendingEvent::LinkLost => call.on_link_lost(),
                PendingEvent::Resumed => call.on_resumed(now),
                PendingEvent::Progress => {
                    (is_publishing, is_out) = (false, true);
                    call.on_progress(now);
                }
                PendingEvent::ServerRequest => {
                    (is_publishing, is_out) = (false, true);
                    call.on_server_request(now);
                }
                PendingEvent::ServerRequestClosed => call.on_server_request_closed(now),
                PendingEvent::Time(millis) => {
                    let wake = call.next_wake();
                    now += Duration::from_millis(u64::from(millis));
                    end = call.on_time_passed(now);
                    prop_assert_eq!(end.is_some(), now >= wake, "{:?}", call);
                }
            }
            prop_assert_eq!(call.may_have_left(), is_out, "{:?}", call);
            prop_assert!(call.next_wake() <= began + SECOND * 600);
            if let Some(fault) = end {
                let expected = if is_out { Delivery::Unknown } else { Delivery::NotSent };
                prop_assert_eq!(fault.delivery, expected);
                return Ok(());
            }
        }
    }
}
