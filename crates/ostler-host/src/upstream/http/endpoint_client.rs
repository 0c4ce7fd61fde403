//! Endpoint client: sends requests and sorts responses by status and media type.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use ostler_wire::headers::{LAST_EVENT_ID, SESSION_ID};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::client_builder::MAX_REDIRECTS;
use super::counters::HttpCounters;
use super::event_stream::{EventStream, StreamPosition};
use super::faults;
use crate::loop_detection::{LoopDetector, VIA_HEADER};

/// Bytes of a refusal that are read: enough for any error message.
const MAX_REFUSAL: usize = 64 << 10;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Client of one endpoint.
#[derive(Clone)]
pub(crate) struct EndpointClient {
    client: Client,
    pub(crate) url: Url,
    /// The operator's headers, sent with every request. They hold credentials and are never shown.
    headers: HeaderMap,
    /// Upper bound on one response or event, in bytes.
    pub(crate) cap: usize,
    pub(crate) counters: Arc<HttpCounters>,
    /// Names the hosts that the request passes, in every request.
    loop_detector: Arc<LoopDetector>,
}

/// Outcome of a request.
pub(crate) enum HttpReply {
    /// One JSON text.
    Json(Bytes),
    /// Events, the response among them.
    Events(Box<EventStream>),
    /// Accepted, without a response.
    Accepted,
    /// An error status, and its body.
    Refused(StatusCode, Bytes),
}

impl EndpointClient {
    pub(crate) fn new(
        client: Client,
        url: Url,
        headers: HeaderMap,
        (cap, loop_detector): (usize, Arc<LoopDetector>),
    ) -> Self {
        Self { client, url, headers, cap, counters: Arc::new(HttpCounters::new()), loop_detector }
    }

    /// Returns a client of another path of the same origin.
    pub(crate) fn with_url(&self, url: Url) -> Self {
        Self { url, ..self.clone() }
    }

    /// Sends one message. Dropping the future closes its connection.
    pub(crate) async fn post(&self, body: impl Into<Bytes>, headers: HeaderMap) -> Result<HttpReply, Fault> {
        self.post_opening_session(body, headers).await.map(|(reply, _)| reply)
    }

    /// Sends as [`post`](Self::post); returns the reply and the session id in its headers.
    pub(crate) async fn post_opening_session(
        &self,
        body: impl Into<Bytes>,
        headers: HeaderMap,
    ) -> Result<(HttpReply, Option<HeaderValue>), Fault> {
        let mut headers = self.with_headers(headers);
        headers.insert(ACCEPT, BOTH);
        headers.insert(CONTENT_TYPE, JSON);
        let request = self.client.post(self.url.clone()).headers(headers).body(body.into());
        let response = request.send().await.map_err(faults::request_fault)?;
        let session = response.headers().get(SESSION_ID).cloned();
        Ok((self.classify_response(response, StreamPosition::default()).await?, session))
    }

    /// Opens a stream; a position resumes one that was interrupted.
    pub(crate) async fn get(&self, headers: HeaderMap, place: StreamPosition) -> Result<HttpReply, Fault> {
        let mut headers = self.with_headers(headers);
        headers.insert(ACCEPT, EVENTS);
        let from = place.last_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok());
        if let Some(from) = from {
            headers.insert(header(LAST_EVENT_ID), from);
        }
        let request = self.client.get(self.url.clone()).headers(headers);
        let response = request.send().await.map_err(faults::request_fault)?;
        self.classify_response(response, place).await
    }

    /// Reads one JSON document of at most `cap` bytes, and its headers. Redirects are followed within the origin
    /// alone, since the operator's headers go along.
    pub(crate) async fn get_document(
        &self,
        kind: &'static str,
        cap: usize,
    ) -> Result<(HeaderMap, Bytes), FaultKind> {
        let mut url = self.url.clone();
        let mut redirects = 0;
        loop {
            let mut headers = self.with_headers(HeaderMap::new());
            headers.insert(ACCEPT, HeaderValue::from_static(kind));
            let request = self.client.get(url.clone()).headers(headers);
            let response = request.send().await.map_err(|error| faults::request_fault(error).kind)?;
            let status = response.status();
            if status.is_redirection() {
                redirects += 1;
                let next = response
                    .headers()
                    .get(LOCATION)
                    .and_then(|to| response.url().join(to.to_str().ok()?).ok());
                let next = next.filter(|next| next.origin() == self.url.origin());
                url = next.filter(|_| redirects <= MAX_REDIRECTS).ok_or_else(|| FaultKind::Status {
                    code: status.as_u16(),
                    text: "redirects are followed within one origin, three at most".into(),
                })?;
                continue;
            }
            if let Some(kind) = faults::auth_or_pause(status, response.headers()) {
                return Err(kind);
            }
            if !status.is_success() {
                let body = self.read(response, MAX_REFUSAL).await.unwrap_or_default();
                return Err(faults::status_fault(status, &body).kind);
            }
            let found = media_type(response.headers());
            if !found.as_deref().is_some_and(|found| found == kind || found == "application/json") {
                return Err(FaultKind::ContentType(found.unwrap_or_else(|| "no content type".into())));
            }
            let headers = response.headers().clone();
            return Ok((headers, self.read(response, cap).await?));
        }
    }

    /// Ends a legacy session. Servers need not support it, so the result is ignored.
    pub(crate) async fn delete(&self, headers: HeaderMap) {
        let request =
            self.client.request(Method::DELETE, self.url.clone()).headers(self.with_headers(headers));
        let _ = request.send().await;
    }

    /// Merges the operator's headers and the protocol's; the protocol's win.
    fn with_headers(&self, headers: HeaderMap) -> HeaderMap {
        let mut all = self.headers.clone();
        all.extend(headers);
        if let Ok(via) = HeaderValue::from_str(&self.loop_detector.header_value()) {
            all.insert(header(VIA_HEADER), via);
        }
        all
    }

    /// Returns whether the operator has set a header.
    pub(crate) fn has_configured_header(&self, name: &HeaderName) -> bool {
        self.headers.contains_key(name)
    }

    async fn classify_response(&self, response: Response, place: StreamPosition) -> Result<HttpReply, Fault> {
        self.counters.note_read();
        let status = response.status();
        if let Some(kind) = faults::auth_or_pause(status, response.headers()) {
            return Err(Fault::rejected(kind));
        }
        let kind = media_type(response.headers());
        match (status.is_success(), kind.as_deref()) {
            (false, _) => {
                // An unreadable body of a refusal is treated as empty.
                let body = self.read(response, MAX_REFUSAL).await.unwrap_or_default();
                Ok(HttpReply::Refused(status, body))
            }
            (true, Some("application/json")) => match self.read(response, self.cap).await {
                Ok(body) if body.is_empty() => Ok(HttpReply::Accepted),
                Ok(body) => Ok(HttpReply::Json(body)),
                Err(kind) => Err(faults::reading_fault(kind)),
            },
            (true, Some("text/event-stream")) => {
                let stream = EventStream::new(response, self.cap, Arc::clone(&self.counters), place);
                Ok(HttpReply::Events(Box::new(stream)))
            }
            (true, _) if matches!(status.as_u16(), 202 | 204) => Ok(HttpReply::Accepted),
            (true, None) if response.content_length() == Some(0) => Ok(HttpReply::Accepted),
            (true, kind) => {
                let kind = kind.unwrap_or("no content type").to_owned();
                let kind = FaultKind::ContentType(kind.to_string());
                Err(Fault { delivery: Delivery::Answered, kind })
            }
        }
    }

    /// Reads a body, up to a limit that counts after decompression.
    async fn read(&self, mut response: Response, cap: usize) -> Result<Bytes, FaultKind> {
        let mut chunk = async || match response.chunk().await {
            Ok(chunk) => Ok(chunk.inspect(|_| self.counters.note_read())),
            Err(error) => Err(faults::body_fault_kind(error)),
        };
        let Some(first) = chunk().await? else { return Ok(Bytes::new()) };
        let mut whole: Option<BytesMut> = None;
        let mut length = first.len();
        while length <= cap {
            let Some(next) = chunk().await? else {
                // A body that came in one piece is not copied.
                return Ok(whole.map_or(first, BytesMut::freeze));
            };
            length += next.len();
            whole.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&next);
        }
        Err(FaultKind::Oversize(cap))
    }
}

/// Returns the media type of a response, without its parameters.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// Makes the name of a header from a valid constant.
pub(crate) fn header(name: &'static str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).unwrap_or(ACCEPT)
}

impl std::fmt::Debug for EndpointClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Road").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}
