//! A call at a daemon whose events are passed on while it is under way, over one upgraded connection.

use std::collections::HashMap;

use bytes::Bytes;
use hyper::StatusCode;
use hyper_util::rt::TokioIo;
use ostler_host::upstream::Question;
use ostler_wire::{Outcome, Text};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::http::{self, Address, Ask, LONGEST, Lost};
use crate::call_events::{AnswerLine, Event, LONGEST_LINE, Line, Observer, PROTOCOL, raw, to_line};

/// Answers that may wait to be written.
const WAITING: usize = 16;

/// Sends a request, passes on what happens, and reads the answer.
pub(super) async fn fetch(
    address: &Address,
    mut ask: Ask<'_>,
    observer: &Observer,
) -> Result<(StatusCode, Bytes), Lost> {
    let patience = ask.patience;
    ask.upgrade = Some(PROTOCOL);
    http::within(patience, async {
        let response = http::begin(address, ask).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return http::finish(response, patience).await;
        }
        let lost = |error: hyper::Error| Lost::After(error.to_string());
        let connection = hyper::upgrade::on(response).await.map_err(lost)?;
        let (from, mut to) = tokio::io::split(TokioIo::new(connection));
        let (answers, mut given) = mpsc::channel::<AnswerLine>(WAITING);
        let write = async {
            while let Some(answer) = given.recv().await {
                // A daemon that is gone is noticed where it is read.
                if let Some(line) = to_line(&answer) {
                    let _ = to.write_all(&line).await;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            answer = read(BufReader::new(from), observer, answers) => answer,
            never = write => never,
        }
    })
    .await
}

async fn read(
    mut from: impl AsyncBufRead + Unpin,
    observer: &Observer,
    answers: mpsc::Sender<AnswerLine>,
) -> Result<(StatusCode, Bytes), Lost> {
    let hung_up = || Lost::After("it hung up".into());
    // Ends the waits for answers with the call.
    let mut waits = JoinSet::new();
    let mut open: HashMap<u32, AbortHandle> = HashMap::new();
    loop {
        let mut text = Vec::new();
        let mut line = (&mut from).take(LONGEST_LINE);
        line.read_until(b'\n', &mut text).await.map_err(|error| Lost::After(error.to_string()))?;
        let line = serde_json::from_slice(&text).map_err(|_| hung_up())?;
        match line {
            Line::Progress(note) => observer.pass(Event::Progress(bytes_of(&note))),
            Line::Log(note) => observer.pass(Event::Log(bytes_of(&note))),
            Line::Question { id, method, params } => {
                let params = params.as_deref().map(bytes_of);
                let (question, answer) = Question::new(Text::from(method.as_str()), params);
                let answers = answers.clone();
                let wait = waits.spawn(async move {
                    let result = match answer.await {
                        Ok(Outcome::Result(result)) => raw(&result),
                        Ok(Outcome::Error(_)) | Err(_) => None,
                    };
                    let _ = answers.send(AnswerLine { id, result }).await;
                });
                open.insert(id, wait);
                observer.pass(Event::Question(question));
            }
            Line::Withdrawn { id } => {
                if let Some(wait) = open.remove(&id) {
                    wait.abort();
                }
            }
            Line::Done { status, length } => {
                let status = StatusCode::from_u16(status).map_err(|_| hung_up())?;
                if length > LONGEST {
                    return Err(Lost::After("the answer is too long".into()));
                }
                let mut body = vec![0; length];
                from.read_exact(&mut body).await.map_err(|_| hung_up())?;
                return Ok((status, body.into()));
            }
        }
    }
}

fn bytes_of(raw: &serde_json::value::RawValue) -> Bytes {
    Bytes::copy_from_slice(raw.get().as_bytes())
}
