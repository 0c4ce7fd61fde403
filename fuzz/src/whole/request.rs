//! Requests over HTTP, without a socket.
//!
//! An input is a row of requests with `---` between them: `METHOD PATH`, a header to a line, a
//! blank line and a body. `SESSION` stands for the session that was opened last.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ostler_gateway::{AuthOutcome, AuthRequest, Authenticate, Gateway, GatewayOptions, Unauthorized};
use ostler_host::Caller;
use ostler_wire::Era;
use serde_json::Value;

use super::{META, replace, run_until_stalled, server};

/// More requests find nothing new.
const MAX_REQUESTS: usize = 6;
/// A client leaves a stream after this long without data.
const SILENCE: Duration = Duration::from_millis(1);

/// Serves the requests of `input`, and a good one after them.
pub fn answer(input: &[u8]) {
    super::run(async {
        let (host, executed) = server::host(Era::Modern, Arc::new(server::default_answer)).await;
        let options = GatewayOptions {
            authenticate: Arc::new(RoleAuthenticator),
            page_size: 1,
            ..GatewayOptions::default()
        };
        let app = TowerToHyperService::new(Gateway::new(host, options).router());
        let mut session = String::new();
        for part in parts(input).take(MAX_REQUESTS) {
            let part = replace(part, b"SESSION", session.as_bytes());
            let Some(request) = FuzzRequest::read(&part) else { continue };
            let response = FuzzResponse::read(app.call(request.request()).await).await;
            run_until_stalled().await;
            request.check(&response, &executed.take());
            session = response.session.unwrap_or(session);
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"good","method":"tools/call","params":{{"name":"s__echo","arguments":{{"n":1}},{META}}}}}"#
        );
        let good = format!(
            "POST /mcp\nhost: localhost\nauthorization: Bearer few\ncontent-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: s__echo\n\n{body}"
        );
        let good = FuzzRequest::read(good.as_bytes()).expect("it is a request");
        let response = FuzzResponse::read(app.call(good.request()).await).await;
        let text = String::from_utf8_lossy(&response.body);
        assert!(text.contains(r#""structuredContent":{"n":1}"#) && text.contains(r#""id":"good""#), "{text}");
        assert_eq!(executed.take(), [server::ECHO], "a good call is carried out once");
    });
}

/// Authenticator whose tokens are the names of the roles.
struct RoleAuthenticator;

impl Authenticate for RoleAuthenticator {
    fn check(&self, request: &AuthRequest<'_>) -> AuthOutcome {
        match request.bearer() {
            Ok(Some(role @ ("all" | "few"))) => AuthOutcome::Accepted(Caller::new("ann", role).into()),
            Ok(_) => AuthOutcome::Refused(Unauthorized::invalid("no such token")),
            Err(why) => AuthOutcome::Refused(why),
        }
    }
}

/// A request, and the expectations that follow from it.
struct FuzzRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl FuzzRequest {
    fn read(input: &[u8]) -> Option<Self> {
        let end = input.windows(2).position(|pair| pair == b"\n\n")?;
        let (head, body) = (&input[..end], input[end + 2..].to_vec());
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
        let (method, uri) = (Method::from_bytes(first.next()?).ok()?, Uri::try_from(first.next()?).ok()?);
        let mut headers = HeaderMap::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            headers.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
        }
        Some(Self { method, uri, headers, body })
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        (*request.method_mut(), *request.uri_mut()) = (self.method.clone(), self.uri.clone());
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Returns the role of the only credential.
    fn role(&self) -> Option<&'static str> {
        let mut shown = self.headers.get_all("authorization").iter();
        let (value, None) = (shown.next()?, shown.next()) else { return None };
        let value = value.to_str().ok()?.to_ascii_lowercase();
        ["all", "few"].into_iter().find(|role| value.strip_prefix("bearer ").map(str::trim) == Some(role))
    }

    /// Returns whether the request is for another machine, or comes from a foreign page.
    fn is_foreign(&self) -> bool {
        let names = ["host", "origin"].into_iter().flat_map(|name| self.headers.get_all(name));
        let is_near = |value: &HeaderValue| {
            let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            ["localhost", "127.", "::1"].iter().any(|near| value.contains(near))
        };
        !names.into_iter().all(is_near)
    }

    /// Checks the response, and the tools that were executed for the request.
    fn check(&self, response: &FuzzResponse, executed: &[String]) {
        let text = || String::from_utf8_lossy(&response.body).into_owned();
        assert_ne!(response.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", text());
        assert!(!response.is_json || response.json.is_some(), "no JSON: {}", text());
        let is_refused = response.status.is_client_error() || response.status.is_server_error();
        assert!(
            !is_refused || executed.is_empty(),
            "{} and done all the same: {executed:?}",
            response.status
        );
        match self.role() {
            _ if self.is_foreign() => assert!(executed.is_empty(), "for a foreign page: {executed:?}"),
            None => assert!(executed.is_empty(), "for nobody: {executed:?}"),
            Some("few") => {
                assert!(executed.iter().all(|tool| tool == server::ECHO), "not allowed: {executed:?}")
            }
            Some(_) => {}
        }
        let Ok(body) = serde_json::from_slice::<Value>(&self.body) else { return };
        let most = body.as_array().map_or(1, Vec::len);
        assert!(executed.len() <= most, "{} calls for {most} messages", executed.len());
        // A doubled or escaped `id` makes another request.
        let is_plain = !self.body.contains(&b'\\') && count(&self.body, br#""id""#) == 1;
        if let (true, Some(Value::Object(answer)), Value::Object(body)) = (is_plain, &response.json, &body) {
            let id = answer.get("id").unwrap_or(&Value::Null);
            assert!(id.is_null() || Some(id) == body.get("id"), "response {id}: {body:?}");
        }
    }
}

/// A response, with its body read.
struct FuzzResponse {
    status: StatusCode,
    is_json: bool,
    session: Option<String>,
    body: Vec<u8>,
    json: Option<Value>,
}

impl FuzzResponse {
    async fn read<E>(response: Result<http::Response<Body>, E>) -> Self {
        let Ok(response) = response else { unreachable!("a router does not fail") };
        let (head, mut rest) = response.into_parts();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let mut body = Vec::new();
        while let Ok(Some(frame)) = tokio::time::timeout(SILENCE, rest.frame()).await {
            let frame = frame.expect("a body is whole");
            body.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        Self {
            status: head.status,
            is_json: header("content-type") == Some("application/json") && !body.is_empty(),
            session: header("mcp-session-id").map(str::to_owned),
            json: serde_json::from_slice(&body).ok(),
            body,
        }
    }
}

fn count(text: &[u8], wanted: &[u8]) -> usize {
    text.windows(wanted.len()).filter(|window| *window == wanted).count()
}

fn parts(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(input);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.windows(5).position(|window| window == b"\n---\n") else { return rest.take() };
        rest = Some(&text[at + 5..]);
        Some(&text[..at])
    })
}
