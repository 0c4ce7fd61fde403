//! Routes of the servers' stderr output.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use axum::body::{Body, HttpBody};
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use ostler_core::error::CallError;
use ostler_gateway::LongStream;
use ostler_host::{LogReader, StderrLine};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::query::QueryString;
use super::{call_error_response, error_response};
use crate::api;
use crate::daemon::Daemon;
use crate::time_text::{TimeArg, Zone, rfc3339};

/// Interval of new lines for a reader that follows.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the lines of one server as text, without times.
pub(super) async fn read(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    respond(LogTails::new(daemon, Some(vec![name])), QueryString(&query), LogFormat::Text)
}

/// Returns the lines of several servers, or of all, as JSON: one object a line, ordered by time.
pub(super) async fn read_all(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let names = QueryString(&query).get("servers").filter(|names| !names.is_empty());
    let names = names.map(|names| names.split(',').map(str::to_owned).collect());
    respond(LogTails::new(daemon, names), QueryString(&query), LogFormat::Json)
}

fn respond(mut tails: LogTails, query: QueryString<'_>, format: LogFormat) -> Response {
    let wanted = match LogQuery::read(query) {
        Ok(wanted) => wanted,
        Err(what) => return error_response(StatusCode::BAD_REQUEST, "invalid-argument", &what),
    };
    let first = match tails.open() {
        Ok(()) => wanted.select(tails.read().unwrap_or_default()),
        Err(error) => return call_error_response(&error),
    };
    let body = if query.is_set("follow") {
        let mut every = interval(POLL_INTERVAL);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Body::new(FollowBody { tails, every, format, first: Some(first) })
    } else {
        Body::from(format.write(first))
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    // The response lasts as long as its reader wants, and no longer than the daemon.
    response.extensions_mut().insert(LongStream);
    let kind = header::HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Selection of the kept lines.
struct LogQuery {
    since: Option<SystemTime>,
    last: Option<usize>,
}

impl LogQuery {
    fn read(query: QueryString<'_>) -> Result<Self, String> {
        let since =
            query.get("since").map(TimeArg::parse).transpose().map_err(|why| format!("`since`: {why}"))?;
        let last =
            query.get("lines").map(str::parse).transpose().map_err(|_| "`lines` is a number".to_owned())?;
        Ok(Self { since: since.map(|when| when.to_system_time(Zone::Utc)), last })
    }

    fn select(&self, mut lines: Vec<ServerLine>) -> Vec<ServerLine> {
        if let Some(since) = self.since {
            lines.retain(|line| line.log.at >= since);
        }
        let Some(last) = self.last else { return lines };
        // Start marks are not the server's lines.
        let mut own = lines.iter().enumerate().rev().filter(|(_, line)| !line.log.is_start);
        let first = match last.checked_sub(1) {
            Some(before) => own.nth(before).map_or(0, |(at, _)| at),
            None => lines.len(),
        };
        lines.split_off(first)
    }
}

/// Line and its server.
struct ServerLine {
    server: Arc<str>,
    log: StderrLine,
}

/// Readers of the selected servers.
struct LogTails {
    daemon: Arc<Daemon>,
    /// Named servers; `None` for all servers of the config, also those that an edit adds.
    names: Option<Vec<String>>,
    open: BTreeMap<Arc<str>, LogReader>,
}

impl LogTails {
    fn new(daemon: Arc<Daemon>, names: Option<Vec<String>>) -> Self {
        Self { daemon, names, open: BTreeMap::new() }
    }

    /// Opens readers. Fails if a named server does not exist.
    fn open(&mut self) -> Result<(), CallError> {
        for name in self.names.iter().flatten() {
            self.open.insert(name.as_str().into(), self.daemon.host.logs(name)?);
        }
        Ok(())
    }

    /// Reads new lines, ordered by time; `None` once every named server is gone.
    fn read(&mut self) -> Option<Vec<ServerLine>> {
        if self.names.is_none() {
            for name in self.daemon.config_state.names() {
                if self.open.contains_key(name.as_str()) {
                    continue;
                }
                if let Ok(reader) = self.daemon.host.logs(name.as_str()) {
                    self.open.insert(name.as_str().into(), reader);
                }
            }
        }
        let mut lines = Vec::new();
        self.open.retain(|name, reader| match reader.read() {
            Ok(read) => {
                lines.extend(read.into_iter().map(|log| ServerLine { server: Arc::clone(name), log }));
                true
            }
            Err(_) => false,
        });
        if self.names.is_some() && self.open.is_empty() {
            return None;
        }
        lines.sort_by_key(|line| line.log.at);
        Some(lines)
    }
}

/// Format of lines in a response.
#[derive(Clone, Copy)]
enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/x-ndjson",
        }
    }

    fn write(self, lines: Vec<ServerLine>) -> Bytes {
        let mut text = String::new();
        for ServerLine { server, log } in lines {
            match self {
                Self::Text => text.push_str(&log.text),
                Self::Json => {
                    let (server, at) = (Some(server.to_string()), Some(rfc3339(log.at)));
                    let line = api::ServerLogLine { server, at, line: log.text, start: log.is_start };
                    // Strings alone: serializing them can't fail.
                    text.push_str(&serde_json::to_string(&line).unwrap_or_default());
                }
            }
            text.push('\n');
        }
        text.into()
    }
}

/// Body that ends when no server is left, or the reader is gone.
struct FollowBody {
    tails: LogTails,
    every: Interval,
    format: LogFormat,
    /// Lines that were kept before the request.
    first: Option<Vec<ServerLine>>,
}

impl HttpBody for FollowBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let format = self.format;
        // Sent even if it is empty, so that the head of the response is sent.
        if let Some(lines) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(format.write(lines)))));
        }
        loop {
            ready!(self.every.poll_tick(context));
            match self.tails.read() {
                Some(lines) if lines.is_empty() => {}
                Some(lines) => return Poll::Ready(Some(Ok(Frame::data(format.write(lines))))),
                None => return Poll::Ready(None),
            }
        }
    }
}
