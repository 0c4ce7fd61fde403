//! Turns at a server that does not say which of its callers it asks.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ostler_wire::Progress;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::upstream::{Question, SharedVoice, Voice};

/// Lets in one interactive call, or any number of others; first come, first served.
pub(crate) type Door = Arc<tokio::sync::RwLock<()>>;

/// The turn of a call, for as long as this is held.
pub(crate) enum Turn {
    /// The call needs none.
    Free,
    /// A call that can't be asked, beside others of its kind.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// A call that can be asked, alone; the turn is in its voice.
    Alone(SharedVoice),
}

impl Turn {
    /// The voice that the call is to be made with, if not its own.
    pub(crate) fn voice(&self) -> Option<&SharedVoice> {
        match self {
            Self::Alone(voice) => Some(voice),
            Self::Free | Self::Shared { .. } => None,
        }
    }
}

/// The turn of an interactive call, while it has it.
type Held = Mutex<Option<OwnedRwLockWriteGuard<()>>>;

/// The voice of a call that has its turn. While a person thinks about a
/// question others have theirs; the answer waits until it is this call's turn
/// again, so the server's next question can still only mean one of them.
pub(crate) struct InTurn {
    voice: SharedVoice,
    door: Door,
    /// The turn itself, while the call has it.
    turn: Arc<Held>,
    /// Held while an answer gets the turn back, so that two of them do not
    /// wait for each other.
    returning: Arc<tokio::sync::Mutex<()>>,
}

impl InTurn {
    pub(crate) fn new(voice: SharedVoice, door: Door, turn: OwnedRwLockWriteGuard<()>) -> Self {
        Self { voice, door, turn: Arc::new(Mutex::new(Some(turn))), returning: Arc::default() }
    }
}

impl Voice for InTurn {
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
        self.voice.ask(asked);
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
