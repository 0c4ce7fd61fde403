//! The requests of one legacy session that are under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_wire::Id;

use crate::outlet::Frames;
use crate::queue::Queue;

/// Requests of one client under way at once. A client that wants more gets an
/// error, so one client can't fill the host.
pub(crate) const MAX_CALLS: usize = 1_024;

/// The requests of one legacy session that are under way, so that they can be
/// cancelled by their ids. Sessions have few at a time, hence a plain list.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Vec<(Id, Arc<Queue>)>>);

impl Calls {
    /// Counts a request in; `None` if there are too many.
    pub(crate) fn enter(&self, id: &Id) -> Option<Arc<Queue>> {
        let mut calls = self.lock();
        if calls.len() >= MAX_CALLS {
            return None;
        }
        let queue = Frames::queue();
        calls.push((id.clone(), Arc::clone(&queue)));
        Some(queue)
    }

    /// Counts a request out.
    pub(crate) fn leave(&self, queue: &Arc<Queue>) {
        let mut calls = self.lock();
        if let Some(at) = calls.iter().position(|(_, known)| Arc::ptr_eq(known, queue)) {
            calls.swap_remove(at);
        }
        if calls.is_empty() && calls.capacity() > 16 {
            *calls = Vec::new();
        }
    }

    /// Cancels the request with this id, if it is under way.
    pub(crate) fn cancel(&self, id: &Id) {
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

    /// Answers every request that is under way, each by its id: nothing more is waited for.
    pub(crate) fn answer_all(&self, answer: impl Fn(&Id) -> Vec<u8>) {
        let all = self.lock().clone();
        for (id, queue) in all {
            queue.finish(Some(answer(&id).into()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Id, Arc<Queue>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
