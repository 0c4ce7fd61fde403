//! The stderr output of servers.

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
use ostler_host::{LogLine, LogReader};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::query::Query;
use super::{fail, refuse};
use crate::api;
use crate::clock::{When, Zone, rfc3339};
use crate::daemon::Daemon;

/// How often a reader that follows is sent new lines.
const EVERY: Duration = Duration::from_millis(200);

/// Sends the lines of one server as text, without times.
pub(super) async fn read(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    respond(Tails::new(daemon, Some(vec![name])), Query(&query), Format::Text)
}

/// Sends the lines of several servers, or of all, as JSON: one object a line, ordered by time.
pub(super) async fn read_all(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let names = Query(&query).get("servers").filter(|names| !names.is_empty());
    let names = names.map(|names| names.split(',').map(str::to_owned).collect());
    respond(Tails::new(daemon, names), Query(&query), Format::Json)
}

fn respond(mut tails: Tails, query: Query<'_>, format: Format) -> Response {
    let wanted = match Wanted::read(query) {
        Ok(wanted) => wanted,
        Err(what) => return refuse(StatusCode::BAD_REQUEST, "invalid-argument", &what),
    };
    let first = match tails.open() {
        Ok(()) => wanted.select(tails.read().unwrap_or_default()),
        Err(error) => return fail(&error),
    };
    let body = if query.is_set("follow") {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Body::new(Following { tails, every, format, first: Some(first) })
    } else {
        Body::from(format.write(first))
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    // It lasts as long as its reader wants, and no longer than the daemon.
    response.extensions_mut().insert(LongStream);
    let kind = header::HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Which of the lines that are kept are sent.
struct Wanted {
    since: Option<SystemTime>,
    last: Option<usize>,
}

impl Wanted {
    fn read(query: Query<'_>) -> Result<Self, String> {
        let since =
            query.get("since").map(When::parse).transpose().map_err(|why| format!("`since`: {why}"))?;
        let last =
            query.get("lines").map(str::parse).transpose().map_err(|_| "`lines` is a number".to_owned())?;
        Ok(Self { since: since.map(|when| when.moment(Zone::Utc)), last })
    }

    fn select(&self, mut lines: Vec<Line>) -> Vec<Line> {
        if let Some(since) = self.since {
            lines.retain(|line| line.log.at >= since);
        }
        let excess = self.last.map_or(0, |last| lines.len().saturating_sub(last));
        lines.split_off(excess)
    }
}

/// A line and its server.
struct Line {
    server: Arc<str>,
    log: LogLine,
}

/// The readers of the servers that are wanted.
struct Tails {
    daemon: Arc<Daemon>,
    /// All servers of the config if absent, also those that an edit brings.
    names: Option<Vec<String>>,
    open: BTreeMap<Arc<str>, LogReader>,
}

impl Tails {
    fn new(daemon: Arc<Daemon>, names: Option<Vec<String>>) -> Self {
        Self { daemon, names, open: BTreeMap::new() }
    }

    /// Opens readers. A server that was named must exist.
    fn open(&mut self) -> Result<(), CallError> {
        for name in self.names.iter().flatten() {
            self.open.insert(name.as_str().into(), self.daemon.host.logs(name)?);
        }
        Ok(())
    }

    /// Reads new lines, ordered by time; `None` once every server that was named is gone.
    fn read(&mut self) -> Option<Vec<Line>> {
        if self.names.is_none() {
            for name in self.daemon.roster.names() {
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
                lines.extend(read.into_iter().map(|log| Line { server: Arc::clone(name), log }));
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

/// How lines are written.
#[derive(Clone, Copy)]
enum Format {
    Text,
    Json,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/x-ndjson",
        }
    }

    fn write(self, lines: Vec<Line>) -> Bytes {
        let mut text = String::new();
        for Line { server, log } in lines {
            match self {
                Self::Text => text.push_str(&log.text),
                Self::Json => {
                    let (server, at) = (Some(server.to_string()), Some(rfc3339(log.at)));
                    let line = api::LogLine { server, at, line: log.text };
                    // Strings alone: nothing in it can't be written.
                    text.push_str(&serde_json::to_string(&line).unwrap_or_default());
                }
            }
            text.push('\n');
        }
        text.into()
    }
}

/// A body that ends when no server is left, or the reader is gone.
struct Following {
    tails: Tails,
    every: Interval,
    format: Format,
    /// The lines of the beginning.
    first: Option<Vec<Line>>,
}

impl HttpBody for Following {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let format = self.format;
        // Sent even if it is empty, so that the head of the answer leaves.
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
