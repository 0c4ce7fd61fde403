//! Requests over HTTP, without a socket.
//!
//! An input is a row of requests with `---` between them: `METHOD PATH`, a header to a line, a blank line and a
//! body. `SESSION` stands for the session that was opened last.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ostler_gateway::{Authenticate, Check, Gateway, GatewayOptions, Knock, Unauthorized};
use ostler_host::Caller;
use ostler_wire::Era;
use serde_json::Value;

use super::{META, replace, server, settle};

/// More requests than these say nothing new.
const MOST: usize = 6;
/// A stream may go on for as long as its client wants; this one leaves when nothing is said.
const SILENCE: Duration = Duration::from_millis(1);

/// Serves the requests of `input`, and a good one after them.
pub fn answer(input: &[u8]) {
    super::run(async {
        let (host, deeds) = server::host(Era::Modern, Arc::new(server::honest)).await;
        let options =
            GatewayOptions { authenticate: Arc::new(Tokens), page_size: 1, ..GatewayOptions::default() };
        let app = TowerToHyperService::new(Gateway::new(host, options).router());
        let mut session = String::new();
        for part in parts(input).take(MOST) {
            let part = replace(part, b"SESSION", session.as_bytes());
            let Some(asked) = Asked::read(&part) else { continue };
            let answered = Answered::of(app.call(asked.request()).await).await;
            settle().await;
            asked.judge(&answered, &deeds.take());
            session = answered.session.unwrap_or(session);
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"good","method":"tools/call","params":{{"name":"s__echo","arguments":{{"n":1}},{META}}}}}"#
        );
        let good = format!(
            "POST /mcp\nhost: localhost\nauthorization: Bearer few\ncontent-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\nmcp-method: tools/call\nmcp-name: s__echo\n\n{body}"
        );
        let good = Asked::read(good.as_bytes()).expect("it is a request");
        let answered = Answered::of(app.call(good.request()).await).await;
        let text = String::from_utf8_lossy(&answered.body);
        assert!(text.contains(r#""structuredContent":{"n":1}"#) && text.contains(r#""id":"good""#), "{text}");
        assert_eq!(deeds.take(), [server::ECHO], "a good call is carried out once");
    });
}

/// Whoever shows the name of a role has it, and nobody else has any.
struct Tokens;

impl Authenticate for Tokens {
    fn check(&self, knock: &Knock<'_>) -> Check {
        match knock.bearer() {
            Ok(Some(role @ ("all" | "few"))) => Check::Admitted(Caller::new("ann", role).into()),
            Ok(_) => Check::Refused(Unauthorized::invalid("no such token")),
            Err(why) => Check::Refused(why),
        }
    }
}

/// A request, to be sent and to be judged by.
struct Asked {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Asked {
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

    /// The role that the only credential gives.
    fn role(&self) -> Option<&'static str> {
        let mut shown = self.headers.get_all("authorization").iter();
        let (value, None) = (shown.next()?, shown.next()) else { return None };
        let value = value.to_str().ok()?.to_ascii_lowercase();
        ["all", "few"].into_iter().find(|role| value.strip_prefix("bearer ").map(str::trim) == Some(role))
    }

    /// Whether it is for another machine, or a page from elsewhere has made it.
    fn is_foreign(&self) -> bool {
        let names = ["host", "origin"].into_iter().flat_map(|name| self.headers.get_all(name));
        let is_near = |value: &HeaderValue| {
            let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            ["localhost", "127.", "::1"].iter().any(|near| value.contains(near))
        };
        !names.into_iter().all(is_near)
    }

    /// What must hold of every answer, and of what was done for it.
    fn judge(&self, answered: &Answered, deeds: &[String]) {
        let said = || String::from_utf8_lossy(&answered.body).into_owned();
        assert_ne!(answered.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", said());
        assert!(!answered.is_json || answered.json.is_some(), "no JSON: {}", said());
        let is_refused = answered.status.is_client_error() || answered.status.is_server_error();
        assert!(!is_refused || deeds.is_empty(), "{} and done all the same: {deeds:?}", answered.status);
        match self.role() {
            _ if self.is_foreign() => assert!(deeds.is_empty(), "for a foreign page: {deeds:?}"),
            None => assert!(deeds.is_empty(), "for nobody: {deeds:?}"),
            Some("few") => assert!(deeds.iter().all(|deed| deed == server::ECHO), "not allowed: {deeds:?}"),
            Some(_) => {}
        }
        let Ok(body) = serde_json::from_slice::<Value>(&self.body) else { return };
        let most = body.as_array().map_or(1, Vec::len);
        assert!(deeds.len() <= most, "{} calls for {most} messages", deeds.len());
        // A name that is written twice, or in another way, is another question.
        let is_plain = !self.body.contains(&b'\\') && count(&self.body, br#""id""#) == 1;
        if let (true, Some(Value::Object(answer)), Value::Object(body)) = (is_plain, &answered.json, &body) {
            let id = answer.get("id").unwrap_or(&Value::Null);
            assert!(id.is_null() || Some(id) == body.get("id"), "answered {id}: {body:?}");
        }
    }
}

/// What came back.
struct Answered {
    status: StatusCode,
    is_json: bool,
    session: Option<String>,
    body: Vec<u8>,
    json: Option<Value>,
}

impl Answered {
    async fn of<E>(response: Result<http::Response<Body>, E>) -> Self {
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
