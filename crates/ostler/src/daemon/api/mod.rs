//! The admin API: `/api/v1/…`, for the operator and the command line.

mod attach;
mod audit;
mod budgets;
mod call;
mod config;
mod logs;
mod observed;
mod offers;
mod own;
mod pins;
mod query;
mod relay;
mod servers;
mod tokens;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use ostler_core::error::CallError;
use ostler_gateway::Refusal;
use serde::Serialize;
use serde_json::json;

use self::query::Query;
pub(crate) use self::tokens::Used;
use super::{Daemon, door};
use crate::proof;
use crate::told::{Failed, Told};

/// The description of this API, which a test compares with the routes.
const OPENAPI: &str = include_str!("../../../openapi.json");

/// Every route, behind the door.
pub(super) fn router(daemon: &Arc<Daemon>) -> Router {
    let guarded = middleware::from_fn_with_state(Arc::clone(daemon), let_in);
    let routes = Router::new()
        .route("/api/v1/version", get(version))
        .route("/api/v1/daemon", get(own::show))
        .route("/api/v1/shutdown", post(own::shut_down))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/servers", get(servers::list))
        .route("/api/v1/servers/{name}", get(servers::one))
        .route("/api/v1/servers/{name}/start", post(servers::start))
        .route("/api/v1/servers/{name}/stop", post(servers::stop))
        .route("/api/v1/servers/{name}/reload", post(servers::reload))
        .route("/api/v1/servers/{name}/logs", get(logs::read))
        .route("/api/v1/logs", get(logs::read_all))
        .route("/api/v1/tools", get(tools::list))
        .route("/api/v1/definitions", get(pins::definitions))
        .route("/api/v1/pins", get(pins::show))
        .route("/api/v1/pins/reload", post(pins::reload))
        .route("/api/v1/prompts", get(offers::prompts))
        .route("/api/v1/resources", get(offers::resources))
        .route("/api/v1/resource-templates", get(offers::templates))
        .route("/api/v1/call", post(call::call))
        .route("/api/v1/budgets", get(budgets::show))
        .route("/api/v1/relay", get(relay::show))
        .route("/api/v1/config", get(config::show))
        .route("/api/v1/config/reload", post(config::reload))
        .route("/api/v1/tokens", get(tokens::list))
        .route("/api/v1/tokens/reload", post(tokens::reload))
        .route("/api/v1/audit", get(audit::read))
        .route("/api/v1/attach", get(attach::attach))
        .route(proof::PATH, get(prove));
    routes.layer(guarded).with_state(Arc::clone(daemon))
}

/// Lets in requests with the admin token, and none of a web page. The proof is
/// asked for before a command shows its token.
async fn let_in(State(daemon): State<Arc<Daemon>>, request: Request, next: Next) -> Response {
    if !door::is_from_here(request.uri(), request.headers()) {
        let what = "the Host or Origin header names another machine";
        return refuse(StatusCode::FORBIDDEN, "foreign-origin", what);
    }
    if request.uri().path() != proof::PATH && !daemon.door.knows(request.headers()) {
        let what = "the admin token is missing or wrong; it stands in the state directory";
        let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthorized", what);
        let scheme = header::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        return response;
    }
    next.run(request).await
}

async fn version(State(daemon): State<Arc<Daemon>>) -> Response {
    let audit = audit::state_of(&daemon);
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    reply(StatusCode::OK, &json!({ "version": version, "pid": pid, "audit": audit }))
}

async fn prove(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    match Query(&query).get("nonce").and_then(|nonce| daemon.door.prove(nonce)) {
        Some(proof) => reply(StatusCode::OK, &proof),
        None => refuse(StatusCode::BAD_REQUEST, "invalid-argument", "`nonce` is 64 hexadecimal digits"),
    }
}

async fn openapi() -> Response {
    reply_with(StatusCode::OK, Body::from(OPENAPI))
}

/// An answer in JSON.
pub(super) fn reply(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => reply_with(status, Body::from(text)),
        // Only a map with keys that are no strings can't be written, and there is none.
        Err(_) => reply_with(StatusCode::INTERNAL_SERVER_ERROR, Body::from("{}")),
    }
}

/// An answer whose JSON is written already.
fn reply_with(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An error that is no call's.
fn refuse(status: StatusCode, code: &str, what: &str) -> Response {
    let mut response = reply(status, &json!({ "error": { "code": code, "message": what } }));
    response.extensions_mut().insert(Refusal(what.into()));
    response
}

/// A call's error.
fn fail(error: &CallError) -> Response {
    let status = match error {
        CallError::Invalid { .. } | CallError::InvalidArguments { .. } => StatusCode::BAD_REQUEST,
        CallError::UnknownTool { .. }
        | CallError::UnknownServer { .. }
        | CallError::UnknownPrompt { .. }
        | CallError::UnknownResource { .. }
        | CallError::UnknownMethod { .. } => StatusCode::NOT_FOUND,
        CallError::DefinitionChanged { .. } => StatusCode::CONFLICT,
        CallError::OverBudget { .. } => StatusCode::TOO_MANY_REQUESTS,
        CallError::Unavailable(_) | CallError::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
        CallError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        CallError::OutcomeUnknown { .. } | CallError::UpstreamProtocol { .. } | CallError::Rpc(_) => {
            StatusCode::BAD_GATEWAY
        }
    };
    reply(status, &Failed { error: Told::from(error) })
}
