//! A call whose caller sees its events and answers questions, over the connection that it was asked for on.
//!
//! ```text
//! host ──events──▶ pump ──lines──▶ write ──▶ caller
//!   ▲                                          │
//!   └──────────── answers ◀──── read ◀─────────┘   its end cancels the call
//! ```

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use ostler_host::upstream::Question;
use ostler_wire::Outcome;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::call_events::{AnswerLine, Event, Events, Line, Observer, raw, to_line};

/// Lines that may wait to be written.
const WAITING: usize = 16;
/// Questions that may be open. A person answers one at a time.
const MOST_OPEN: usize = 16;
/// The longest line of a caller.
const LONGEST_ANSWER: u64 = 1 << 20;
/// How long a caller may take to read its result.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// Where the answers to open questions go.
type Open = Arc<Mutex<HashMap<u32, oneshot::Sender<Option<Box<RawValue>>>>>>;

fn lock(open: &Open) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Option<Box<RawValue>>>>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work of a call, and tells the caller what happens and what came of it.
pub(super) async fn serve(
    connection: impl AsyncRead + AsyncWrite,
    can_answer: bool,
    work: impl AsyncFnOnce(Observer) -> Response,
) {
    let (from, to) = tokio::io::split(connection);
    let (observer, mut events) = Observer::new(can_answer);
    let (lines, outgoing) = mpsc::channel(WAITING);
    let open = Open::default();
    let call = async {
        let response = tokio::select! {
            response = work(observer) => response,
            () = read(from, &open) => return,
            never = pump(&mut events, &lines, &open) => never,
        };
        // What the server said last came together with its result.
        while let Ok(event) = events.try_recv() {
            if let Some(line) = note(event) {
                let _ = lines.send(line).await;
            }
        }
        let status = response.status().as_u16();
        let Ok(body) = axum::body::to_bytes(response.into_body(), usize::MAX).await else { return };
        let done = to_line(&Line::Done { status, length: body.len() }).unwrap_or_default();
        for part in [Bytes::from(done), body] {
            let _ = lines.send(part).await;
        }
        drop(lines);
        tokio::time::sleep(LAST_WRITES).await;
    };
    let mut call = pin!(call);
    tokio::select! {
        () = write(to, outgoing) => {}
        () = &mut call => {}
    }
}

async fn write(to: impl AsyncWrite, mut outgoing: mpsc::Receiver<Bytes>) {
    let mut to = pin!(to);
    while let Some(line) = outgoing.recv().await {
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Reads answers until the caller leaves, or writes something else.
async fn read(from: impl AsyncRead, open: &Open) {
    let from = pin!(from);
    let mut from = BufReader::new(from);
    loop {
        let mut text = Vec::new();
        let mut line = (&mut from).take(LONGEST_ANSWER);
        if line.read_until(b'\n', &mut text).await.is_err() {
            return;
        }
        let Ok(AnswerLine { id, result }) = serde_json::from_slice(&text) else { return };
        let asked = lock(open).remove(&id);
        if let Some(asked) = asked {
            let _ = asked.send(result);
        }
    }
}

async fn pump<T>(events: &mut Events, lines: &mpsc::Sender<Bytes>, open: &Open) -> T {
    // Ends with the call.
    let mut questions = JoinSet::new();
    let mut last = 0;
    while let Some(event) = events.recv().await {
        let line = match event {
            Event::Question(question) if lock(open).len() < MOST_OPEN => {
                last += 1;
                let (method, params) = (question.method.as_str().to_owned(), question.params.as_deref());
                let line = Line::Question { id: last, method, params: params.and_then(raw) };
                let (asked, answer) = oneshot::channel();
                lock(open).insert(last, asked);
                questions.spawn(wait(question, last, answer, lines.clone(), Arc::clone(open)));
                to_line(&line).map(Bytes::from)
            }
            event => note(event),
        };
        if let Some(line) = line {
            let _ = lines.send(line).await;
        }
    }
    std::future::pending().await
}

/// Returns the line of what needs no answer. A question is dropped, which refuses it.
fn note(event: Event) -> Option<Bytes> {
    let line = match event {
        Event::Progress(note) => Line::Progress(raw(&note)?),
        Event::Log(note) => Line::Log(raw(&note)?),
        Event::Question(_) => return None,
    };
    to_line(&line).map(Bytes::from)
}

/// Waits for the answer to a question, or until the server does not.
async fn wait(
    mut question: Question,
    id: u32,
    answer: oneshot::Receiver<Option<Box<RawValue>>>,
    lines: mpsc::Sender<Bytes>,
    open: Open,
) {
    tokio::select! {
        answer = answer => if let Ok(Some(result)) = answer {
            question.answer(Outcome::Result(Bytes::from(Box::<str>::from(result).into_string())));
        },
        () = question.withdrawn() => {
            lock(&open).remove(&id);
            if let Some(line) = to_line(&Line::Withdrawn { id }) {
                let _ = lines.send(line.into()).await;
            }
        }
    }
}
