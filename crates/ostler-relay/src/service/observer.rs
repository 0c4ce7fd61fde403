//! What a worker hears while its call is under way, and how it is asked.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use hashbrown::HashMap;
use ostler_host::LogLevel;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_wire::{Message, MetaKey, Params};
use tokio::sync::mpsc;

use crate::envelope::RelayProgress;

/// Notes of one call that may wait to be sent; a server that says more is
/// heard in part.
const MAX_NOTES: usize = 64;

/// Bytes that notes of the size of the next one may make wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Questions of one call that may be open. A person answers one at a time.
const MAX_OPEN: usize = 16;

/// Something that the worker is told before the answer.
#[derive(Debug)]
pub(super) struct ProgressMessage {
    pub(super) kind: RelayProgress,
    pub(super) text: Bytes,
}

/// Notes as they come.
pub(super) type ProgressReceiver = mpsc::Receiver<ProgressMessage>;

/// The worker's end of one call.
pub(super) struct WorkerObserver {
    progress_sender: mpsc::Sender<ProgressMessage>,
    /// The worker's own progress token, raw.
    token: Option<Bytes>,
    /// How much of the log is wanted; `None` is nothing.
    logs: Option<LogLevel>,
    /// What the client behind the worker can do, raw.
    capabilities: Option<Bytes>,
    server_requests: Mutex<OpenWorkerRequests>,
}

#[derive(Default)]
struct OpenWorkerRequests {
    next: u32,
    /// With what was sent of each, to be sent again.
    open: HashMap<u32, (ServerRequest, Bytes)>,
}

impl WorkerObserver {
    /// The voice of a request, if anything is wanted or can be answered. Most
    /// want nothing, and cost nothing here.
    pub(super) fn for_request(params: &Params) -> Option<(Arc<Self>, ProgressReceiver)> {
        let token = params.progress_token();
        let logs = params.meta_entry(MetaKey::LogLevel).and_then(LogLevel::from_json);
        let capabilities = params
            .meta_entry(MetaKey::ClientCapabilities)
            .filter(|raw| ostler_wire::may_receive_requests(raw));
        if token.is_none() && logs.is_none() && capabilities.is_none() {
            return None;
        }
        let (notes, outlet) = mpsc::channel(MAX_NOTES);
        let voice = Self {
            progress_sender: notes,
            token: token.map(Bytes::copy_from_slice),
            logs,
            capabilities: capabilities.map(Bytes::copy_from_slice),
            server_requests: Mutex::default(),
        };
        Some((Arc::new(voice), outlet))
    }

    /// The worker answers a question.
    pub(super) fn answer(&self, number: u32, body: Bytes) {
        // An answer that can't be read is a refusal, which dropping the question says.
        let question = self.lock_requests().open.remove(&number);
        if let (Some((question, _)), Ok(Message::Response { outcome, .. })) = (question, Message::parse(body))
        {
            question.answer(outcome);
        }
    }

    /// Asks anew what is open: the worker may have missed it.
    pub(super) fn resend_open(&self) {
        let questions = self.lock_requests();
        let mut open: Vec<_> = questions.open.iter().collect();
        open.sort_by_key(|(number, _)| **number);
        for (number, (_, text)) in open {
            let _ = self.progress_sender.try_send(ProgressMessage {
                kind: RelayProgress::ServerRequest(*number),
                text: text.clone(),
            });
        }
    }

    fn send_notification(&self, method: &str, params: Option<&[u8]>) {
        let mut text = Vec::with_capacity(method.len() + params.map_or(0, <[u8]>::len) + 48);
        ostler_wire::write_notification(&mut text, method, params);
        text.pop();
        let waiting = self.progress_sender.max_capacity() - self.progress_sender.capacity();
        if text.len().saturating_mul(waiting + 1) <= MAX_QUEUED_BYTES {
            let _ = self
                .progress_sender
                .try_send(ProgressMessage { kind: RelayProgress::Notification, text: text.into() });
        }
    }

    fn lock_requests(&self) -> MutexGuard<'_, OpenWorkerRequests> {
        self.server_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for WorkerObserver {
    fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    fn on_progress(&self, progress: &ostler_wire::ProgressParams) {
        if let Some(token) = &self.token {
            self.send_notification("notifications/progress", Some(&progress.with_token(token)));
        }
    }

    fn on_notification(&self, method: &str, params: Option<&Bytes>) {
        let params = params.map(|params| &params[..]);
        if method == "notifications/message" {
            let level = params.and_then(|params| LogLevel::from_json(ostler_wire::member(params, "level")?));
            let level = level.unwrap_or(LogLevel::Info);
            if self.logs.is_none_or(|wanted| level < wanted) {
                return;
            }
        }
        self.send_notification(method, params);
    }

    fn can_answer(&self, method: &str) -> bool {
        let Some(capability) = ostler_wire::required_client_capability(method) else { return false };
        self.capabilities.as_deref().is_some_and(|raw| ostler_wire::has_capability(raw, capability))
    }

    fn on_request(&self, question: ServerRequest) {
        let mut questions = self.lock_requests();
        if questions.open.len() >= MAX_OPEN {
            questions.open.retain(|_, (question, _)| !is_withdrawn(question));
        }
        // One more than may be open is dropped, which refuses it.
        if questions.open.len() >= MAX_OPEN {
            return;
        }
        let number = questions.next;
        let mut text = Vec::new();
        let (method, params) = (question.method.as_str(), question.params.as_deref());
        ostler_wire::write_raw_request(&mut text, u64::from(number), method, params);
        text.pop();
        let text = Bytes::from(text);
        let note = ProgressMessage { kind: RelayProgress::ServerRequest(number), text: text.clone() };
        if self.progress_sender.try_send(note).is_ok() {
            questions.next += 1;
            questions.open.insert(number, (question, text));
        }
    }
}

/// Whether the server does not wait for the answer any more.
fn is_withdrawn(question: &mut ServerRequest) -> bool {
    pin!(question.cancelled()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_wait_are_bounded_in_bytes() {
        let meta = r#"{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#;
        let (voice, mut notes) = WorkerObserver::for_request(&Params::parse(meta.into()).unwrap()).unwrap();
        let line = Bytes::from(format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(300_000)));
        for _ in 0..MAX_NOTES {
            voice.on_notification("notifications/message", Some(&line));
        }
        let waiting = std::iter::from_fn(|| notes.try_recv().ok()).count();
        assert_eq!(waiting, 3);
    }
}
