//! Turns at a server that does not say which of its callers it asks.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ostler_wire::Progress;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::places::Parking;
use crate::upstream::{Question, SharedVoice, Voice};

/// Lets in one interactive call, or any number of others; first come, first served.
pub(crate) type Door = Arc<tokio::sync::RwLock<()>>;

/// The turn of a call, for as long as this is held.
pub(crate) enum Turn {
    /// The call has none, or needs none.
    Free,
    /// A call that can't be asked, beside others of its kind.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// A call that can be asked, alone.
    Alone(Arc<InTurn>),
}

/// The turn of an interactive call, while it has it.
type Held = Mutex<Option<OwnedRwLockWriteGuard<()>>>;

/// The turn of an interactive call. While a person thinks about a question
/// others have theirs; the answer waits until it is this call's turn again, so
/// the server's next question can still only mean one of them.
pub(crate) struct InTurn {
    door: Door,
    /// The turn itself, while the call has it.
    turn: Arc<Held>,
    /// Held while an answer gets the turn back, so that two of them do not
    /// wait for each other.
    returning: Arc<tokio::sync::Mutex<()>>,
}

impl InTurn {
    pub(crate) fn new(door: Door, turn: OwnedRwLockWriteGuard<()>) -> Self {
        Self { door, turn: Arc::new(Mutex::new(Some(turn))), returning: Arc::default() }
    }

    /// Gives the turn up until the question is answered.
    fn ask(&self, voice: &SharedVoice, mut question: Question) {
        let given_up = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(given_up);
        let (asked, answer) = Question::new(question.method.clone(), question.params.clone());
        let (door, turn) = (Arc::clone(&self.door), Arc::clone(&self.turn));
        let returning = Arc::clone(&self.returning);
        tokio::spawn(async move {
            // Leaving here drops both ends: the person is told, or the server refused.
            let outcome = tokio::select! {
                outcome = answer => outcome,
                () = question.withdrawn() => return,
            };
            let Ok(outcome) = outcome else { return };
            tokio::select! {
                () = get_back(door, &turn, &returning) => {}
                () = question.withdrawn() => return,
            }
            question.answer(outcome);
        });
        voice.ask(asked);
    }
}

/// The voice of a call whose caller can be asked. While a question is open the call has neither its turn nor its
/// place at the server.
pub(crate) struct AskedVoice {
    voice: SharedVoice,
    turn: Option<Arc<InTurn>>,
    parking: Option<Arc<Parking>>,
}

impl AskedVoice {
    /// Wraps the voice of a call that has this turn and this place.
    pub(crate) fn wrap(voice: &SharedVoice, turn: &Turn, parking: Option<Arc<Parking>>) -> SharedVoice {
        let turn = match turn {
            Turn::Alone(turn) => Some(Arc::clone(turn)),
            Turn::Free | Turn::Shared { .. } => None,
        };
        Arc::new(Self { voice: Arc::clone(voice), turn, parking })
    }
}

impl Voice for AskedVoice {
    fn wants_progress(&self) -> bool {
        self.voice.wants_progress()
    }

    fn progress(&self, progress: &Progress) {
        self.voice.progress(progress);
    }

    fn wants_notices(&self) -> bool {
        self.voice.wants_notices()
    }

    fn notice(&self, method: &str, params: Option<&Bytes>) {
        self.voice.notice(method, params);
    }

    fn can_answer(&self, method: &str) -> bool {
        self.voice.can_answer(method)
    }

    fn ask(&self, mut question: Question) {
        if let Some(parking) = &self.parking {
            question.hold(parking.park());
        }
        match &self.turn {
            Some(turn) => turn.ask(&self.voice, question),
            None => self.voice.ask(question),
        }
    }
}

/// Waits until the call has its turn again. Another answer to the same call may
/// have got it already.
async fn get_back(door: Door, turn: &Held, returning: &tokio::sync::Mutex<()>) {
    let _returning = returning.lock().await;
    if turn.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return;
    }
    let again = door.write_owned().await;
    *turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(again);
}
