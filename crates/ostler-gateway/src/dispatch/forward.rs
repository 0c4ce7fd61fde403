//! Requests that go to one server: resolved and sent by the host, and answered in the client's era.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use ostler_core::error::CallError;
use ostler_core::sabotage;
use ostler_core::server_name::ServerName;
use ostler_host::upstream::SharedCallObserver;
use ostler_host::{Answer, Request, Scope, Target, UnresolvedRequest};
use ostler_wire::{INVALID_PARAMS, MemberEdit, Params, RESOURCE_NOT_FOUND, ResultHead, ResultKind};

use super::observer::ClientObserver;
use super::{input_required, param_headers, status, suspended};
use crate::client_request::{ClientEra, ClientRequest, GatewayReply};
use crate::client_session::ClientSession;
use crate::gateway::Gateway;

/// Answers a request that names a tool, a prompt, a resource or a completion.
pub(crate) async fn answer_named(gateway: &Gateway, exchange: &mut ClientRequest) -> GatewayReply {
    // A server may count this as its own failure, and a caller must not be able to make a server fail.
    let is_wrong = |arguments: &[u8]| !arguments.starts_with(b"{") && arguments != b"null";
    if exchange.params.arguments().is_some_and(is_wrong) {
        return GatewayReply::invalid_params("`arguments` is not an object");
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

/// Sends a request to its server and returns the client's reply.
pub(crate) async fn forward(gateway: &Gateway, exchange: &mut ClientRequest) -> GatewayReply {
    let params = std::mem::take(&mut exchange.params);
    let session = match &exchange.client {
        ClientEra::Modern => return forward_modern(gateway, exchange, params).await,
        ClientEra::Legacy(session) => Arc::clone(session),
    };
    forward_legacy(gateway, exchange, &session, params).await
}

/// Converts a client request into a request to the host.
fn host_request<'e>(
    gateway: &Gateway,
    exchange: &'e ClientRequest,
    params: Params,
    voice: Option<&Arc<ClientObserver>>,
) -> Request<'e> {
    let request = Request::new(&exchange.caller, exchange.method.as_str(), params);
    let request = request.with_list_timeout(gateway.0.options.list_patience);
    let request = match exchange.scope {
        Scope::All => request,
        Scope::Server(_) => request.with_own_names(),
    };
    match voice {
        Some(voice) => request.with_call_observer(Arc::clone(voice) as SharedCallObserver),
        None => request,
    }
}

async fn forward_modern(gateway: &Gateway, exchange: &ClientRequest, params: Params) -> GatewayReply {
    // The host validates any other `requestState`.
    let parked = gateway.0.host.open_suspended(&exchange.caller, exchange.method.as_str(), &params);
    if let Some((server, number)) = parked.filter(|(server, _)| exchange.scope.contains(server)) {
        return Box::pin(resume_suspended(gateway, exchange, &params, (server, number))).await;
    }
    let (voice, questions) = ClientObserver::for_request(exchange, &params).unzip();
    let request = host_request(gateway, exchange, params, voice.as_ref());
    let request = request.from_modern_client().with_headers(param_headers::param_header_values(exchange));
    let target = match gateway.0.host.resolve(&exchange.scope, request).await {
        Ok(target) => target,
        Err(error) => return modern_reply(gateway, exchange, Err(error)),
    };
    if let Err(refusal) = param_headers::check(gateway, exchange, &target).await {
        return refusal;
    }
    match questions.flatten() {
        Some(questions) => suspended::send_suspendable(gateway, exchange, target, questions).await,
        None => modern_reply(gateway, exchange, gateway.0.host.send(target).await),
    }
}

/// Resumes a suspended call, if its caller may still make it.
async fn resume_suspended(
    gateway: &Gateway,
    exchange: &ClientRequest,
    params: &Params,
    (server, number): (ServerName, [u8; 16]),
) -> GatewayReply {
    let gone = ["inputResponses", "requestState"].map(|key| (key, MemberEdit::Remove));
    let bare = ostler_wire::edit(params.raw(), &gone).and_then(|text| Params::parse(text.into()).ok());
    let Some(bare) = bare else { return GatewayReply::invalid_params("the parameters can't be read") };
    // An answer to a server request about a resource goes to the server that sent the request.
    let asker = Scope::Server(server.clone());
    let scope = if exchange.method.as_str() == "resources/read" { &asker } else { &exchange.scope };
    let host = &gateway.0.host;
    match host.resolve(scope, host_request(gateway, exchange, bare, None)).await {
        Err(error) => modern_reply(gateway, exchange, Err(error)),
        Ok(target) if target.is_hidden() => modern_reply(gateway, exchange, host.send(target).await),
        Ok(target) if *target.server() != server => {
            GatewayReply::invalid_params("the request is not the one that `requestState` was given for")
        }
        Ok(target) => suspended::resume(gateway, exchange, (target, params), number).await,
    }
}

async fn forward_legacy(
    gateway: &Gateway,
    exchange: &ClientRequest,
    session: &Arc<ClientSession>,
    mut params: Params,
) -> GatewayReply {
    let voice = ClientObserver::for_request(exchange, &params).map(|(voice, _)| voice);
    let host = &gateway.0.host;
    let mut round = 0;
    loop {
        let request = host_request(gateway, exchange, params.clone(), voice.as_ref());
        let sent = match host.resolve(&exchange.scope, request.from_session(session.meta())).await {
            Ok(target) => send_legacy(gateway, target, voice.as_deref()).await,
            Err(error) => Err(error),
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                return match error.tool_result() {
                    Some(result) => GatewayReply::Result(result.into()),
                    None => error_reply(gateway, exchange, &error),
                };
            }
        };
        if !input_required::is_input_required(&answer) {
            return GatewayReply::Result(ostler_wire::result_to_legacy(&answer.body));
        }
        match Box::pin(input_required::run_round(exchange, session, &params, &answer, round)).await {
            input_required::RoundOutcome::Retry(continued) => params = *continued,
            input_required::RoundOutcome::Failed(reply) => return reply,
        }
        round += 1;
    }
}

async fn send_legacy(
    gateway: &Gateway,
    target: Target<'_>,
    voice: Option<&ClientObserver>,
) -> Result<Answer, CallError> {
    if let Some(voice) = voice {
        voice.set_default_log_level(&gateway.0.host, target.server());
    }
    gateway.0.host.send(target).await
}

/// Returns the reply to a modern client.
pub(crate) fn modern_reply(
    gateway: &Gateway,
    exchange: &ClientRequest,
    result: Result<Answer, CallError>,
) -> GatewayReply {
    static TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resultType\""));
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            return match error.tool_result() {
                Some(result) => GatewayReply::Result(ostler_wire::result_to_modern(&result.into(), false)),
                None => error_reply(gateway, exchange, &error),
            };
        }
    };
    let method = exchange.method.as_str();
    let body = answer.body_with_remaining_ttl();
    if TYPE.find(&body).is_some()
        && !method.starts_with("tasks/")
        && ResultHead::parse(&body)
            .is_ok_and(|head| matches!(head.kind, ResultKind::InputRequired | ResultKind::Task))
    {
        return GatewayReply::Result(body);
    }
    GatewayReply::Result(ostler_wire::result_to_modern(&body, is_cacheable(method)))
}

/// Returns whether results of a method carry cache hints in the modern era.
pub(crate) fn is_cacheable(method: &str) -> bool {
    matches!(method, "server/discover" | "resources/read")
        || (method.ends_with("/list") && method != "tasks/list")
}

/// Returns the reply to a failed request.
fn error_reply(gateway: &Gateway, exchange: &ClientRequest, error: &CallError) -> GatewayReply {
    match error {
        // Over several servers the reply does not tell which one was asked.
        CallError::UnknownResource { uri }
            if exchange.scope == Scope::All && !gateway.0.host.has_single_server(&exchange.caller) =>
        {
            resource_not_found(uri, &exchange.client)
        }
        _ => GatewayReply::from_call_error(error, exchange.client.era()),
    }
}

/// Returns the reply to an unknown method, and records it.
pub(crate) fn method_not_found(gateway: &Gateway, exchange: &ClientRequest) -> GatewayReply {
    let method = exchange.method.as_str().to_owned();
    recorded_refusal(gateway, exchange, &CallError::UnknownMethod { method })
}

/// Returns the reply to a request that is refused before its server is known, and records it.
pub(crate) fn recorded_refusal(
    gateway: &Gateway,
    exchange: &ClientRequest,
    error: &CallError,
) -> GatewayReply {
    let (method, server) = (exchange.method.as_str(), exchange.scope.server().map_or("", ServerName::as_str));
    let unknown = UnresolvedRequest { server, method, subject: "", outcome: error.code() };
    gateway.0.host.record_unresolved(&exchange.caller, unknown);
    GatewayReply::from_own_error(error)
}

/// Returns the server that announces changes of a resource.
pub(crate) async fn resource_owner(
    gateway: &Gateway,
    exchange: &ClientRequest,
    uri: &str,
) -> Option<ServerName> {
    match &exchange.scope {
        Scope::Server(server) => Some(server.clone()),
        Scope::All => {
            let (host, patience) = (&gateway.0.host, gateway.0.options.list_patience);
            host.find_resource_owner(&exchange.caller, exchange.method.as_str(), uri, patience).await
        }
    }
}

pub(crate) fn resource_not_found(uri: &str, client: &ClientEra) -> GatewayReply {
    let code = match client {
        ClientEra::Modern => INVALID_PARAMS,
        ClientEra::Legacy(_) => RESOURCE_NOT_FOUND,
    };
    let mut data = b"{\"uri\":".to_vec();
    ostler_wire::push_json_string(&mut data, uri);
    data.push(b'}');
    GatewayReply::error(code, "resource not found", Some(&data))
}
