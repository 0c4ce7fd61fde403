//! A client over HTTP, of either era, at the endpoint of all servers or of one.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use ostler_chaos::history::{End, Ran, Way};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Patience;
use super::answer::end_of;
use super::line::{Broken, Line, Told};
use super::plan::{Call, Leaving};

/// The revision of sessions.
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
/// Before a request that could not be sent is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer may still come after a cancellation.
const CANCELLED: Duration = Duration::from_secs(1);

/// One client.
#[derive(Debug)]
pub(crate) struct HttpClient {
    line: Line,
    /// For what is said while the other connection waits.
    aside: Line,
    way: Way,
    token: String,
    port: u16,
    session: Option<String>,
    next_id: u64,
}

/// How a request ended, other than with an answer.
enum Stop {
    NotSent,
    /// The session is gone; another one is needed.
    NoSession,
    Unknown(String),
}

impl HttpClient {
    pub(crate) fn new(way: Way, token: &str, port: u16) -> Self {
        let (line, aside) = (Line::to(port), Line::to(port));
        Self { line, aside, way, token: token.to_owned(), port, session: None, next_id: 1 }
    }

    /// Makes a call and stays with it to its end, or for as long as the caller is patient.
    pub(super) async fn call(&mut self, call: &Call, patience: Patience) -> End {
        let params = json!({"name": self.name_of(call.server, call.tool), "arguments": call.arguments});
        loop {
            let asked = self.ask_leaving(call, params.clone(), patience).await;
            match asked {
                Ok(told) => return end_of_told(&told),
                Err(Stop::Unknown(why)) => return End::Unknown { why },
                Err(Stop::NoSession) => self.session = None,
                Err(Stop::NotSent) => {}
            }
            if Instant::now() + PAUSE >= patience.to_send {
                return End::Fail { kind: "no-connection".into(), code: 0, ran: Ran::No };
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The names of all tools, as the endpoint of all servers has them.
    pub(crate) async fn list(&mut self, server: &str, deadline: Instant) -> Option<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let asking = self.ask("tools/list", params, server);
            let told = timeout_at(deadline, asking).await.ok()?.ok()?;
            let result = told.message.get("result")?;
            let tools = result["tools"].as_array()?.iter().filter_map(|tool| tool["name"].as_str());
            names.extend(tools.map(|tool| match self.way {
                Way::HttpFace => format!("{server}__{tool}"),
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
            Way::HttpFace => tool.to_owned(),
            _ => format!("{server}__{tool}"),
        }
    }

    async fn ask_leaving(&mut self, call: &Call, params: Value, patience: Patience) -> Result<Told, Stop> {
        let (began, deadline) = (Instant::now(), patience.to_hear);
        let left = match call.leaving {
            Leaving::Never => deadline,
            Leaving::After(stay) | Leaving::Cancel(stay) => (began + stay).min(deadline),
        };
        if self.way == Way::HttpLegacy && self.session.is_none() {
            timeout_at(deadline, self.open()).await.unwrap_or(Err(Stop::NotSent))?;
            if Instant::now() >= patience.to_send {
                return Err(Stop::NotSent);
            }
        }
        let id = self.next_id;
        let request = self.request("tools/call", params, call.server);
        self.next_id += 1;
        let cancel = self.cancellation(id);
        let asked = {
            let asking = self.line.ask(request);
            tokio::pin!(asking);
            tokio::select! {
                asked = &mut asking => Some(asked),
                () = sleep_until(left) => match (call.leaving, cancel) {
                    (Leaving::Cancel(_), Some(cancel)) => {
                        let end = (Instant::now() + CANCELLED).min(deadline);
                        let _ = timeout_at(end, self.aside.ask(cancel)).await;
                        timeout_at(end, &mut asking).await.ok()
                    }
                    _ => None,
                }
            }
        };
        match asked {
            Some(asked) => self.judge(asked),
            None => {
                self.line.hang_up();
                self.aside.hang_up();
                Err(Stop::Unknown(if left < deadline { "left" } else { "no answer by the deadline" }.into()))
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value, server: &str) -> Result<Told, Stop> {
        if self.way == Way::HttpLegacy && self.session.is_none() {
            self.open().await?;
        }
        let request = self.request(method, params, server);
        self.next_id += 1;
        let asked = self.line.ask(request).await;
        self.judge(asked)
    }

    fn judge(&mut self, asked: Result<Told, Broken>) -> Result<Told, Stop> {
        match asked {
            Err(Broken::NotSent) => Err(Stop::NotSent),
            Err(Broken::Sent(why)) => Err(Stop::Unknown(why)),
            Ok(told)
                if told.status == 404
                    && self.session.is_some()
                    && told.message["error"]["data"].is_null() =>
            {
                Err(Stop::NoSession)
            }
            Ok(told) => Ok(told),
        }
    }

    /// Opens a session. Whatever goes wrong, the call itself was not sent.
    async fn open(&mut self) -> Result<(), Stop> {
        let client = json!({"name": "chaos", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let told = self.line.ask(self.post("/mcp", &body, &[])).await.map_err(|_| Stop::NotSent)?;
        let session = told.headers.get("mcp-session-id").and_then(|value| value.to_str().ok());
        let Some(session) = session.map(str::to_owned) else { return Err(Stop::NotSent) };
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", LEGACY)];
        self.line.ask(self.post("/mcp", &body, &headers)).await.map_err(|_| Stop::NotSent)?;
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
        if self.way == Way::HttpLegacy {
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
            Way::HttpFace => format!("/servers/{server}/mcp"),
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
        // Paths and headers are made of names and numbers here, so the request is always well-formed.
        request.body(Full::from(body.to_string())).unwrap_or_default()
    }
}

fn end_of_told(told: &Told) -> End {
    if told.message.is_object() && (told.message.get("result").is_some() || told.message["error"].is_object())
    {
        return end_of(&told.message);
    }
    let code = i64::from(told.status.as_u16());
    match told.status.is_client_error() {
        true => End::Fail { kind: "http".into(), code, ran: Ran::No },
        false => End::Unknown { why: format!("HTTP {code} without an answer") },
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use ostler_testkit::HeldPort;

    #[tokio::test]
    async fn what_can_not_be_sent_is_given_up_well_before_an_answer_would_be() {
        let now = Instant::now();
        let patience =
            Patience { to_send: now + Duration::from_millis(100), to_hear: now + Duration::from_secs(60) };
        let port = HeldPort::new();
        for way in [Way::HttpModern, Way::HttpLegacy] {
            let mut client = HttpClient::new(way, "", port.address().port());
            let end = client.call(&plan::probe("a", 1), patience).await;
            assert_eq!(end, End::Fail { kind: "no-connection".into(), code: 0, ran: Ran::No });
        }
        assert!(now.elapsed() < Duration::from_secs(30), "{:?}", now.elapsed());
    }
}
