//! Session requests: the requests of one legacy session in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_wire::RequestId;

use crate::frame_queue::FrameQueue;
use crate::notification_sink::FrameReceiver;

/// Requests of one client in flight. A client that sends more gets an error, so that one client can't fill the host.
pub(crate) const MAX_SESSION_REQUESTS: usize = 1_024;

/// Requests of one legacy session in flight, cancellable by their ids. Sessions have few at a time, hence a plain list.
#[derive(Debug, Default)]
pub(crate) struct SessionRequests(Mutex<Vec<(RequestId, Arc<FrameQueue>)>>);

impl SessionRequests {
    /// Registers a request; `None` if there are too many.
    pub(crate) fn register(&self, id: &RequestId) -> Option<Arc<FrameQueue>> {
        let mut calls = self.lock();
        if calls.len() >= MAX_SESSION_REQUESTS {
            return None;
        }
        let queue = FrameReceiver::new_queue();
        calls.push((id.clone(), Arc::clone(&queue)));
        Some(queue)
    }

    /// Removes a request.
    pub(crate) fn unregister(&self, queue: &Arc<FrameQueue>) {
        let mut calls = self.lock();
        if let Some(at) = calls.iter().position(|(_, known)| Arc::ptr_eq(known, queue)) {
            calls.swap_remove(at);
        }
        if calls.is_empty() && calls.capacity() > 16 {
            *calls = Vec::new();
        }
    }

    /// Cancels the request with this id, if it is in flight.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let found = self.lock().iter().find(|(known, _)| known == id).map(|(_, queue)| Arc::clone(queue));
        if let Some(queue) = found {
            queue.cancel();
        }
    }

    pub(crate) fn cancel_all(&self) {
        let all: Vec<_> = self.lock().iter().map(|(_, queue)| Arc::clone(queue)).collect();
        for queue in all {
            queue.cancel();
        }
    }

    /// Answers every request in flight, each by its id; none is waited for any longer.
    pub(crate) fn answer_all(&self, answer: impl Fn(&RequestId) -> Vec<u8>) {
        let all = self.lock().clone();
        for (id, queue) in all {
            queue.finish(Some(answer(&id).into()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(RequestId, Arc<FrameQueue>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
