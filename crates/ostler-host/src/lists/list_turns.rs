//! List turns: bound how many long lists are filtered and written at once. Callers take turns, and one caller has at
//! most half of them.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::error::CallError;
use tokio::time::Instant;

use crate::blocking::MAX_INLINE_BYTES;
use crate::server::call_queue::{CallPermit, CallQueue};

/// Turns on a machine with one core: two, so that one caller never has all of them.
const MIN_TURNS: usize = 2;

/// Bounds the long lists that wait for a turn, over all callers. A waiting one holds no copy of the list.
const MAX_WAITING: usize = 4_096;

/// Bounds the wait for a turn. Writing a page of 4 MiB takes some 20 ms.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after which a list that got no turn may be requested again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Turns of one host: as many as the machine has cores.
pub(crate) struct ListTurns(Arc<CallQueue>);

/// The turn of one list, passed on when it is dropped. A short list needs none.
#[derive(Default)]
pub struct ListTurn(Option<CallPermit>);

impl ListTurns {
    pub(crate) fn new() -> Self {
        let turns = available_parallelism().map_or(MIN_TURNS, |cores| cores.get().max(MIN_TURNS));
        Self(CallQueue::new(turns, turns / 2, MAX_WAITING))
    }

    /// Waits for the turn of a list of `size` bytes.
    pub(crate) async fn acquire(&self, principal: &str, size: usize) -> Result<ListTurn, CallError> {
        if size <= MAX_INLINE_BYTES {
            return Ok(ListTurn(None));
        }
        let turn = self.0.acquire(principal, Instant::now() + TURN_TIMEOUT).await;
        turn.map(|turn| ListTurn(Some(turn))).map_err(|_| {
            let what = "too many long lists are being written".into();
            CallError::Overloaded { what, retry_after: RETRY_AFTER }
        })
    }
}

impl fmt::Debug for ListTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListTurn").field(&self.0.is_some()).finish()
    }
}

impl ListTurn {
    /// Keeps the turn as long as a text that was written in it, so that the next text is not written before this one
    /// has been handed on.
    pub fn hold_with(self, text: Vec<u8>) -> Bytes {
        match self.0 {
            None => text.into(),
            Some(turn) => Bytes::from_owner(TextInTurn { text, _turn: turn }),
        }
    }
}

/// A text and the turn in which it was written.
struct TextInTurn {
    text: Vec<u8>,
    _turn: CallPermit,
}

impl AsRef<[u8]> for TextInTurn {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}
