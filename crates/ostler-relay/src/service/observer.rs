//! Worker observer: forwards progress, notifications and server requests of one call to its worker.

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

/// Messages of one call queued for sending; further ones are dropped.
const MAX_QUEUED_MESSAGES: usize = 64;

/// Upper bound on queued bytes per call, if all queued messages were as long as the next one.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Open server requests of one call; a user answers one at a time.
const MAX_OPEN: usize = 16;

/// Message to the worker before the answer.
#[derive(Debug)]
pub(super) struct ProgressMessage {
    pub(super) kind: RelayProgress,
    pub(super) text: Bytes,
}

/// Queue of progress messages.
pub(super) type ProgressReceiver = mpsc::Receiver<ProgressMessage>;

/// Observer of one call on behalf of its worker.
pub(super) struct WorkerObserver {
    progress_sender: mpsc::Sender<ProgressMessage>,
    /// Progress token of the worker's request, raw JSON.
    token: Option<Bytes>,
    /// Lowest log level that the worker wants; `None` is no logs.
    logs: Option<LogLevel>,
    /// Capabilities of the client behind the worker, raw JSON.
    capabilities: Option<Bytes>,
    server_requests: Mutex<OpenWorkerRequests>,
}

#[derive(Default)]
struct OpenWorkerRequests {
    next: u32,
    /// Each with the text that was sent, for a resend.
    open: HashMap<u32, (ServerRequest, Bytes)>,
}

impl WorkerObserver {
    /// Creates the observer of a request; `None` if the request wants no notifications and its
    /// client answers no requests, which is most of them.
    pub(super) fn for_request(params: &Params) -> Option<(Arc<Self>, ProgressReceiver)> {
        let token = params.progress_token();
        let logs = params.meta_entry(MetaKey::LogLevel).and_then(LogLevel::from_json);
        let capabilities = params
            .meta_entry(MetaKey::ClientCapabilities)
            .filter(|raw| ostler_wire::may_receive_requests(raw));
        if token.is_none() && logs.is_none() && capabilities.is_none() {
            return None;
        }
        let (progress_sender, progress) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let observer = Self {
            progress_sender,
            token: token.map(Bytes::copy_from_slice),
            logs,
            capabilities: capabilities.map(Bytes::copy_from_slice),
            server_requests: Mutex::default(),
        };
        Some((Arc::new(observer), progress))
    }

    /// Passes the worker's response to the server.
    pub(super) fn answer(&self, number: u32, body: Bytes) {
        // Dropping the request refuses it, which is the answer to an unreadable response.
        let request = self.lock_requests().open.remove(&number);
        if let (Some((request, _)), Ok(Message::Response { outcome, .. })) = (request, Message::parse(body)) {
            request.answer(outcome);
        }
    }

    /// Sends all open requests again, since the worker may have missed them.
    pub(super) fn resend_open(&self) {
        let requests = self.lock_requests();
        let mut open: Vec<_> = requests.open.iter().collect();
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
        let queued = self.progress_sender.max_capacity() - self.progress_sender.capacity();
        if text.len().saturating_mul(queued + 1) <= MAX_QUEUED_BYTES {
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

    fn on_request(&self, request: ServerRequest) {
        let mut requests = self.lock_requests();
        if requests.open.len() >= MAX_OPEN {
            requests.open.retain(|_, (request, _)| !is_withdrawn(request));
        }
        // Dropping the request refuses it.
        if requests.open.len() >= MAX_OPEN {
            return;
        }
        let number = requests.next;
        let mut text = Vec::new();
        let (method, params) = (request.method.as_str(), request.params.as_deref());
        ostler_wire::write_raw_request(&mut text, u64::from(number), method, params);
        text.pop();
        let text = Bytes::from(text);
        let message = ProgressMessage { kind: RelayProgress::ServerRequest(number), text: text.clone() };
        if self.progress_sender.try_send(message).is_ok() {
            requests.next += 1;
            requests.open.insert(number, (request, text));
        }
    }
}

/// Returns whether the server has withdrawn the request.
fn is_withdrawn(request: &mut ServerRequest) -> bool {
    pin!(request.cancelled()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_wait_are_bounded_in_bytes() {
        let meta = r#"{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#;
        let (observer, mut progress) =
            WorkerObserver::for_request(&Params::parse(meta.into()).unwrap()).unwrap();
        let line = Bytes::from(format!(r#"{{"level":"info","data":"{}"}}"#, "x".repeat(300_000)));
        for _ in 0..MAX_QUEUED_MESSAGES {
            observer.on_notification("notifications/message", Some(&line));
        }
        let queued = std::iter::from_fn(|| progress.try_recv().ok()).count();
        assert_eq!(queued, 3);
    }
}
