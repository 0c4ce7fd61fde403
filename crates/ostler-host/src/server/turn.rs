//! Turns at a server that does not say which of its callers it asks.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ostler_wire::Progress;
use tokio::sync::OwnedMutexGuard;

use crate::upstream::{Question, SharedVoice, Voice};

/// Let in one interactive call at a time.
pub(crate) type Door = Arc<tokio::sync::Mutex<()>>;

/// The voice of a call that has its turn. While a person thinks about a
/// question others have theirs; the answer waits until it is this call's turn
/// again, so the server's next question can still only mean one of them.
pub(crate) struct InTurn {
    voice: SharedVoice,
    door: Door,
    /// The turn itself, while the call has it.
    turn: Arc<Mutex<Option<OwnedMutexGuard<()>>>>,
}

impl InTurn {
    pub(crate) fn new(voice: SharedVoice, door: Door, turn: OwnedMutexGuard<()>) -> Self {
        Self { voice, door, turn: Arc::new(Mutex::new(Some(turn))) }
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
        tokio::spawn(async move {
            // Leaving here drops both ends: the person is told, or the server refused.
            let outcome = tokio::select! {
                outcome = answer => outcome,
                () = question.withdrawn() => return,
            };
            let Ok(outcome) = outcome else { return };
            let again = tokio::select! {
                again = door.lock_owned() => again,
                () = question.withdrawn() => return,
            };
            *turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(again);
            question.answer(outcome);
        });
        self.voice.ask(asked);
    }
}
