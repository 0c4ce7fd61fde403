//! What one client on a stream says, and what has become of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use ostler_core::caller::Caller;
use ostler_wire::{Id, Malformed, Message, Params, Text, code};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::answer::{self, answer};
use crate::calls::MAX_CALLS;
use crate::exchange::{Client, Exchange, Reply};
use crate::face::Face;
use crate::gateway::Gateway;
use crate::modern;
use crate::opening::{Introduction, cancelled_id};
use crate::outlet::Outlet;
use crate::session::{Opening, Session};
use crate::sessions;

/// How long the answers of the edge itself wait for a client that does not
/// read. Nothing is read meanwhile, which slows down a client that asks faster
/// than it reads.
const SAY_WITHIN: Duration = Duration::from_secs(30);

/// One client on a stream.
pub(super) struct Link {
    gateway: Gateway,
    caller: Caller,
    face: Face,
    line: mpsc::Sender<Bytes>,
    /// Opened by `initialize`.
    session: Option<Arc<Session>>,
    running: JoinSet<Id>,
    /// The requests under way, by the client's ids.
    under_way: HashMap<Id, AbortHandle>,
}

impl Link {
    pub(super) fn new(gateway: Gateway, caller: Caller, face: Face, line: mpsc::Sender<Bytes>) -> Self {
        Self {
            gateway,
            caller,
            face,
            line,
            session: None,
            running: JoinSet::new(),
            under_way: HashMap::new(),
        }
    }

    /// The longest line that is read.
    pub(super) fn max_line(&self) -> usize {
        self.gateway.0.options.max_body
    }

    /// Takes one line; false if the client is gone.
    pub(super) async fn line(&mut self, line: Bytes) -> bool {
        self.reap();
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                match params.map_or(Ok(Params::empty()), Params::parse) {
                    Ok(params) => self.request(id, method, params).await,
                    Err(why) => {
                        self.say(&Reply::refusal(code::INVALID_PARAMS, &why.to_string()), Some(&id)).await
                    }
                }
            }
            Ok(Message::Notification { method, params }) => {
                self.notified(&method, params.as_ref());
                true
            }
            Ok(Message::Response { id, outcome }) => {
                if let (Some(session), Some(id)) = (&self.session, id) {
                    session.answered(&id, outcome);
                }
                true
            }
            Err(why) => {
                let code = match why {
                    Malformed::NotUtf8 | Malformed::NotJson { .. } => code::PARSE_ERROR,
                    _ => code::INVALID_REQUEST,
                };
                self.say(&Reply::refusal(code, &why.to_string()), None).await
            }
        }
    }

    async fn request(&mut self, id: Id, method: Text, params: Params) -> bool {
        let client = if params.has_modern_meta() {
            modern::check(&method, &params).map(|()| Client::Modern)
        } else {
            match (&self.session, method.as_str()) {
                (_, "ping") => Err(Reply::nothing()),
                (None, "initialize") => return self.initialize(&id, &params).await,
                (Some(_), "initialize") => Err(refusal("this connection is initialized already")),
                (Some(session), _) => Ok(Client::Legacy(Arc::clone(session))),
                (None, _) => Err(refusal(
                    "neither a modern request (`_meta` names no protocol version) nor initialized",
                )),
            }
        };
        let client = match client {
            Ok(_) if self.under_way.contains_key(&id) => Err(refusal("a request with this id is under way")),
            Ok(_) if self.under_way.len() >= MAX_CALLS => Err(Reply::overloaded()),
            client => client,
        };
        match client {
            Ok(client) => {
                self.run(client, id, method, params);
                true
            }
            Err(reply) => self.say(&reply, Some(&id)).await,
        }
    }

    /// Answers a request in a task of its own.
    fn run(&mut self, client: Client, id: Id, method: Text, params: Params) {
        let caller = match &client {
            Client::Modern => self.caller.clone(),
            Client::Legacy(session) => session.caller().clone(),
        };
        let exchange = Exchange {
            caller,
            face: self.face.clone(),
            client,
            id: id.clone(),
            method,
            params,
            headers: None,
            outlet: Outlet::into_line(self.line.clone()),
        };
        let gateway = self.gateway.clone();
        let line = self.line.clone();
        // The id must not keep the line alive that it came in.
        let key = id.detached();
        let running = self.running.spawn({
            let key = key.clone();
            async move {
                let reply = answer(&gateway, exchange).await;
                // Without a client nobody misses the answer.
                let _ = line.send(reply.frame(Some(&id)).into()).await;
                key
            }
        });
        self.under_way.insert(key, running);
    }

    async fn initialize(&mut self, id: &Id, params: &Params) -> bool {
        let introduction = match Introduction::read(params) {
            Ok(introduction) => introduction,
            Err(refusal) => return self.say(&refusal, Some(id)).await,
        };
        let reply = answer::initialize(&self.gateway, &self.caller, &self.face, introduction.version).await;
        if let Reply::Result(_) = reply {
            let Introduction { version, capabilities, identity } = introduction;
            let opening = Opening {
                // Only tells sessions apart here; nobody can use it from elsewhere.
                id: sessions::fresh_id().unwrap_or_default(),
                caller: self.caller.clone(),
                face: self.face.clone(),
                version,
                capabilities,
                identity,
            };
            let session = Session::on_line(opening, self.line.clone());
            self.gateway.0.hub.join(&session);
            self.session = Some(session);
        }
        self.say(&reply, Some(id)).await
    }

    fn notified(&mut self, method: &str, params: Option<&Bytes>) {
        if method == "notifications/cancelled" {
            if let Some(running) = cancelled_id(params).and_then(|id| self.under_way.remove(&id)) {
                running.abort();
            }
            return;
        }
        if method == "notifications/initialized" {
            return;
        }
        let (caller, client) = match &self.session {
            Some(session) => (session.caller(), Client::Legacy(Arc::clone(session))),
            None => (&self.caller, Client::Modern),
        };
        answer::notified(&self.gateway, caller, &self.face, &client, method, params);
    }

    /// Says something to the client; false if it is gone.
    pub(super) async fn say(&self, reply: &Reply, id: Option<&Id>) -> bool {
        let said = self.line.send(reply.frame(id).into());
        matches!(tokio::time::timeout(SAY_WITHIN, said).await, Ok(Ok(())))
    }

    /// Waits for a request to be over, or for ever if none is under way.
    pub(super) async fn settle(&mut self) {
        match self.running.join_next().await {
            Some(ended) => self.note(ended),
            None => std::future::pending().await,
        }
    }

    /// Notes which requests are over.
    fn reap(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Result<Id, JoinError>) {
        match ended {
            Ok(id) => drop(self.under_way.remove(&id)),
            Err(error) => self.note_broken(&error),
        }
    }

    /// Whoever waits for a request that broke is told. One that was cancelled
    /// is not among those under way any more.
    fn note_broken(&mut self, error: &JoinError) {
        let broken = |(_, running): &(&Id, &AbortHandle)| running.id() == error.id();
        let Some(id) = self.under_way.iter().find(broken).map(|(id, _)| id.clone()) else { return };
        self.under_way.remove(&id);
        let reply = Reply::refusal(code::INTERNAL_ERROR, "the request broke; this is a defect of the server");
        // A client whose line is full does not read anyway.
        let _ = self.line.try_send(reply.frame(Some(&id)).into());
    }

    /// The client is gone: waits until what was under way is cancelled.
    pub(super) async fn end(mut self) {
        self.running.shutdown().await;
    }
}

/// Also when the whole connection is dropped, what its session held is given back.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.end();
            answer::ended(&self.gateway, session);
        }
    }
}

fn refusal(why: &str) -> Reply {
    Reply::refusal(code::INVALID_REQUEST, why)
}
