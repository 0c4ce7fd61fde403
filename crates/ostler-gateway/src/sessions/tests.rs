//! What sessions keep, and who has to leave.

use ostler_wire::ClientIdentity;

use super::*;
use crate::face::Face;
use crate::session::Opening;

fn introduction(name: &str) -> Introduction {
    Introduction {
        version: "2025-11-25",
        capabilities: "{}".into(),
        identity: ClientIdentity { name: name.into(), version: "1".into() },
    }
}

/// A session of its own words, last used at `used`.
fn session(sessions: &Sessions, principal: &str, used: u64) -> Arc<Session> {
    let id = fresh_id().unwrap();
    let said = sessions.share(introduction(&id));
    let caller = Caller::new(principal, "all");
    let session = Session::new(Opening { id, caller, face: Face::All, said });
    session.used_at(used);
    session
}

/// Opens one where there is room, and says which one had to leave for it.
fn open(sessions: &Sessions, session: &Arc<Session>) -> Option<Arc<Session>> {
    let mut open = sessions.lock();
    let owner = open.owner(session.caller().principal());
    let evicted = open.make_room(sessions.max, &owner).unwrap();
    let key = key(session.id()).unwrap();
    open.sessions.insert(key, Owned { session: Arc::clone(session), owner });
    evicted
}

#[test]
fn words_of_clients_that_left_do_not_add_up() {
    let sessions = Sessions::new(1_000, Duration::from_secs(60));
    for used in 0..200 {
        open(&sessions, &session(&sessions, "ada", used));
    }
    for number in 0..1_000 {
        drop(sessions.share(introduction(&number.to_string())));
        assert!(sessions.lock().said.len() <= 200 + SPARE + 1);
    }
}

/// Idle sessions, as whose they are and since when they idle.
fn idle(sessions: &Sessions) -> Vec<(String, u64)> {
    let open = sessions.lock();
    let all = open.sessions.values().map(|owned| &owned.session);
    all.filter_map(|session| Some((session.caller().principal().to_owned(), session.idle_since()?))).collect()
}

#[test]
fn whoever_has_the_most_sessions_gives_the_longest_idle_one_whatever_happens_meanwhile() {
    let owners = ["ada", "bob", "cyd", "dan"];
    for seed in 0..5 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sessions = Sessions::new(200, Duration::from_secs(60));
        for now in 0..1_200 {
            // Some want more than others, and who wants most changes.
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
                used[rng.usize(..used.len())].used_at(now);
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
    let sessions = Sessions::new(10_000, Duration::from_secs(60));
    for used in 0..10_000 {
        open(&sessions, &session(&sessions, "ada", used));
    }
    let mut looks = 0;
    for used in 10_000..11_000 {
        let before = sessions.lock().leaving.remembered();
        assert!(open(&sessions, &session(&sessions, "ada", used)).is_some());
        looks += usize::from(sessions.lock().leaving.remembered() >= before);
    }
    assert!(looks <= 8, "{looks} times");
}
