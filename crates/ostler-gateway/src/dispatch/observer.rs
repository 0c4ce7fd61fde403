//! Client observer: forwards notifications and server requests to the client while its own request is in flight.

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

/// Server requests of one call that may wait until the call is suspended.
const MAX_PENDING_REQUESTS: usize = 16;

/// Client side of one request.
pub(crate) struct ClientObserver {
    sink: NotificationSink,
    /// Progress token of the client, as raw JSON.
    progress_token: Option<Bytes>,
    /// Log level of the client; `None` means no log.
    log_level: Option<LogLevel>,
    /// Level for a legacy client that set none, once its server is known.
    default_log_level: OnceLock<LogLevel>,
    /// False for a command without a listener, which leaves notifications to other listeners.
    takes_notifications: bool,
    request_channel: RequestChannel,
}

/// Channel for server requests to the client.
enum RequestChannel {
    NotSupported,
    /// A request on the stream of the call.
    Session(Arc<ClientSession>),
    /// The call is suspended and its request ends; see `suspended.rs`.
    SuspendCall {
        capabilities: Bytes,
        sender: mpsc::Sender<ServerRequest>,
    },
}

/// Server requests of a call that may be suspended.
pub(crate) type ServerRequests = mpsc::Receiver<ServerRequest>;

impl ClientObserver {
    /// Makes the observer of a request, if its client accepts notifications or answers requests. Most do neither, and
    /// cost nothing here.
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

    /// Makes the observer of a command, which receives every notification, and server requests only if a person can
    /// answer.
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

    /// Sets the level for a legacy client that set none: every line that the server sends by itself, or `info` once
    /// another client has requested a level.
    pub(crate) fn set_default_log_level(&self, host: &Host, server: &ServerName) {
        let level = match host.requested_log_level(server.as_str()) {
            None => LogLevel::Debug,
            Some(_) => LogLevel::Info,
        };
        // A call keeps the level that it began with.
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
            // A call that sends too many server requests at once has the rest refused.
            RequestChannel::SuspendCall { sender: lot, .. } => drop(lot.try_send(question)),
        }
    }
}
