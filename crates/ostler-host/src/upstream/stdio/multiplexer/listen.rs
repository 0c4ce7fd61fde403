//! Listen requests of a modern server: each is one request that stays open.

use ostler_wire::{Params, RequestMeta, SUBSCRIPTIONS_LISTEN, write_cancelled, write_request};

use super::{MAX_OUTBOX, Multiplexer, MultiplexerState};
use crate::lists::Kind;
use crate::upstream::subscription_ack::{NotifiedLists, SubscriptionAck};

/// Upper bound on listen requests that wait for each other's acknowledgement; a server that acknowledges none has the
/// oldest one cancelled.
const MAX_OPEN: usize = 4;

/// The open listen requests, oldest first. The newest one counts; those before it are cancelled as soon as it is
/// acknowledged.
#[derive(Debug, Default)]
pub(super) struct ListenRequests {
    open: Vec<u64>,
    lists: NotifiedLists,
}

impl Multiplexer {
    /// Sends a listen request. The earlier one goes on until this is acknowledged.
    pub(crate) fn listen(&self, params: &Params) {
        let mut state = self.lock();
        if state.closed.is_some() || state.outbox.len() >= MAX_OUTBOX {
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        let meta = RequestMeta { session: self.meta.as_ref(), ..RequestMeta::default() };
        write_request(&mut state.outbox, id, SUBSCRIPTIONS_LISTEN, params, &meta);
        state.listen_requests.open.push(id);
        let surplus = state.listen_requests.open.len().saturating_sub(MAX_OPEN);
        state.cancel_oldest_listens(surplus);
        drop(state);
        self.wake.notify_one();
    }

    /// Returns whether any listen request is open.
    pub(crate) fn is_listening(&self) -> bool {
        !self.lock().listen_requests.open.is_empty()
    }

    /// Returns whether the server has agreed to announce changes of a list.
    pub(crate) fn is_notified_of(&self, kind: Kind) -> bool {
        self.lock().listen_requests.lists.includes(kind)
    }

    /// Handles an acknowledgement: the earlier listen requests may end.
    pub(crate) fn acknowledge(&self, params: &[u8]) {
        let Some(SubscriptionAck { lists: heard, request_id: number }) = SubscriptionAck::parse(params)
        else {
            return;
        };
        let mut state = self.lock();
        let open = &state.listen_requests.open;
        let Some(at) = number.map_or(open.len().checked_sub(1), |id| open.iter().position(|it| *it == id))
        else {
            return;
        };
        state.listen_requests.lists = heard;
        state.cancel_oldest_listens(at);
        drop(state);
        self.wake.notify_one();
    }

    /// Removes a listen request that has ended for any reason. Returns the changes that are missed from now on, or
    /// `None` if it was no such request. Lists are then valid for the time to live that their server gives.
    pub(crate) fn end_listening(&self, number: u64) -> Option<NotifiedLists> {
        let listening = &mut self.lock().listen_requests;
        let at = listening.open.iter().position(|open| *open == number)?;
        listening.open.remove(at);
        Some(if listening.open.is_empty() {
            std::mem::take(&mut listening.lists)
        } else {
            NotifiedLists::default()
        })
    }
}

impl MultiplexerState {
    /// Cancels the given number of listen requests, oldest first.
    fn cancel_oldest_listens(&mut self, count: usize) {
        for id in self.listen_requests.open.drain(..count) {
            write_cancelled(&mut self.outbox, id, "replaced");
        }
    }
}
