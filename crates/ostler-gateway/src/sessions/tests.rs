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

/// Opens one.
fn open(sessions: &Sessions, session: &Arc<Session>) {
    let mut open = sessions.lock();
    let owner = open.owner(session.caller().principal());
    let key = key(session.id()).unwrap();
    open.sessions.insert(key, Owned { session: Arc::clone(session), owner });
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
