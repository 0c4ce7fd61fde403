//! Exclusive access to a server that does not say which of its callers a request is for.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ostler_wire::ProgressParams;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::call_queue::SuspendHandle;
use crate::upstream::{CallObserver, ServerRequest, SharedCallObserver};

/// Admits one interactive call, or any number of others, in order of arrival.
pub(crate) type ExclusiveLock = Arc<tokio::sync::RwLock<()>>;

/// Access of one call to its server, for as long as it is held.
pub(crate) enum ExclusiveAccess {
    /// The call needs no access.
    NotNeeded,
    /// A call whose caller answers no server requests, beside others of its kind.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// A call whose caller answers server requests, alone.
    Exclusive(Arc<ExclusiveTurn>),
}

/// The lock of an interactive call, while it holds it.
type HeldExclusiveLock = Mutex<Option<OwnedRwLockWriteGuard<()>>>;

/// The turn of an interactive call. While its caller decides on a server request other calls run; the answer waits
/// until the call has its turn again, so that the server's next request can only mean this call.
pub(crate) struct ExclusiveTurn {
    lock: ExclusiveLock,
    /// The lock, while the call holds it.
    held: Arc<HeldExclusiveLock>,
    /// Held while an answer reacquires the lock, so that two answers do not deadlock.
    reacquire_lock: Arc<tokio::sync::Mutex<()>>,
}

impl ExclusiveTurn {
    pub(crate) fn new(lock: ExclusiveLock, turn: OwnedRwLockWriteGuard<()>) -> Self {
        Self { lock, held: Arc::new(Mutex::new(Some(turn))), reacquire_lock: Arc::default() }
    }

    /// Releases the turn until the server request is answered.
    fn forward_request(&self, voice: &SharedCallObserver, mut question: ServerRequest) {
        let given_up = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(given_up);
        let (asked, answer) = ServerRequest::new(question.method.clone(), question.params.clone());
        let (door, turn) = (Arc::clone(&self.lock), Arc::clone(&self.held));
        let returning = Arc::clone(&self.reacquire_lock);
        tokio::spawn(async move {
            // Returning drops both ends: the caller learns of the cancellation, or the server of the refusal.
            let outcome = tokio::select! {
                outcome = answer => outcome,
                () = question.cancelled() => return,
            };
            let Ok(outcome) = outcome else { return };
            tokio::select! {
                () = reacquire(door, &turn, &returning) => {}
                () = question.cancelled() => return,
            }
            question.answer(outcome);
        });
        voice.on_request(asked);
    }
}

/// Observer of a call whose caller answers server requests. While a request is open the call has neither its turn nor
/// its permit.
pub(crate) struct SuspendingObserver {
    observer: SharedCallObserver,
    exclusive_turn: Option<Arc<ExclusiveTurn>>,
    suspend_handle: Option<Arc<SuspendHandle>>,
}

impl SuspendingObserver {
    /// Wraps the observer of a call with this turn and this permit.
    pub(crate) fn wrap(
        voice: &SharedCallObserver,
        turn: &ExclusiveAccess,
        parking: Option<Arc<SuspendHandle>>,
    ) -> SharedCallObserver {
        let turn = match turn {
            ExclusiveAccess::Exclusive(turn) => Some(Arc::clone(turn)),
            ExclusiveAccess::NotNeeded | ExclusiveAccess::Shared { .. } => None,
        };
        Arc::new(Self { observer: Arc::clone(voice), exclusive_turn: turn, suspend_handle: parking })
    }
}

impl CallObserver for SuspendingObserver {
    fn wants_progress(&self) -> bool {
        self.observer.wants_progress()
    }

    fn on_progress(&self, progress: &ProgressParams) {
        self.observer.on_progress(progress);
    }

    fn wants_notifications(&self) -> bool {
        self.observer.wants_notifications()
    }

    fn on_notification(&self, method: &str, params: Option<&Bytes>) {
        self.observer.on_notification(method, params);
    }

    fn can_answer(&self, method: &str) -> bool {
        self.observer.can_answer(method)
    }

    fn on_request(&self, mut question: ServerRequest) {
        if let Some(parking) = &self.suspend_handle {
            question.hold_suspended(parking.suspend());
        }
        match &self.exclusive_turn {
            Some(turn) => turn.forward_request(&self.observer, question),
            None => self.observer.on_request(question),
        }
    }
}

/// Waits until the call has its turn again. Another answer to the same call may have reacquired it already.
async fn reacquire(door: ExclusiveLock, turn: &HeldExclusiveLock, returning: &tokio::sync::Mutex<()>) {
    let _returning = returning.lock().await;
    if turn.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return;
    }
    let again = door.write_owned().await;
    *turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(again);
}
