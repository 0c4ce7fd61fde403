//! Stream connection: one client on a stream, its session, and its requests in flight.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::keyed_limit::KeyedPermit;
use ostler_wire::{Message, MessageError, MethodName, Params, RequestId, error_code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::auth::Authenticated;
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::{ClientSession, NewSession};
use crate::command_extensions::SharedCommandExtensions;
use crate::credential_lifetime::{CredentialLifetime, unless_revoked};
use crate::dispatch::{self, dispatch_request};
use crate::gateway::Gateway;
use crate::http::batch::{self, BatchRun};
use crate::initialize_params::{InitializeParams, cancelled_request_id};
use crate::modern_meta;
use crate::notification_sink::NotificationSink;
use crate::server::{BacklogShare, StreamBacklog};
use crate::session_requests::MAX_SESSION_REQUESTS;
use crate::session_table;
use ostler_host::Scope;

/// Timeout of requests in flight after the end of the input. A client that pipes its requests in and waits for the
/// answers is served; one that is gone without notice holds nothing for long. Calls have deadlines of their own, too.
const INPUT_END_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the edge's own answers to a client that does not read. Nothing is read meanwhile, which slows down a
/// client that sends faster than it reads.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists of one client that are in flight or wait for it to read: as many as there are kinds, which clients request at
/// once. Each may be a page of some MiB.
const MAX_LISTS: usize = 4;

/// Delay after which a request refused for overload may be retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sender of answers to a client.
struct FrameSender {
    output: mpsc::Sender<Bytes>,
    backlog: Option<StreamBacklog>,
}

impl FrameSender {
    /// Sends an answer, which counts and keeps its list permit until the client takes it. Without a client the answer
    /// is dropped.
    async fn send(&self, text: Vec<u8>, list_turn: Option<OwnedSemaphorePermit>) {
        let share = self.backlog.as_ref().and_then(|backlog| backlog.add(text.len()));
        let frame = match (&share, &list_turn) {
            (None, None) => text.into(),
            _ => Bytes::from_owner(HeldFrame { text, _share: share, _list_turn: list_turn }),
        };
        let _ = self.output.send(frame).await;
    }
}

/// Answer, and the permits held until its client takes it.
struct HeldFrame {
    text: Vec<u8>,
    _share: Option<BacklogShare>,
    _list_turn: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldFrame {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// One client on a stream.
pub(crate) struct StreamConnection {
    gateway: Gateway,
    /// In a session that lasts as long as the connection, for both eras.
    caller: Caller,
    /// Ends with the caller's credential.
    lifetime: Option<CredentialLifetime>,
    /// Caller without a session, for commands: they share one process of a server that has a process per session.
    commands: Option<(Caller, SharedCommandExtensions)>,
    scope: Scope,
    output: mpsc::Sender<Bytes>,
    /// True if requests count towards their caller's limit over HTTP.
    is_counted: bool,
    /// Counter of bytes that wait for the client.
    backlog: Option<StreamBacklog>,
    /// Permits of lists that are written or wait for the client.
    list_turns: Arc<Semaphore>,
    /// Opened by `initialize`.
    session: Option<Arc<ClientSession>>,
    /// The `initialize` in flight: a server may have to start for it.
    initializing: Option<RequestId>,
    tasks: JoinSet<FinishedTask>,
    /// Requests in flight, by the client's ids.
    in_flight: HashMap<RequestId, AbortHandle>,
    /// Requests of batches that are not answered yet, by the client's ids.
    batched_in_flight: HashSet<RequestId>,
    /// True once the client has closed its input: listens end by themselves.
    is_input_closed: watch::Sender<bool>,
}

/// Request that has ended.
enum FinishedTask {
    /// Answered; holds the client's id of the request.
    Answered(RequestId),
    /// Answered as a batch; holds the client's ids of the requests.
    Batch(Vec<RequestId>),
    /// An `initialize` that was answered, with the session that it opens.
    SessionOpened(RequestId, NewSession),
}

impl StreamConnection {
    /// Makes the connection of a client; `None` on a machine without randomness, where clients would share a session.
    pub(crate) fn new(
        gateway: Gateway,
        admitted: Authenticated,
        scope: Scope,
        line: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        let Authenticated { caller, lifetime } = admitted;
        let Some(id) = session_table::random_session_id() else {
            tracing::error!("this machine has no source of randomness, so a client is refused");
            return None;
        };
        Some(Self {
            gateway,
            caller: caller.in_session(id),
            lifetime,
            commands: None,
            scope,
            output: line,
            is_counted: false,
            backlog: None,
            list_turns: Arc::new(Semaphore::new(MAX_LISTS)),
            session: None,
            initializing: None,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            batched_in_flight: HashSet::new(),
            is_input_closed: watch::Sender::new(false),
        })
    }

    /// Makes the connection of a client whose messages come over HTTP, one by one.
    pub(crate) fn for_http(
        gateway: Gateway,
        (caller, scope): (Caller, Scope),
        line: mpsc::Sender<Bytes>,
        backlog: Option<StreamBacklog>,
    ) -> Option<Self> {
        let mut link = Self::new(gateway, caller.into(), scope, line)?;
        (link.is_counted, link.backlog) = (true, backlog);
        Some(link)
    }

    /// Makes the connection of a command of the program.
    pub(crate) fn for_commands(
        gateway: Gateway,
        caller: Caller,
        commands: SharedCommandExtensions,
        line: mpsc::Sender<Bytes>,
    ) -> Option<Self> {
        let bare = caller.clone();
        let mut link = Self::new(gateway, caller.into(), Scope::All, line)?;
        link.commands = Some((bare, commands));
        Some(link)
    }

    /// Returns the timeout of requests in flight after the end of the input; zero for a command, whose requests end
    /// with it.
    pub(crate) fn input_end_timeout(&self) -> Duration {
        if self.commands.is_some() { Duration::ZERO } else { INPUT_END_TIMEOUT }
    }

    /// Waits for the end of the caller's credential. From then on no message may be taken.
    pub(crate) fn credential_ended(&self) -> impl Future<Output = ()> + use<> {
        let lifetime = self.lifetime.clone();
        async move {
            match lifetime {
                Some(lifetime) => lifetime.ended().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the maximum bytes of a line.
    pub(crate) fn max_line(&self) -> usize {
        self.gateway.0.options.max_body
    }

    /// Returns whether a session is being opened. No line may be taken meanwhile.
    pub(crate) fn is_initializing(&self) -> bool {
        self.initializing.is_some()
    }

    /// Returns whether any request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Marks the end of the client's input. The client can no longer answer server requests, and streams without an
    /// end of their own are ended.
    pub(crate) fn close_input(&mut self) {
        self.is_input_closed.send_replace(true);
        if let Some(session) = &self.session {
            session.end();
        }
    }

    /// Handles one line; false if the client is gone.
    pub(crate) async fn handle_line(&mut self, line: Bytes) -> bool {
        self.join_finished();
        match Message::parse(line.clone()) {
            Ok(Message::Request { id, method, params }) => {
                match params.map_or(Ok(Params::empty()), Params::parse) {
                    Ok(params) => self.handle_request(id, method, params).await,
                    Err(why) => {
                        self.send_reply(
                            &GatewayReply::refusal(error_code::INVALID_PARAMS, &why.to_string()),
                            Some(&id),
                        )
                        .await
                    }
                }
            }
            Ok(Message::Notification { method, params }) => {
                self.handle_notification(&method, params.as_ref());
                true
            }
            Ok(Message::Response { id, outcome }) => {
                if let (Some(session), Some(id)) = (&self.session, id) {
                    session.handle_response(&id, outcome);
                }
                true
            }
            Err(MessageError::Batch) if self.allows_batches() => self.handle_batch(&line).await,
            Err(why) => {
                let code = match why {
                    MessageError::NotUtf8 | MessageError::NotJson { .. } => error_code::PARSE_ERROR,
                    _ => error_code::INVALID_REQUEST,
                };
                self.send_reply(&GatewayReply::refusal(code, &why.to_string()), None).await
            }
        }
    }

    async fn handle_request(&mut self, id: RequestId, method: MethodName, params: Params) -> bool {
        let client = if params.has_modern_meta() {
            modern_meta::check(&method, &params).map(|()| ClientEra::Modern)
        } else {
            match (&self.session, method.as_str()) {
                (_, "ping") => Err(GatewayReply::empty_result()),
                (None, "initialize") => return self.handle_initialize(id, &params).await,
                (Some(_), "initialize") => Err(invalid_request("this connection is initialized already")),
                (Some(session), _) => Ok(ClientEra::Legacy(Arc::clone(session))),
                (None, _) => Err(invalid_request(
                    "neither a modern request (`_meta` names no protocol version) nor initialized",
                )),
            }
        };
        let admitted = client.and_then(|client| {
            self.admit(&id)?;
            Ok((client, self.acquire_permit()?))
        });
        match admitted {
            Ok((client, permit)) => {
                self.spawn_request((client, permit), id, method, params);
                true
            }
            Err(reply) => self.send_reply(&reply, Some(&id)).await,
        }
    }

    /// Refuses a request whose id is in use, or that is one too many.
    fn admit(&self, id: &RequestId) -> Result<(), GatewayReply> {
        if self.in_flight.contains_key(id) || self.batched_in_flight.contains(id) {
            return Err(invalid_request("a request with this id is under way"));
        }
        let is_full = self.in_flight.len() + self.batched_in_flight.len() >= MAX_SESSION_REQUESTS;
        if is_full { Err(GatewayReply::overloaded()) } else { Ok(()) }
    }

    /// Acquires a permit of the caller, held until the answer is in the frame channel.
    fn acquire_permit(&self) -> Result<Option<KeyedPermit>, GatewayReply> {
        if !self.is_counted {
            return Ok(None);
        }
        let limit = &self.gateway.0.per_caller;
        limit.acquire(self.caller.principal()).map(Some).map_err(|_| {
            let what = format!("this caller has {} requests and streams open", limit.max_per_key());
            GatewayReply::from_own_error(&CallError::Overloaded { what, retry_after: RETRY_AFTER })
        })
    }

    /// Returns the sender of answers to the client.
    fn frames(&self) -> FrameSender {
        FrameSender { output: self.output.clone(), backlog: self.backlog.clone() }
    }

    fn allows_batches(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.version() == batch::BATCH_VERSION)
    }

    /// Answers a batch with a batch, in the same order. Its requests run at once, and none is cancelled alone.
    async fn handle_batch(&mut self, text: &Bytes) -> bool {
        let messages = match batch::split_batch(text) {
            Ok(messages) => messages,
            Err(why) => return self.send_reply(&invalid_request(&why), None).await,
        };
        let permit = match self.acquire_permit() {
            Ok(permit) => permit,
            Err(reply) => return self.send_reply(&reply, None).await,
        };
        let mut run = BatchRun::new(self.gateway.clone(), messages.len(), self.is_counted);
        let mut ids = Vec::new();
        for (at, message) in messages.into_iter().enumerate() {
            match Message::parse(message) {
                Ok(Message::Request { id, method, params }) => {
                    let params = params.map_or(Ok(Params::empty()), Params::parse);
                    let reply = match (params, &self.session, self.admit(&id)) {
                        (Ok(_), _, _) if method == "ping" => GatewayReply::empty_result(),
                        (Ok(_), _, Err(reply)) => reply,
                        (Ok(params), Some(session), Ok(())) => {
                            let client = ClientEra::Legacy(Arc::clone(session));
                            let request = self.client_request(client, id.clone(), method, params);
                            self.batched_in_flight.insert(id.detached());
                            ids.push(id.detached());
                            run.spawn(at, request, self.lifetime.clone());
                            continue;
                        }
                        (Ok(_), None, _) => invalid_request("not initialized"),
                        (Err(why), _, _) => {
                            GatewayReply::refusal(error_code::INVALID_PARAMS, &why.to_string())
                        }
                    };
                    run.answer(at, reply.frame(Some(&id)));
                }
                Ok(Message::Notification { method, params }) => {
                    self.handle_notification(&method, params.as_ref())
                }
                Ok(Message::Response { id, outcome }) => {
                    if let (Some(session), Some(id)) = (&self.session, id) {
                        session.handle_response(&id, outcome);
                    }
                }
                Err(why) => run.answer(at, invalid_request(&why.to_string()).frame(None)),
            }
        }
        if run.is_done() {
            return match run.join() {
                None => true,
                Some(answers) => self.send_line(answers.into()).await,
            };
        }
        let frames = self.frames();
        self.tasks.spawn(async move {
            let _permit = permit;
            if let Some(answers) = run.finish().await {
                frames.send(answers, None).await;
            }
            FinishedTask::Batch(ids)
        });
        true
    }

    fn client_request(
        &self,
        client: ClientEra,
        id: RequestId,
        method: MethodName,
        params: Params,
    ) -> ClientRequest {
        let caller = match (&self.commands, &client) {
            (Some((caller, _)), _) => caller.clone(),
            (None, ClientEra::Modern) => self.caller.clone(),
            (None, ClientEra::Legacy(session)) => session.caller().clone(),
        };
        ClientRequest {
            caller,
            scope: self.scope.clone(),
            client,
            id,
            method,
            params,
            headers: None,
            sink: NotificationSink::for_connection(self.output.clone()),
            command_extensions: self.commands.as_ref().map(|(_, commands)| Arc::clone(commands)),
        }
    }

    /// Answers a request in a task of its own.
    fn spawn_request(
        &mut self,
        (client, permit): (ClientEra, Option<KeyedPermit>),
        id: RequestId,
        method: MethodName,
        params: Params,
    ) {
        let mut exchange = self.client_request(client, id.clone(), method, params);
        let (gateway, lifetime) = (self.gateway.clone(), self.lifetime.clone());
        let frames = self.frames();
        let list_turns = dispatch::is_list(&exchange.method).then(|| Arc::clone(&self.list_turns));
        let mut hung_up = self.is_input_closed.subscribe();
        // The id must not keep the buffer of its line alive.
        let key = id.detached();
        let running = self.tasks.spawn({
            let key = key.clone();
            async move {
                let _permit = permit;
                // Waits as long as the client leaves lists unread. The semaphore is never closed.
                let list_turn = match list_turns {
                    Some(turns) => turns.acquire_owned().await.ok(),
                    None => None,
                };
                let answering = async {
                    if let ClientEra::Legacy(session) = &exchange.client {
                        let caller = exchange.caller.clone();
                        exchange.caller =
                            dispatch::in_first_root(&gateway, session, &exchange.sink, caller).await;
                    }
                    match exchange.method.as_str() {
                        ostler_wire::SUBSCRIPTIONS_LISTEN => tokio::select! {
                            reply = dispatch_request(&gateway, &mut exchange) => reply,
                            _ = hung_up.wait_for(|has_hung_up| *has_hung_up) => dispatch::closed_reply(id.raw()),
                        },
                        _ => dispatch_request(&gateway, &mut exchange).await,
                    }
                };
                let reply = unless_revoked(lifetime, answering).await;
                let text = reply.frame(Some(&id));
                // The host writes no other list before a long one is dropped.
                drop(reply);
                frames.send(text, list_turn).await;
                FinishedTask::Answered(key)
            }
        });
        self.in_flight.insert(key, running);
    }

    async fn handle_initialize(&mut self, id: RequestId, params: &Params) -> bool {
        let introduction = match InitializeParams::parse(params) {
            Ok(introduction) => introduction,
            Err(refusal) => return self.send_reply(&refusal, Some(&id)).await,
        };
        let (gateway, caller, scope) = (self.gateway.clone(), self.caller.clone(), self.scope.clone());
        let (line, lifetime) = (self.output.clone(), self.lifetime.clone());
        let key = id.detached();
        self.initializing = Some(key.clone());
        let running = self.tasks.spawn({
            let key = key.clone();
            async move {
                let answering = dispatch::initialize(&gateway, &caller, &scope, introduction.version);
                let reply = unless_revoked(lifetime, answering).await;
                let _ = line.send(reply.frame(Some(&id)).into()).await;
                let GatewayReply::Result(_) = reply else { return FinishedTask::Answered(key) };
                FinishedTask::SessionOpened(
                    key,
                    NewSession { caller, scope, initialize_params: Arc::new(introduction) },
                )
            }
        });
        self.in_flight.insert(key, running);
        true
    }

    fn open_session(&mut self, opening: NewSession) {
        let session = ClientSession::on_connection(opening, self.output.clone());
        if *self.is_input_closed.borrow() {
            session.end();
        }
        self.gateway.0.notifications.add_session(&session);
        self.session = Some(session);
    }

    /// Handles a notification. A refused one is recorded; JSON-RPC has no answer to it.
    fn handle_notification(&mut self, method: &str, params: Option<&Bytes>) {
        let caller = self.session.as_ref().map_or(&self.caller, |session| session.caller());
        let is_taken =
            dispatch::handle_notification(&self.gateway, caller, &self.scope, method, params).is_ok();
        if let ("notifications/roots/list_changed", Some(session)) = (method, &self.session) {
            session.clear_first_root();
        }
        if is_taken
            && method == "notifications/cancelled"
            && let Some(running) = cancelled_request_id(params).and_then(|id| self.in_flight.remove(&id))
        {
            running.abort();
        }
    }

    /// Sends a reply to the client; false if it is gone.
    pub(crate) async fn send_reply(&self, reply: &GatewayReply, id: Option<&RequestId>) -> bool {
        self.send_line(reply.frame(id).into()).await
    }

    /// Sends a line that is written already; false if the client is gone.
    pub(crate) async fn send_line(&self, line: Bytes) -> bool {
        let said = self.output.send(line);
        matches!(tokio::time::timeout(REPLY_TIMEOUT, said).await, Ok(Ok(())))
    }

    /// Waits until a request has ended, or for ever if none is in flight.
    pub(crate) async fn join_next(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => self.handle_finished(ended),
            None => std::future::pending().await,
        }
    }

    /// Removes the requests that have ended.
    fn join_finished(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.handle_finished(ended);
        }
    }

    fn handle_finished(&mut self, ended: Result<FinishedTask, JoinError>) {
        match ended {
            Ok(FinishedTask::Answered(id)) => self.remove_request(&id),
            Ok(FinishedTask::Batch(ids)) => self.batched_in_flight.retain(|id| !ids.contains(id)),
            Ok(FinishedTask::SessionOpened(id, opening)) => {
                self.remove_request(&id);
                self.open_session(opening);
            }
            Err(error) => self.answer_panicked(&error),
        }
    }

    fn remove_request(&mut self, id: &RequestId) {
        self.in_flight.remove(id);
        self.initializing.take_if(|opening| opening == id);
    }

    /// Answers a request whose task panicked with an error. A cancelled request is no longer in flight.
    fn answer_panicked(&mut self, error: &JoinError) {
        let broken = |(_, running): &(&RequestId, &AbortHandle)| running.id() == error.id();
        let Some(id) = self.in_flight.iter().find(broken).map(|(id, _)| id.clone()) else { return };
        self.remove_request(&id);
        let reply = GatewayReply::refusal(
            error_code::INTERNAL_ERROR,
            "the request broke; this is a defect of the server",
        );
        // A client whose channel is full does not read anyway.
        let _ = self.output.try_send(reply.frame(Some(&id)).into());
    }

    /// Ends the connection: waits until its requests in flight are cancelled.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Also releases the session's subscriptions if the whole connection is dropped.
impl Drop for StreamConnection {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.end();
            dispatch::release_session(&self.gateway, session);
        }
        self.gateway.0.host.end_session(&self.caller);
    }
}

fn invalid_request(why: &str) -> GatewayReply {
    GatewayReply::refusal(error_code::INVALID_REQUEST, why)
}

#[cfg(test)]
mod tests {
    use ostler_testkit::{Script, TestHost, run_until_stalled};

    use super::*;
    use crate::options::GatewayOptions;

    #[tokio::test(start_paused = true)]
    async fn no_more_than_a_few_lists_wait_for_a_client_that_does_not_read() {
        let world = TestHost::new().server("a", Script::echo()).start().await;
        let gateway = Gateway::new(world.host.clone(), GatewayOptions::default());
        let (line, mut frames) = mpsc::channel(64);
        let mut client = StreamConnection::new(gateway, Caller::local().into(), Scope::All, line).unwrap();
        for id in 0..10 {
            let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
            let list =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"_meta":{meta}}}}}"#);
            assert!(client.handle_line(list.into()).await);
        }
        for _ in 0..10 {
            run_until_stalled().await;
            assert!(frames.len() <= MAX_LISTS, "{} lists wait", frames.len());
            assert!(frames.recv().await.unwrap().starts_with(br#"{"jsonrpc":"2.0","id":"#));
        }
    }
}
