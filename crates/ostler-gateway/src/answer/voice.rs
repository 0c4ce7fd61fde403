//! What a client hears while its request is under way, and how it is asked.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ostler_core::name::ServerName;
use ostler_host::upstream::{Question, Voice};
use ostler_host::{Host, LogLevel};
use ostler_wire::{MetaKey, Params, Progress};
use tokio::sync::mpsc;

use crate::exchange::{Client, Exchange};
use crate::outlet::Outlet;
use crate::session::Session;

/// Questions of one call that may wait to be parked.
const QUESTIONS: usize = 16;

/// The client's end of one request.
pub(crate) struct ClientVoice {
    outlet: Outlet,
    /// The client's own progress token, raw.
    token: Option<Bytes>,
    /// How much of the log the client wants; `None` is nothing.
    logs: Option<LogLevel>,
    /// The same for a legacy client that set no level, once its server is known.
    unsaid: OnceLock<LogLevel>,
    asks: Asks,
}

/// How the client is asked.
enum Asks {
    Nobody,
    /// By a request on the stream of its call.
    Session(Arc<Session>),
    /// By ending the request for now; see `parked.rs`.
    Parking {
        capabilities: Bytes,
        lot: mpsc::Sender<Question>,
    },
}

/// The questions of a call that may be parked.
pub(crate) type Questions = mpsc::Receiver<Question>;

impl ClientVoice {
    /// The voice of a request, if its client wants to hear or can answer
    /// anything. Most don't, and cost nothing here.
    pub(crate) fn of(exchange: &Exchange, params: &Params) -> Option<(Arc<Self>, Option<Questions>)> {
        let mut is_call = false;
        let token = params.progress_token();
        let (logs, asks, questions) = match &exchange.client {
            Client::Modern => {
                let logs = params.meta_entry(MetaKey::LogLevel).and_then(LogLevel::from_json);
                match params
                    .meta_entry(MetaKey::ClientCapabilities)
                    .filter(|raw| ostler_wire::can_be_asked(raw))
                {
                    Some(raw) => {
                        let (lot, questions) = mpsc::channel(QUESTIONS);
                        let capabilities = Bytes::copy_from_slice(raw);
                        (logs, Asks::Parking { capabilities, lot }, Some(questions))
                    }
                    None => (logs, Asks::Nobody, None),
                }
            }
            Client::Legacy(session) => {
                let asks = match session.can_be_asked() {
                    true => Asks::Session(Arc::clone(session)),
                    false => Asks::Nobody,
                };
                let level = session.log_level().and_then(|level| LogLevel::parse(&level));
                is_call = exchange.method.as_str() == "tools/call";
                (level, asks, None)
            }
        };
        if token.is_none() && logs.is_none() && !is_call && matches!(asks, Asks::Nobody) {
            return None;
        }
        let token = token.map(Bytes::copy_from_slice);
        let voice = Self { outlet: exchange.outlet.clone(), token, logs, unsaid: OnceLock::new(), asks };
        Some((Arc::new(voice), questions))
    }

    /// Returns the voice of a command, which hears of everything; it is asked only if somebody can answer.
    pub(crate) fn of_command(exchange: &Exchange, params: &Params, can_answer: bool) -> Option<Arc<Self>> {
        let Client::Legacy(session) = &exchange.client else { return None };
        let asks = if can_answer { Asks::Session(Arc::clone(session)) } else { Asks::Nobody };
        let token = params.progress_token().map(Bytes::copy_from_slice);
        let (outlet, logs) = (exchange.outlet.clone(), Some(LogLevel::Debug));
        Some(Arc::new(Self { outlet, token, logs, unsaid: OnceLock::new(), asks }))
    }

    /// Takes the level for a legacy client that set none: what the server says by itself, until another client had
    /// the server say more.
    pub(crate) fn follow_level_of(&self, host: &Host, server: &ServerName) {
        let level = match host.asked_log_level(server.as_str()) {
            None => LogLevel::Debug,
            Some(_) => LogLevel::Info,
        };
        // A call goes on with the level that it began with.
        let _ = self.unsaid.set(level);
    }

    fn send(&self, method: &str, params: Option<&[u8]>) {
        let mut frame = Vec::with_capacity(method.len() + params.map_or(0, <[u8]>::len) + 48);
        ostler_wire::write_notification(&mut frame, method, params);
        frame.pop();
        self.outlet.send(frame);
    }
}

impl Voice for ClientVoice {
    fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    fn progress(&self, progress: &Progress) {
        if let Some(token) = &self.token {
            self.send("notifications/progress", Some(&progress.with_token(token)));
        }
    }

    fn notice(&self, method: &str, params: Option<&Bytes>) {
        let params = params.map(|params| &params[..]);
        if method == "notifications/message" {
            let level = params.and_then(|params| LogLevel::from_json(ostler_wire::member(params, "level")?));
            let level = level.unwrap_or(LogLevel::Info);
            if self.logs.or_else(|| self.unsaid.get().copied()).is_none_or(|wanted| level < wanted) {
                return;
            }
        }
        self.send(method, params);
    }

    fn can_answer(&self, method: &str) -> bool {
        match &self.asks {
            Asks::Nobody => false,
            Asks::Session(session) => session.can_answer(method),
            Asks::Parking { capabilities, .. } => ostler_wire::capability_to_be_asked(method)
                .is_some_and(|capability| ostler_wire::has_capability(capabilities, capability)),
        }
    }

    fn ask(&self, mut question: Question) {
        match &self.asks {
            Asks::Nobody => {}
            Asks::Session(session) => {
                let (session, outlet) = (Arc::clone(session), self.outlet.clone());
                tokio::spawn(async move {
                    let (method, params) = (question.method.clone(), question.params.clone());
                    let asking = session.ask(&outlet, method.as_str(), params.as_deref());
                    let outcome = tokio::select! {
                        outcome = asking => Some(outcome),
                        () = question.withdrawn() => None,
                    };
                    if let Some(outcome) = outcome {
                        question.answer(outcome);
                    }
                });
            }
            // A call that asks more than it may at once is refused the rest.
            Asks::Parking { lot, .. } => drop(lot.try_send(question)),
        }
    }
}
