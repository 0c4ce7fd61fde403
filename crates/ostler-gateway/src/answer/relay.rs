//! Through the host and back, era to era.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Answer, Request};
use ostler_wire::{Era, Params, ResultHead, ResultKind};

use super::voice::ClientVoice;
use super::{headers, parked, rounds, state};
use crate::exchange::{Client, Exchange, Reply};
use crate::gateway::Gateway;
use crate::session::Session;

/// Where a request goes, with the server's own names in it.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) server: ServerName,
    pub(crate) params: Params,
    /// Whether the client knows the server's own names, since its endpoint has no others.
    has_own_names: bool,
}

impl Route {
    pub(crate) fn to(server: ServerName, params: Params) -> Self {
        Self { server, params, has_own_names: false }
    }

    /// The route of an endpoint that shows one server.
    pub(crate) fn to_only(server: ServerName, params: Params) -> Self {
        Self { server, params, has_own_names: true }
    }

    /// The request to its server, with these parameters.
    pub(crate) fn request<'r>(&'r self, caller: &'r Caller, method: &'r str, params: Params) -> Request<'r> {
        let request = Request::new(caller, self.server.as_str(), method, params);
        if self.has_own_names { request.by_own_names() } else { request }
    }
}

/// Sends a request to its server and says what comes of it to the client.
pub(crate) async fn relay(gateway: &Gateway, exchange: &Exchange, route: Route) -> Reply {
    match &exchange.client {
        Client::Modern => modern(gateway, exchange, route).await,
        Client::Legacy(session) => legacy(gateway, exchange, session, route).await,
    }
}

async fn modern(gateway: &Gateway, exchange: &Exchange, mut route: Route) -> Reply {
    // Any other `requestState` is the host's to judge.
    if let Some((server, number)) = state::open(gateway, exchange, &route.params)
        && server == route.server
    {
        return Box::pin(parked::resume(gateway, exchange, &route, number)).await;
    }
    if let Err(refusal) = headers::check(gateway, exchange, &route).await {
        return refusal;
    }
    let voice = match ClientVoice::of(gateway, exchange, &route) {
        Some((voice, Some(questions))) => {
            return parked::run(gateway, exchange, route, voice, questions).await;
        }
        Some((voice, None)) => Some(voice),
        None => None,
    };
    let params = std::mem::take(&mut route.params);
    let request = route.request(&exchange.caller, exchange.method.as_str(), params);
    let request = request.from_modern_client().with_headers(headers::said(exchange));
    let request = speak(request, voice);
    let result = gateway.0.host.send(request).await;
    finish_modern(exchange, result)
}

fn speak(request: Request<'_>, voice: Option<Arc<ClientVoice>>) -> Request<'_> {
    match voice {
        Some(voice) => request.with_voice(voice),
        None => request,
    }
}

/// What a modern client gets.
pub(crate) fn finish_modern(exchange: &Exchange, result: Result<Answer, CallError>) -> Reply {
    static TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resultType\""));
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            return match error.tool_result() {
                Some(result) => Reply::Result(ostler_wire::to_modern(&result.into(), false)),
                None => Reply::failed(&error, Era::Modern),
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

async fn legacy(gateway: &Gateway, exchange: &Exchange, session: &Arc<Session>, route: Route) -> Reply {
    let voice = ClientVoice::of(gateway, exchange, &route).map(|(voice, _)| voice);
    let mut route = route;
    let mut round = 0;
    loop {
        let request = route.request(&exchange.caller, exchange.method.as_str(), route.params.clone());
        let request = speak(request.from_session(session.meta()), voice.clone());
        let answer = match gateway.0.host.send(request).await {
            Ok(answer) => answer,
            Err(error) => {
                return match error.tool_result() {
                    Some(result) => Reply::Result(result.into()),
                    None => Reply::failed(&error, Era::Legacy),
                };
            }
        };
        if !rounds::asks(&answer) {
            return Reply::Result(ostler_wire::to_legacy(&answer.body));
        }
        match Box::pin(rounds::next(exchange, session, &route.params, &answer, round)).await {
            rounds::Next::Again(continued) => route.params = *continued,
            rounds::Next::Failed(reply) => return reply,
        }
        round += 1;
    }
}
