//! Retained bytes of sessions, and the order of their eviction.

use ostler_wire::ClientInfo;

use super::*;
use crate::client_session::NewSession;
use crate::frame_queue::QueueBounds;
use crate::retained_bytes::MAX_RETAINED;
use ostler_host::Scope;

fn initialize_params(name: &str) -> InitializeParams {
    InitializeParams {
        version: "2025-11-25",
        capabilities: "{}".into(),
        identity: ClientInfo { name: name.into(), version: "1".into() },
    }
}

/// Returns a session with `initialize` parameters of its own, last used at `used`.
fn session(sessions: &SessionTable, principal: &str, used: u64) -> Arc<ClientSession> {
    let id = random_session_id().unwrap();
    let said = sessions.intern(initialize_params(&id));
    let caller = Caller::new(principal, "all");
    let session = ClientSession::new(NewSession {
        caller: caller.in_session(id),
        scope: Scope::All,
        initialize_params: said,
    });
    session.mark_used(used);
    session
}

/// Opens a session if there is space, and returns the one evicted for it.
fn open(sessions: &SessionTable, session: &Arc<ClientSession>) -> Option<Arc<ClientSession>> {
    let mut open = sessions.lock();
    let owner = open.owner(session.caller().principal());
    let evicted = open.evict_for(sessions.max, &owner).unwrap();
    let key = parse_session_id(session.id()).unwrap();
    open.sessions.insert(key, OwnedSession { session: Arc::clone(session), owner });
    evicted
}

#[test]
fn words_of_clients_that_left_do_not_add_up() {
    let sessions = SessionTable::new(1_000, Duration::from_secs(60));
    for used in 0..200 {
        open(&sessions, &session(&sessions, "ada", used));
    }
    for number in 0..1_000 {
        drop(sessions.intern(initialize_params(&number.to_string())));
        assert!(sessions.lock().initialize_params.len() <= 200 + MAX_UNUSED + 1);
    }
}

/// Returns idle sessions, as owner and start of the idle time.
fn idle(sessions: &SessionTable) -> Vec<(String, u64)> {
    let open = sessions.lock();
    let all = open.sessions.values().map(|owned| &owned.session);
    all.filter_map(|session| Some((session.caller().principal().to_owned(), session.idle_since()?))).collect()
}

#[test]
fn whoever_has_the_most_sessions_gives_the_longest_idle_one_whatever_happens_meanwhile() {
    let owners = ["ada", "bob", "cyd", "dan"];
    for seed in 0..5 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sessions = SessionTable::new(200, Duration::from_secs(60));
        for now in 0..1_200 {
            // Some owners open more sessions than others, and the largest one changes.
            let wish = rng.usize(1..=4);
            let owner = owners[(rng.usize(..wish) + now as usize / 200) % 4];
            let newcomer = session(&sessions, owner, now);
            let mut before = idle(&sessions);
            let has_room = before.len() < 200;
            if let Some(evicted) = open(&sessions, &newcomer) {
                let of = |name: &str| {
                    before.iter().filter(|other| other.0 == name).count() + usize::from(name == owner)
                };
                let (name, since) = (evicted.caller().principal(), evicted.idle_since().unwrap());
                assert_eq!(of(name), owners.map(of).into_iter().max().unwrap(), "seed {seed}, at {now}");
                before.retain(|other| other.0 == name);
                assert_eq!(before.iter().map(|other| other.1).min(), Some(since), "seed {seed}, at {now}");
            } else {
                assert!(has_room);
            }
            for _ in 0..rng.usize(..3) {
                let used: Vec<_> =
                    sessions.lock().sessions.values().map(|owned| Arc::clone(&owned.session)).collect();
                used[rng.usize(..used.len())].mark_used(now);
            }
            if rng.u8(..20) == 0 {
                let gone = rng.choice(sessions.lock().sessions.keys().copied().collect::<Vec<_>>()).unwrap();
                sessions.lock().sessions.remove(&gone);
            }
        }
    }
}

#[test]
fn a_crowd_of_newcomers_does_not_have_all_sessions_looked_through_for_each() {
    let sessions = SessionTable::new(10_000, Duration::from_secs(60));
    for used in 0..10_000 {
        open(&sessions, &session(&sessions, "ada", used));
    }
    let mut looks = 0;
    for used in 10_000..11_000 {
        let before = sessions.lock().eviction.candidate_count();
        assert!(open(&sessions, &session(&sessions, "ada", used)).is_some());
        looks += usize::from(sessions.lock().eviction.candidate_count() >= before);
    }
    assert!(looks <= 8, "{looks} times");
}

/// Adds streams to a session, each with an answer of that size for a client that is gone.
fn answers(sessions: &SessionTable, session: &ClientSession, sizes: &[usize]) -> Vec<u64> {
    let keep = |size: &usize| {
        let queue = Arc::new(FrameQueue::new(QueueBounds { frames: 8, bytes: 8 }));
        let number = session.streams.make_resumable(&queue).unwrap();
        drop(queue.attach(None));
        queue.finish(Some(vec![0; *size].into()));
        sessions.retain_answer(session, &queue);
        number
    };
    sizes.iter().map(keep).collect()
}

#[tokio::test(start_paused = true)]
async fn answers_that_wait_are_bounded_over_all_sessions_and_the_oldest_go_first() {
    let sessions = SessionTable::new(10, Duration::from_secs(60));
    let [first, second] = ["ada", "bob"].map(|name| session(&sessions, name, 0));
    open(&sessions, &first);
    open(&sessions, &second);
    // Without the oldest, the rest is just within the target.
    let (quarter, moment) = (MAX_RETAINED / 4 - 100, Duration::from_millis(1));
    let oldest = answers(&sessions, &first, &[quarter + 400])[0];
    tokio::time::advance(moment).await;
    let older = answers(&sessions, &second, &[quarter, quarter]);
    tokio::time::advance(moment).await;
    let newer = answers(&sessions, &first, &[quarter])[0];
    assert!(first.streams.resume(oldest, 0).is_some(), "there is room for all");
    tokio::time::advance(moment).await;
    let newest = answers(&sessions, &second, &[300])[0];
    assert!(first.streams.resume(oldest, 0).is_none());
    for (session, number) in [(&second, older[0]), (&second, older[1]), (&first, newer), (&second, newest)] {
        assert!(session.streams.resume(number, 0).is_some(), "{number}");
    }
    // Discarded bytes no longer count, for any reason of the discard.
    second.end();
    let more = answers(&sessions, &first, &[quarter, quarter]);
    assert!(more.into_iter().chain([newer]).all(|number| first.streams.resume(number, 0).is_some()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_larger_than_all_may_be_waits_alone() {
    let sessions = SessionTable::new(10, Duration::from_secs(60));
    let session = session(&sessions, "ada", 0);
    open(&sessions, &session);
    let small = answers(&sessions, &session, &[1])[0];
    tokio::time::advance(Duration::from_millis(1)).await;
    let large = answers(&sessions, &session, &[MAX_RETAINED + 1])[0];
    assert!(session.streams.resume(small, 0).is_none());
    assert!(session.streams.resume(large, 0).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_much_that_waits_makes_room_before_others_with_little() {
    let sessions = SessionTable::new(10, Duration::from_secs(60));
    let [ada, bob] = ["ada", "bob"].map(|name| session(&sessions, name, 0));
    open(&sessions, &ada);
    open(&sessions, &bob);
    let oldest = answers(&sessions, &ada, &[1_000])[0];
    for _ in 0..8 {
        tokio::time::advance(Duration::from_millis(1)).await;
        answers(&sessions, &bob, &[MAX_RETAINED / 4]);
    }
    assert!(ada.streams.resume(oldest, 0).is_some());
    assert!(sessions.retained.is_below_target() || !sessions.retained.is_over_limit());
}

#[tokio::test(start_paused = true)]
async fn a_notification_counts_once_and_goes_with_the_clients_that_left() {
    let sessions = SessionTable::new(10, Duration::from_secs(60));
    let [ada, bob] = ["ada", "bob"].map(|name| session(&sessions, name, 0));
    for session in [&ada, &bob] {
        open(&sessions, session);
        drop(session.streams.attach_general(None));
    }
    let frame = sessions.retained.counted_frame(vec![0; MAX_RETAINED]);
    for session in [&ada, &bob] {
        session.streams.push(frame.clone(), false);
    }
    drop(frame);
    assert!(!sessions.retained.is_over_limit(), "two sessions hold one frame");
    let newest = answers(&sessions, &bob, &[1])[0];
    assert!(sessions.retained.is_below_target());
    assert!(bob.streams.resume(newest, 0).is_some());
}
