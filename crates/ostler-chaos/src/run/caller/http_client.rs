//! HTTP client of either era, at the endpoint of all servers or of one.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use ostler_chaos::history::{CallEnd, CallRoute, Ran};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::CallerDeadlines;
use super::answer::end_of;
use super::http_connection::{CallerConnection, CallerReply, HttpSendError};
use super::next_action::{Abandon, PlannedCall};

/// The revision of sessions.
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
/// Pause before a request that could not be sent is retried.
const PAUSE: Duration = Duration::from_millis(20);
/// An answer may still arrive this long after a cancellation.
const CANCELLED: Duration = Duration::from_secs(1);

/// An HTTP client.
#[derive(Debug)]
pub(crate) struct HttpClient {
    connection: CallerConnection,
    /// Carries cancellations while the other connection waits for an answer.
    cancel_connection: CallerConnection,
    way: CallRoute,
    token: String,
    port: u16,
    session: Option<String>,
    next_id: u64,
}

/// The end of a request without an answer.
enum SendFailure {
    NotSent,
    /// The session is gone, and the request needs a new one.
    NoSession,
    Unknown(String),
}

impl HttpClient {
    pub(crate) fn new(way: CallRoute, token: &str, port: u16) -> Self {
        let (connection, cancel_connection) = (CallerConnection::new(port), CallerConnection::new(port));
        Self { connection, cancel_connection, way, token: token.to_owned(), port, session: None, next_id: 1 }
    }

    /// Makes a call and waits for its end, or until the caller abandons it.
    pub(super) async fn call(&mut self, call: &PlannedCall, deadlines: CallerDeadlines) -> CallEnd {
        let params = json!({"name": self.name_of(call.server, call.tool), "arguments": call.arguments});
        loop {
            let outcome = self.send_call(call, params.clone(), deadlines).await;
            match outcome {
                Ok(reply) => return end_of_reply(&reply),
                Err(SendFailure::Unknown(why)) => return CallEnd::Unknown { why },
                Err(SendFailure::NoSession) => self.session = None,
                Err(SendFailure::NotSent) => {}
            }
            if Instant::now() + PAUSE >= deadlines.send_by {
                return CallEnd::Fail { kind: "no-connection".into(), code: 0, ran: Ran::No };
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the names of all tools, in the form of the endpoint of all servers.
    pub(crate) async fn list(&mut self, server: &str, deadline: Instant) -> Option<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let sending = self.send("tools/list", params, server);
            let reply = timeout_at(deadline, sending).await.ok()?.ok()?;
            let result = reply.message.get("result")?;
            let tools = result["tools"].as_array()?.iter().filter_map(|tool| tool["name"].as_str());
            names.extend(tools.map(|tool| match self.way {
                CallRoute::HttpFace => format!("{server}__{tool}"),
                _ => tool.to_owned(),
            }));
            cursor = result["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Some(names);
            }
        }
    }

    fn name_of(&self, server: &str, tool: &str) -> String {
        match self.way {
            CallRoute::HttpFace => tool.to_owned(),
            _ => format!("{server}__{tool}"),
        }
    }

    async fn send_call(
        &mut self,
        call: &PlannedCall,
        params: Value,
        deadlines: CallerDeadlines,
    ) -> Result<CallerReply, SendFailure> {
        let (began, deadline) = (Instant::now(), deadlines.answer_by);
        let left = match call.abandon {
            Abandon::Never => deadline,
            Abandon::After(wait) | Abandon::Cancel(wait) => (began + wait).min(deadline),
        };
        if self.way == CallRoute::HttpLegacy && self.session.is_none() {
            timeout_at(deadline, self.open_session()).await.unwrap_or(Err(SendFailure::NotSent))?;
            if Instant::now() >= deadlines.send_by {
                return Err(SendFailure::NotSent);
            }
        }
        let id = self.next_id;
        let request = self.request("tools/call", params, call.server);
        self.next_id += 1;
        let cancel = self.cancellation(id);
        let outcome = {
            let sending = self.connection.send(request);
            tokio::pin!(sending);
            tokio::select! {
                outcome = &mut sending => Some(outcome),
                () = sleep_until(left) => match (call.abandon, cancel) {
                    (Abandon::Cancel(_), Some(cancel)) => {
                        let end = (Instant::now() + CANCELLED).min(deadline);
                        let _ = timeout_at(end, self.cancel_connection.send(cancel)).await;
                        timeout_at(end, &mut sending).await.ok()
                    }
                    _ => None,
                }
            }
        };
        match outcome {
            Some(outcome) => self.classify(outcome),
            None => {
                self.connection.close();
                self.cancel_connection.close();
                Err(SendFailure::Unknown(
                    if left < deadline { "left" } else { "no answer by the deadline" }.into(),
                ))
            }
        }
    }

    async fn send(&mut self, method: &str, params: Value, server: &str) -> Result<CallerReply, SendFailure> {
        if self.way == CallRoute::HttpLegacy && self.session.is_none() {
            self.open_session().await?;
        }
        let request = self.request(method, params, server);
        self.next_id += 1;
        let outcome = self.connection.send(request).await;
        self.classify(outcome)
    }

    fn classify(&mut self, outcome: Result<CallerReply, HttpSendError>) -> Result<CallerReply, SendFailure> {
        match outcome {
            Err(HttpSendError::NotSent) => Err(SendFailure::NotSent),
            Err(HttpSendError::Sent(why)) => Err(SendFailure::Unknown(why)),
            Ok(reply)
                if reply.status == 404
                    && self.session.is_some()
                    && reply.message["error"]["data"].is_null() =>
            {
                Err(SendFailure::NoSession)
            }
            Ok(reply) => Ok(reply),
        }
    }

    /// Initializes a session. After any failure the call itself was not sent.
    async fn open_session(&mut self) -> Result<(), SendFailure> {
        let client = json!({"name": "chaos", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let reply =
            self.connection.send(self.post("/mcp", &body, &[])).await.map_err(|_| SendFailure::NotSent)?;
        let session = reply.headers.get("mcp-session-id").and_then(|value| value.to_str().ok());
        let Some(session) = session.map(str::to_owned) else { return Err(SendFailure::NotSent) };
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", LEGACY)];
        self.connection.send(self.post("/mcp", &body, &headers)).await.map_err(|_| SendFailure::NotSent)?;
        self.session = Some(session);
        Ok(())
    }

    fn cancellation(&self, id: u64) -> Option<Request<Full<Bytes>>> {
        let session = self.session.as_deref()?;
        let params = json!({"requestId": id, "reason": "enough"});
        let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        Some(self.post("/mcp", &body, &[("mcp-session-id", session), ("mcp-protocol-version", LEGACY)]))
    }

    fn request(&self, method: &str, mut params: Value, server: &str) -> Request<Full<Bytes>> {
        let id = self.next_id;
        if self.way == CallRoute::HttpLegacy {
            let session = self.session.as_deref().unwrap_or_default();
            let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            return self.post(
                "/mcp",
                &body,
                &[("mcp-session-id", session), ("mcp-protocol-version", LEGACY)],
            );
        }
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"},
        });
        let mut headers = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
        let name = params["name"].as_str().map(str::to_owned);
        if let Some(name) = &name {
            headers.push(("mcp-name", name));
        }
        let path = match self.way {
            CallRoute::HttpFace => format!("/servers/{server}/mcp"),
            _ => "/mcp".to_owned(),
        };
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(&path, &body, &headers)
    }

    fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
        let mut request = Request::post(path)
            .header("host", format!("127.0.0.1:{}", self.port))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // Paths and headers consist of names and numbers, so the request is always well-formed.
        request.body(Full::from(body.to_string())).unwrap_or_default()
    }
}

fn end_of_reply(reply: &CallerReply) -> CallEnd {
    if reply.message.is_object()
        && (reply.message.get("result").is_some() || reply.message["error"].is_object())
    {
        return end_of(&reply.message);
    }
    let code = i64::from(reply.status.as_u16());
    match reply.status.is_client_error() {
        true => CallEnd::Fail { kind: "http".into(), code, ran: Ran::No },
        false => CallEnd::Unknown { why: format!("HTTP {code} without an answer") },
    }
}

#[cfg(test)]
mod tests {
    use super::super::next_action;
    use super::*;
    use ostler_testkit::ReservedPort;

    #[tokio::test]
    async fn what_can_not_be_sent_is_given_up_well_before_an_answer_would_be() {
        let now = Instant::now();
        let deadlines = CallerDeadlines {
            send_by: now + Duration::from_millis(100),
            answer_by: now + Duration::from_secs(60),
        };
        let port = ReservedPort::new();
        for way in [CallRoute::HttpModern, CallRoute::HttpLegacy] {
            let mut client = HttpClient::new(way, "", port.address().port());
            let end = client.call(&next_action::probe("a", 1), deadlines).await;
            assert_eq!(end, CallEnd::Fail { kind: "no-connection".into(), code: 0, ran: Ran::No });
        }
        assert!(now.elapsed() < Duration::from_secs(30), "{:?}", now.elapsed());
    }
}
