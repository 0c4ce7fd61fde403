//! What a client hears while its request is under way, and how it is asked.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::{CallObserver, ServerRequest};
use ostler_host::{Host, LogLevel};
use ostler_wire::{MetaKey, Params, ProgressParams};
use tokio::sync::mpsc;

use crate::client_request::{ClientEra, ClientRequest};
use crate::client_session::ClientSession;
use crate::notification_sink::NotificationSink;

/// Questions of one call that may wait to be parked.
const MAX_PENDING_REQUESTS: usize = 16;

/// The client's end of one request.
pub(crate) struct ClientObserver {
    sink: NotificationSink,
    /// The client's own progress token, raw.
    progress_token: Option<Bytes>,
    /// How much of the log the client wants; `None` is nothing.
    log_level: Option<LogLevel>,
    /// The same for a legacy client that set no level, once its server is known.
    default_log_level: OnceLock<LogLevel>,
    /// Commands that nobody follows leave notifications to other listeners.
    takes_notifications: bool,
    request_channel: RequestChannel,
}

/// How the client is asked.
enum RequestChannel {
    NotSupported,
    /// By a request on the stream of its call.
    Session(Arc<ClientSession>),
    /// By ending the request for now; see `parked.rs`.
    SuspendCall {
        capabilities: Bytes,
        sender: mpsc::Sender<ServerRequest>,
    },
}

/// The questions of a call that may be parked.
pub(crate) type ServerRequests = mpsc::Receiver<ServerRequest>;

impl ClientObserver {
    /// The voice of a request, if its client wants to hear or can answer
    /// anything. Most don't, and cost nothing here.
    pub(crate) fn for_request(
        exchange: &ClientRequest,
        params: &Params,
    ) -> Option<(Arc<Self>, Option<ServerRequests>)> {
        let mut is_call = false;
        let token = params.progress_token();
        let (logs, asks, questions) = match &exchange.client {
            ClientEra::Modern => {
                let logs = params.meta_entry(MetaKey::LogLevel).and_then(LogLevel::from_json);
                match params
                    .meta_entry(MetaKey::ClientCapabilities)
                    .filter(|raw| ostler_wire::may_receive_requests(raw))
                {
                    Some(raw) => {
                        let (lot, questions) = mpsc::channel(MAX_PENDING_REQUESTS);
                        let capabilities = Bytes::copy_from_slice(raw);
                        (logs, RequestChannel::SuspendCall { capabilities, sender: lot }, Some(questions))
                    }
                    None => (logs, RequestChannel::NotSupported, None),
                }
            }
            ClientEra::Legacy(session) => {
                let asks = match session.answers_requests() {
                    true => RequestChannel::Session(Arc::clone(session)),
                    false => RequestChannel::NotSupported,
                };
                let level = session.log_level().and_then(|level| LogLevel::parse(&level));
                is_call = exchange.method.as_str() == "tools/call";
                (level, asks, None)
            }
        };
        if token.is_none() && logs.is_none() && !is_call && matches!(asks, RequestChannel::NotSupported) {
            return None;
        }
        let token = token.map(Bytes::copy_from_slice);
        let voice = Self {
            sink: exchange.sink.clone(),
            progress_token: token,
            log_level: logs,
            default_log_level: OnceLock::new(),
            takes_notifications: true,
            request_channel: asks,
        };
        Some((Arc::new(voice), questions))
    }

    /// Returns the voice of a command, which hears of everything; it is asked only if somebody can answer.
    pub(crate) fn for_command(
        exchange: &ClientRequest,
        params: &Params,
        can_answer: bool,
    ) -> Option<Arc<Self>> {
        let ClientEra::Legacy(session) = &exchange.client else { return None };
        let asks = if can_answer {
            RequestChannel::Session(Arc::clone(session))
        } else {
            RequestChannel::NotSupported
        };
        let token = params.progress_token().map(Bytes::copy_from_slice);
        let takes_notifications = token.is_some();
        let (outlet, logs) = (exchange.sink.clone(), Some(LogLevel::Debug));
        Some(Arc::new(Self {
            sink: outlet,
            progress_token: token,
            log_level: logs,
            default_log_level: OnceLock::new(),
            takes_notifications,
            request_channel: asks,
        }))
    }

    /// Takes the level for a legacy client that set none: what the server says by itself, until another client had
    /// the server say more.
    pub(crate) fn set_default_log_level(&self, host: &Host, server: &ServerName) {
        let level = match host.requested_log_level(server.as_str()) {
            None => LogLevel::Debug,
            Some(_) => LogLevel::Info,
        };
        // A call goes on with the level that it began with.
        let _ = self.default_log_level.set(level);
    }

    fn send(&self, method: &str, params: Option<&[u8]>) {
        let mut frame = Vec::with_capacity(method.len() + params.map_or(0, <[u8]>::len) + 48);
        ostler_wire::write_notification(&mut frame, method, params);
        frame.pop();
        self.sink.send(frame);
    }
}

impl CallObserver for ClientObserver {
    fn wants_progress(&self) -> bool {
        self.progress_token.is_some()
    }

    fn wants_notifications(&self) -> bool {
        self.takes_notifications
    }

    fn on_progress(&self, progress: &ProgressParams) {
        if let Some(token) = &self.progress_token {
            self.send("notifications/progress", Some(&progress.with_token(token)));
        }
    }

    fn on_notification(&self, method: &str, params: Option<&Bytes>) {
        let params = params.map(|params| &params[..]);
        if method == "notifications/message" {
            let level = params.and_then(|params| LogLevel::from_json(ostler_wire::member(params, "level")?));
            let level = level.unwrap_or(LogLevel::Info);
            if self
                .log_level
                .or_else(|| self.default_log_level.get().copied())
                .is_none_or(|wanted| level < wanted)
            {
                return;
            }
        }
        self.send(method, params);
    }

    fn can_answer(&self, method: &str) -> bool {
        match &self.request_channel {
            RequestChannel::NotSupported => false,
            RequestChannel::Session(session) => session.can_answer(method),
            RequestChannel::SuspendCall { capabilities, .. } => {
                ostler_wire::required_client_capability(method)
                    .is_some_and(|capability| ostler_wire::has_capability(capabilities, capability))
            }
        }
    }

    fn on_request(&self, mut question: ServerRequest) {
        match &self.request_channel {
            RequestChannel::NotSupported => {}
            RequestChannel::Session(session) => {
                let (session, outlet) = (Arc::clone(session), self.sink.clone());
                tokio::spawn(async move {
                    let (method, params) = (question.method.clone(), question.params.clone());
                    let asking = session.send_request(&outlet, method.as_str(), params.as_deref());
                    let outcome = tokio::select! {
                        outcome = asking => Some(outcome),
                        () = question.cancelled() => None,
                    };
                    if let Some(outcome) = outcome {
                        question.answer(outcome);
                    }
                });
            }
            // A call that asks more than it may at once is refused the rest.
            RequestChannel::SuspendCall { sender: lot, .. } => drop(lot.try_send(question)),
        }
    }
}
