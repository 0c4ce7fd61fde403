//! What one client on a stream says, and what has become of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use ostler_core::caller::Caller;
use ostler_wire::{Id, Malformed, Message, Params, Text, code};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::answer::{self, answer};
use crate::calls::MAX_CALLS;
use crate::commands::SharedCommands;
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::http::batch;
use crate::modern;
use crate::opening::{Introduction, cancelled_id};
use crate::outlet::Outlet;
use crate::session::{Opening, Session};
use crate::sessions;
use ostler_host::Scope;

/// How long what is under way may take once the input has ended. A client that
/// pipes its requests in and waits for the answers is served; one that is gone
/// without a word holds nothing for long. Calls have ends of their own, too.
const LAST_REQUESTS: Duration = Duration::from_secs(60);

/// How long the answers of the edge itself wait for a client that does not
/// read. Nothing is read meanwhile, which slows down a client that asks faster
/// than it reads.
const SAY_WITHIN: Duration = Duration::from_secs(30);

/// One client on a stream.
pub(crate) struct Link {
    gateway: Gateway,
    /// In a session that lasts as long as the connection, for both eras.
    caller: Caller,
    /// The same in no session, for commands: they share what has a process for each session.
    commands: Option<(Caller, SharedCommands)>,
    scope: Scope,
    line: mpsc::Sender<Bytes>,
    /// Opened by `initialize`.
    session: Option<Arc<Session>>,
    /// The `initialize` that is under way: a server may have to start for it.
    opening: Option<Id>,
    running: JoinSet<Over>,
    /// The requests under way, by the client's ids.
    under_way: HashMap<Id, AbortHandle>,
    /// The same for requests of batches that are not answered yet.
    batched: HashSet<Id>,
    /// True once the client has said its last word: listens end by themselves.
    has_hung_up: watch::Sender<bool>,
}

/// A request that is over.
enum Over {
    /// It was answered; the client's id of it.
    Answered(Id),
    /// The requests of a batch were answered; the client's ids of them.
    Batch(Vec<Id>),
    /// The same for an `initialize`, with the session that it opens.
    Opened(Id, Opening),
}

impl Link {
    /// Makes the link of a client; `None` on a machine without randomness, where clients would share a session.
    pub(crate) fn new(
        gateway: Gateway,
        caller: Caller,
        scope: Scope,
        line: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        let Some(id) = sessions::fresh_id() else {
            tracing::error!("this machine has no source of randomness, so a client is refused");
            return None;
        };
        Some(Self {
            gateway,
            caller: caller.in_session(id),
            commands: None,
            scope,
            line,
            session: None,
            opening: None,
            running: JoinSet::new(),
            under_way: HashMap::new(),
            batched: HashSet::new(),
            has_hung_up: watch::Sender::new(false),
        })
    }

    /// Makes the link of a command of the program.
    pub(crate) fn of_commands(
        gateway: Gateway,
        caller: Caller,
        commands: SharedCommands,
        line: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        let bare = caller.clone();
        let mut link = Self::new(gateway, caller, Scope::All, line)?;
        link.commands = Some((bare, commands));
        Some(link)
    }

    /// Returns how long requests under way may take once the input has ended. A command that leaves wants nothing more.
    pub(crate) fn last_requests(&self) -> Duration {
        if self.commands.is_some() { Duration::ZERO } else { LAST_REQUESTS }
    }

    /// The longest line that is read.
    pub(crate) fn max_line(&self) -> usize {
        self.gateway.0.options.max_body
    }

    /// Whether a session is being opened. No line may be taken meanwhile.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// The client has said its last word. It can't answer questions any more,
    /// and what never ends by itself is ended.
    pub(crate) fn hang_up(&mut self) {
        self.has_hung_up.send_replace(true);
        if let Some(session) = &self.session {
            session.end();
        }
    }

    /// Takes one line; false if the client is gone.
    pub(crate) async fn line(&mut self, line: Bytes) -> bool {
        self.reap();
        match Message::parse(line.clone()) {
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
            Err(Malformed::Batch) if self.knows_batches() => self.batch(&line).await,
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
                (None, "initialize") => return self.initialize(id, &params).await,
                (Some(_), "initialize") => Err(refusal("this connection is initialized already")),
                (Some(session), _) => Ok(Client::Legacy(Arc::clone(session))),
                (None, _) => Err(refusal(
                    "neither a modern request (`_meta` names no protocol version) nor initialized",
                )),
            }
        };
        match client.and_then(|client| self.admit(&id).map(|()| client)) {
            Ok(client) => {
                self.run(client, id, method, params);
                true
            }
            Err(reply) => self.say(&reply, Some(&id)).await,
        }
    }

    /// Whether a request with this id may begin.
    fn admit(&self, id: &Id) -> Result<(), Reply> {
        if self.under_way.contains_key(id) || self.batched.contains(id) {
            return Err(refusal("a request with this id is under way"));
        }
        let is_full = self.under_way.len() + self.batched.len() >= MAX_CALLS;
        if is_full { Err(Reply::overloaded()) } else { Ok(()) }
    }

    fn knows_batches(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.version() == batch::BATCHES_IN)
    }

    /// Answers a batch with a batch, in the same order. Its requests run at once, and none is cancelled alone.
    async fn batch(&mut self, text: &Bytes) -> bool {
        let messages = match batch::messages(text) {
            Ok(messages) => messages,
            Err(why) => return self.say(&refusal(&why), None).await,
        };
        let mut answers: Vec<Option<Vec<u8>>> = vec![None; messages.len()];
        let mut requests = JoinSet::new();
        let mut ids = Vec::new();
        for (at, message) in messages.into_iter().enumerate() {
            match Message::parse(message) {
                Ok(Message::Request { id, method, params }) => {
                    let params = params.map_or(Ok(Params::empty()), Params::parse);
                    let reply = match (params, &self.session, self.admit(&id)) {
                        (Ok(_), _, _) if method == "ping" => Reply::nothing(),
                        (Ok(_), _, Err(reply)) => reply,
                        (Ok(params), Some(session), Ok(())) => {
                            let client = Client::Legacy(Arc::clone(session));
                            let mut exchange = self.exchange(client, id.clone(), method, params);
                            let gateway = self.gateway.clone();
                            self.batched.insert(id.detached());
                            ids.push(id.detached());
                            let id = id.clone();
                            requests.spawn(async move {
                                (at, answer(&gateway, &mut exchange).await.frame(Some(&id)))
                            });
                            Reply::refusal(code::INTERNAL_ERROR, "the request broke")
                        }
                        (Ok(_), None, _) => refusal("not initialized"),
                        (Err(why), _, _) => Reply::refusal(code::INVALID_PARAMS, &why.to_string()),
                    };
                    answers[at] = Some(reply.frame(Some(&id)));
                }
                Ok(Message::Notification { method, params }) => self.notified(&method, params.as_ref()),
                Ok(Message::Response { id, outcome }) => {
                    if let (Some(session), Some(id)) = (&self.session, id) {
                        session.answered(&id, outcome);
                    }
                }
                Err(why) => answers[at] = Some(refusal(&why.to_string()).frame(None)),
            }
        }
        if requests.is_empty() {
            let answers: Vec<Vec<u8>> = answers.into_iter().flatten().collect();
            return answers.is_empty() || self.say_line(batch::joined(&answers).into()).await;
        }
        let line = self.line.clone();
        self.running.spawn(async move {
            while let Some(answered) = requests.join_next().await {
                if let Ok((at, answer)) = answered {
                    answers[at] = Some(answer);
                }
            }
            let answers: Vec<Vec<u8>> = answers.into_iter().flatten().collect();
            let _ = line.send(batch::joined(&answers).into()).await;
            Over::Batch(ids)
        });
        true
    }

    fn exchange(&self, client: Client, id: Id, method: Text, params: Params) -> Exchange {
        let caller = match (&self.commands, &client) {
            (Some((caller, _)), _) => caller.clone(),
            (None, Client::Modern) => self.caller.clone(),
            (None, Client::Legacy(session)) => session.caller().clone(),
        };
        Exchange {
            caller,
            scope: self.scope.clone(),
            client,
            id,
            method,
            params,
            headers: None,
            outlet: Outlet::into_line(self.line.clone()),
            commands: self.commands.as_ref().map(|(_, commands)| Arc::clone(commands)),
        }
    }

    /// Answers a request in a task of its own.
    fn run(&mut self, client: Client, id: Id, method: Text, params: Params) {
        let mut exchange = self.exchange(client, id.clone(), method, params);
        let gateway = self.gateway.clone();
        let line = self.line.clone();
        let mut hung_up = self.has_hung_up.subscribe();
        // The id must not keep the line alive that it came in.
        let key = id.detached();
        let running = self.running.spawn({
            let key = key.clone();
            async move {
                if let Client::Legacy(session) = &exchange.client {
                    let caller = exchange.caller.clone();
                    exchange.caller =
                        answer::in_first_root(&gateway, session, &exchange.outlet, caller).await;
                }
                let reply = match exchange.method.as_str() {
                    ostler_wire::LISTEN => tokio::select! {
                        reply = answer(&gateway, &mut exchange) => reply,
                        _ = hung_up.wait_for(|has_hung_up| *has_hung_up) => answer::closed(id.raw()),
                    },
                    _ => answer(&gateway, &mut exchange).await,
                };
                // Without a client nobody misses the answer.
                let _ = line.send(reply.frame(Some(&id)).into()).await;
                Over::Answered(key)
            }
        });
        self.under_way.insert(key, running);
    }

    async fn initialize(&mut self, id: Id, params: &Params) -> bool {
        let introduction = match Introduction::read(params) {
            Ok(introduction) => introduction,
            Err(refusal) => return self.say(&refusal, Some(&id)).await,
        };
        let (gateway, caller, scope) = (self.gateway.clone(), self.caller.clone(), self.scope.clone());
        let line = self.line.clone();
        let key = id.detached();
        self.opening = Some(key.clone());
        let running = self.running.spawn({
            let key = key.clone();
            async move {
                let reply = answer::initialize(&gateway, &caller, &scope, introduction.version).await;
                let _ = line.send(reply.frame(Some(&id)).into()).await;
                let Reply::Result(_) = reply else { return Over::Answered(key) };
                Over::Opened(key, Opening { caller, scope, said: Arc::new(introduction) })
            }
        });
        self.under_way.insert(key, running);
        true
    }

    fn opened(&mut self, opening: Opening) {
        let session = Session::on_line(opening, self.line.clone());
        if *self.has_hung_up.borrow() {
            session.end();
        }
        self.gateway.0.hub.join(&session);
        self.session = Some(session);
    }

    /// Takes a notification. One that is refused is on record; JSON-RPC has no
    /// answer to it.
    fn notified(&mut self, method: &str, params: Option<&Bytes>) {
        let caller = self.session.as_ref().map_or(&self.caller, |session| session.caller());
        let is_taken = answer::notified(&self.gateway, caller, &self.scope, method, params).is_ok();
        if let ("notifications/roots/list_changed", Some(session)) = (method, &self.session) {
            session.forget_first_root();
        }
        if is_taken
            && method == "notifications/cancelled"
            && let Some(running) = cancelled_id(params).and_then(|id| self.under_way.remove(&id))
        {
            running.abort();
        }
    }

    /// Says something to the client; false if it is gone.
    pub(crate) async fn say(&self, reply: &Reply, id: Option<&Id>) -> bool {
        self.say_line(reply.frame(id).into()).await
    }

    /// The same for a line that is written already.
    pub(crate) async fn say_line(&self, line: Bytes) -> bool {
        let said = self.line.send(line);
        matches!(tokio::time::timeout(SAY_WITHIN, said).await, Ok(Ok(())))
    }

    /// Waits for a request to be over, or for ever if none is under way.
    pub(crate) async fn settle(&mut self) {
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

    fn note(&mut self, ended: Result<Over, JoinError>) {
        match ended {
            Ok(Over::Answered(id)) => self.forget(&id),
            Ok(Over::Batch(ids)) => self.batched.retain(|id| !ids.contains(id)),
            Ok(Over::Opened(id, opening)) => {
                self.forget(&id);
                self.opened(opening);
            }
            Err(error) => self.note_broken(&error),
        }
    }

    fn forget(&mut self, id: &Id) {
        self.under_way.remove(id);
        self.opening.take_if(|opening| opening == id);
    }

    /// Whoever waits for a request that broke is told. One that was cancelled
    /// is not among those under way any more.
    fn note_broken(&mut self, error: &JoinError) {
        let broken = |(_, running): &(&Id, &AbortHandle)| running.id() == error.id();
        let Some(id) = self.under_way.iter().find(broken).map(|(id, _)| id.clone()) else { return };
        self.forget(&id);
        let reply = Reply::refusal(code::INTERNAL_ERROR, "the request broke; this is a defect of the server");
        // A client whose line is full does not read anyway.
        let _ = self.line.try_send(reply.frame(Some(&id)).into());
    }

    /// The client is gone: waits until what was under way is cancelled.
    pub(crate) async fn end(mut self) {
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
        self.gateway.0.host.end_session(&self.caller);
    }
}

fn refusal(why: &str) -> Reply {
    Reply::refusal(code::INVALID_REQUEST, why)
}
