//! Admin API `/api/v1/…`, for the operator and the command line.

mod attach;
mod audit;
mod budgets;
mod config;
mod daemon_info;
mod explain;
mod logs;
mod pins;
mod query;
mod relay;
mod servers;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use ostler_core::error::CallError;
use ostler_gateway::RefusalReason;
use serde::Serialize;

use self::query::QueryString;
use super::Daemon;
use crate::api::{ErrorBody, ErrorResponse, OPENAPI, VersionResponse};
use crate::daemon_proof;

/// Returns every path with its handler.
fn routes() -> Vec<(&'static str, MethodRouter<Arc<Daemon>>)> {
    vec![
        ("/api/v1/version", get(version)),
        ("/api/v1/daemon", get(daemon_info::show)),
        ("/api/v1/shutdown", post(daemon_info::shut_down)),
        ("/api/v1/openapi.json", get(openapi)),
        ("/api/v1/servers", get(servers::list)),
        ("/api/v1/servers/{name}", get(servers::one)),
        ("/api/v1/servers/{name}/card", get(servers::card)),
        ("/api/v1/servers/{name}/start", post(servers::start)),
        ("/api/v1/servers/{name}/stop", post(servers::stop)),
        ("/api/v1/servers/{name}/reload", post(servers::reload)),
        ("/api/v1/servers/{name}/logs", get(logs::read)),
        ("/api/v1/logs", get(logs::read_all)),
        ("/api/v1/definitions", get(pins::definitions)),
        ("/api/v1/pins", get(pins::show)),
        ("/api/v1/pins/reload", post(pins::reload)),
        ("/api/v1/budgets", get(budgets::show)),
        ("/api/v1/explain", get(explain::show)),
        ("/api/v1/relay", get(relay::show)),
        ("/api/v1/config", get(config::show)),
        ("/api/v1/config/reload", post(config::reload)),
        ("/api/v1/tokens", get(tokens::list)),
        ("/api/v1/tokens/reload", post(tokens::reload)),
        ("/api/v1/audit", get(audit::read)),
        ("/api/v1/attach", get(attach::attach)),
        (daemon_proof::PATH, get(prove)),
    ]
}

/// Prefix of every path.
pub(super) const PREFIX: &str = "/api/";

/// Returns the router of all paths, behind the checks.
pub(super) fn router(daemon: &Arc<Daemon>) -> Router {
    let guarded = middleware::from_fn_with_state(Arc::clone(daemon), require_admin_token);
    let routes = routes().into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route));
    routes.layer(guarded).with_state(Arc::clone(daemon))
}

/// Refuses requests from web pages, and requests to names of other machines.
pub(super) fn refuse_foreign_origin() -> Response {
    let what = "the Host or Origin header names another machine";
    error_response(StatusCode::FORBIDDEN, "foreign-origin", what)
}

/// Admits requests with the admin token. The proof needs none: a command asks for it before it sends its token.
async fn require_admin_token(State(daemon): State<Arc<Daemon>>, request: Request, next: Next) -> Response {
    if request.uri().path() != daemon_proof::PATH && !daemon.admin_auth.is_authorized(request.headers()) {
        let what = "the admin token is missing or wrong; it stands in the state directory";
        let mut response = error_response(StatusCode::UNAUTHORIZED, "unauthorized", what);
        let scheme = header::HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        return response;
    }
    next.run(request).await
}

async fn version(State(daemon): State<Arc<Daemon>>) -> Response {
    let audit = audit::audit_state(&daemon);
    let (version, pid) = (env!("CARGO_PKG_VERSION").to_owned(), std::process::id());
    reply(StatusCode::OK, &VersionResponse { version, pid, audit: Some(audit) })
}

async fn prove(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    match QueryString(&query).get("nonce").and_then(|nonce| daemon.admin_auth.prove(nonce)) {
        Some(proof) => reply(StatusCode::OK, &proof),
        None => {
            error_response(StatusCode::BAD_REQUEST, "invalid-argument", "`nonce` is 64 hexadecimal digits")
        }
    }
}

async fn openapi() -> Response {
    reply_with(StatusCode::OK, Body::from(OPENAPI))
}

/// Returns a JSON response.
pub(super) fn reply(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => reply_with(status, Body::from(text)),
        // Only a map with keys that are no strings can fail, and there is none.
        Err(_) => reply_with(StatusCode::INTERNAL_SERVER_ERROR, Body::from("{}")),
    }
}

/// Returns a response whose JSON is serialized already.
fn reply_with(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns an error that belongs to no call.
fn error_response(status: StatusCode, code: &str, what: &str) -> Response {
    let mut response = reply(status, &ErrorResponse { error: ErrorBody::new(code, what) });
    response.extensions_mut().insert(RefusalReason(what.into()));
    response
}

/// Returns a call's error.
fn call_error_response(error: &CallError) -> Response {
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
        CallError::OutcomeUnknown { .. }
        | CallError::UpstreamProtocol { .. }
        | CallError::CardUnreadable { .. }
        | CallError::Rpc(_) => StatusCode::BAD_GATEWAY,
    };
    reply(status, &ErrorResponse { error: ErrorBody::from(error) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_path_is_described_and_every_described_path_is_there() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let described = described["paths"].as_object().unwrap().keys();
        let described: BTreeSet<&str> =
            described.map(String::as_str).filter(|path| path.starts_with("/api/")).collect();
        let routed: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(described, routed);
    }
}
