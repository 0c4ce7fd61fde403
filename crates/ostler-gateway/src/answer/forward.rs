//! Requests that go to one server: resolved and sent by the host, and answered in the client's era.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::sabotage;
use ostler_host::upstream::SharedVoice;
use ostler_host::{Answer, Request, Scope, Target, Unknown};
use ostler_wire::{Change, INVALID_PARAMS, Params, RESOURCE_NOT_FOUND, ResultHead, ResultKind};

use super::voice::ClientVoice;
use super::{headers, parked, rounds, status};
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::session::Session;

/// Answers a request that names a tool, a prompt, a resource or a completion.
pub(crate) async fn answer(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    // A server may take this for its own failure, and callers must not make servers fail.
    let is_wrong = |arguments: &[u8]| !arguments.starts_with(b"{") && arguments != b"null";
    if exchange.params.arguments().is_some_and(is_wrong) {
        return Reply::invalid("`arguments` is not an object");
    }
    sabotage!(
        PolicyHole,
        if exchange.scope != Scope::All {
            exchange.caller = ostler_core::caller::Caller::local();
        }
    );
    let is_status = exchange.method.as_str() == "resources/read" && exchange.scope == Scope::All;
    if is_status && exchange.params.uri().as_deref() == Some(status::URI) {
        return status::read(gateway, exchange);
    }
    forward(gateway, exchange).await
}

/// Sends a request to its server and says what comes of it to the client.
pub(crate) async fn forward(gateway: &Gateway, exchange: &mut Exchange) -> Reply {
    let params = std::mem::take(&mut exchange.params);
    let session = match &exchange.client {
        Client::Modern => return modern(gateway, exchange, params).await,
        Client::Legacy(session) => Arc::clone(session),
    };
    legacy(gateway, exchange, &session, params).await
}

/// Makes the host's request of a client's.
fn request<'e>(
    gateway: &Gateway,
    exchange: &'e Exchange,
    params: Params,
    voice: Option<&Arc<ClientVoice>>,
) -> Request<'e> {
    let request = Request::new(&exchange.caller, exchange.method.as_str(), params);
    let request = request.with_patience(gateway.0.options.list_patience);
    let request = match exchange.scope {
        Scope::All => request,
        Scope::Server(_) => request.by_own_names(),
    };
    match voice {
        Some(voice) => request.with_voice(Arc::clone(voice) as SharedVoice),
        None => request,
    }
}

async fn modern(gateway: &Gateway, exchange: &Exchange, params: Params) -> Reply {
    // Any other `requestState` is the host's to judge.
    let parked = gateway.0.host.open_parked(&exchange.caller, exchange.method.as_str(), &params);
    if let Some((server, number)) = parked.filter(|(server, _)| exchange.scope.has(server)) {
        return Box::pin(resume(gateway, exchange, &params, (server, number))).await;
    }
    let (voice, questions) = ClientVoice::of(exchange, &params).unzip();
    let request = request(gateway, exchange, params, voice.as_ref());
    let request = request.from_modern_client().with_headers(headers::said(exchange));
    let target = match gateway.0.host.resolve(&exchange.scope, request).await {
        Ok(target) => target,
        Err(error) => return finish_modern(gateway, exchange, Err(error)),
    };
    if let Err(refusal) = headers::check(gateway, exchange, &target).await {
        return refusal;
    }
    match questions.flatten() {
        Some(questions) => parked::run(gateway, exchange, target, questions).await,
        None => finish_modern(gateway, exchange, gateway.0.host.send(target).await),
    }
}

/// Goes on with a parked call, if its caller may still make it.
async fn resume(
    gateway: &Gateway,
    exchange: &Exchange,
    params: &Params,
    (server, number): (ServerName, [u8; 16]),
) -> Reply {
    let gone = ["inputResponses", "requestState"].map(|key| (key, Change::Remove));
    let bare = ostler_wire::edit(params.raw(), &gone).and_then(|text| Params::parse(text.into()).ok());
    let Some(bare) = bare else { return Reply::invalid("the parameters can't be read") };
    // An answer to a question about a resource goes to the server that asked.
    let asker = Scope::Server(server.clone());
    let scope = if exchange.method.as_str() == "resources/read" { &asker } else { &exchange.scope };
    let host = &gateway.0.host;
    match host.resolve(scope, request(gateway, exchange, bare, None)).await {
        Err(error) => finish_modern(gateway, exchange, Err(error)),
        Ok(target) if target.is_hidden() => finish_modern(gateway, exchange, host.send(target).await),
        Ok(target) if *target.server() != server => {
            Reply::invalid("the request is not the one that `requestState` was given for")
        }
        Ok(target) => parked::resume(gateway, exchange, (target, params), number).await,
    }
}

async fn legacy(gateway: &Gateway, exchange: &Exchange, session: &Arc<Session>, mut params: Params) -> Reply {
    let voice = ClientVoice::of(exchange, &params).map(|(voice, _)| voice);
    let host = &gateway.0.host;
    let mut round = 0;
    loop {
        let request = request(gateway, exchange, params.clone(), voice.as_ref());
        let sent = match host.resolve(&exchange.scope, request.from_session(session.meta())).await {
            Ok(target) => send_legacy(gateway, target, voice.as_deref()).await,
            Err(error) => Err(error),
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                return match error.tool_result() {
                    Some(result) => Reply::Result(result.into()),
                    None => failed(gateway, exchange, &error),
                };
            }
        };
        if !rounds::asks(&answer) {
            return Reply::Result(ostler_wire::to_legacy(&answer.body));
        }
        match Box::pin(rounds::next(exchange, session, &params, &answer, round)).await {
            rounds::Next::Again(continued) => params = *continued,
            rounds::Next::Failed(reply) => return reply,
        }
        round += 1;
    }
}

async fn send_legacy(
    gateway: &Gateway,
    target: Target<'_>,
    voice: Option<&ClientVoice>,
) -> Result<Answer, CallError> {
    if let Some(voice) = voice {
        voice.follow_level_of(&gateway.0.host, target.server());
    }
    gateway.0.host.send(target).await
}

/// What a modern client gets.
pub(crate) fn finish_modern(
    gateway: &Gateway,
    exchange: &Exchange,
    result: Result<Answer, CallError>,
) -> Reply {
    static TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resultType\""));
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            return match error.tool_result() {
                Some(result) => Reply::Result(ostler_wire::to_modern(&result.into(), false)),
                None => failed(gateway, exchange, &error),
            };
        }
    };
    let method = exchange.method.as_str();
    let body = answer.as_of_now();
    if TYPE.find(&body).is_some()
        && !method.starts_with("tasks/")
        && ResultHead::open(&body)
            .is_ok_and(|head| matches!(head.kind, ResultKind::InputRequired | ResultKind::Task))
    {
        return Reply::Result(body);
    }
    Reply::Result(ostler_wire::to_modern(&body, is_cacheable(method)))
}

/// Methods whose results say in the modern era how long they are good for.
pub(crate) fn is_cacheable(method: &str) -> bool {
    matches!(method, "server/discover" | "resources/read")
        || (method.ends_with("/list") && method != "tasks/list")
}

/// The answer to a request that failed.
fn failed(gateway: &Gateway, exchange: &Exchange, error: &CallError) -> Reply {
    match error {
        // Over several servers the answer does not tell which one was asked.
        CallError::UnknownResource { uri }
            if exchange.scope == Scope::All && !gateway.0.host.asks_one_server(&exchange.caller) =>
        {
            not_found(uri, &exchange.client)
        }
        _ => Reply::failed(error, exchange.client.era()),
    }
}

/// The answer to a method that does not exist, which is put on record.
pub(crate) fn no_method(gateway: &Gateway, exchange: &Exchange) -> Reply {
    let method = exchange.method.as_str().to_owned();
    refused(gateway, exchange, &CallError::UnknownMethod { method })
}

/// The answer to a request that is refused before its server is known, which is put on record.
pub(crate) fn refused(gateway: &Gateway, exchange: &Exchange, error: &CallError) -> Reply {
    let (method, server) = (exchange.method.as_str(), exchange.scope.server().map_or("", ServerName::as_str));
    let unknown = Unknown { server, method, subject: "", outcome: error.code() };
    gateway.0.host.record_unknown(&exchange.caller, unknown);
    Reply::of_table(error)
}

/// Finds the server that tells of changes of a resource.
pub(crate) async fn owner_of(gateway: &Gateway, exchange: &Exchange, uri: &str) -> Option<ServerName> {
    match &exchange.scope {
        Scope::Server(server) => Some(server.clone()),
        Scope::All => {
            let (host, patience) = (&gateway.0.host, gateway.0.options.list_patience);
            host.owner_of(&exchange.caller, exchange.method.as_str(), uri, patience).await
        }
    }
}

pub(crate) fn not_found(uri: &str, client: &Client) -> Reply {
    let code = match client {
        Client::Modern => INVALID_PARAMS,
        Client::Legacy(_) => RESOURCE_NOT_FOUND,
    };
    let mut data = b"{\"uri\":".to_vec();
    ostler_wire::push_text(&mut data, uri);
    data.push(b'}');
    Reply::error(code, "resource not found", Some(&data))
}
