//! One request: waits for a way, is sent, and is followed to its end.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::WorkerCore;
use super::in_flight::{RelaySendOutcome, RelayedCallHandle};
use super::pending::ACCEPT;
use crate::broker::{BrokerMessage, LinkError};
use crate::call_id::CallId;
use crate::envelope::RelayHeaders;
use crate::reconnect::BrokerConnection;

/// The first and the longest wait for a host where none is heard.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A request on its way out.
pub(super) struct OutgoingCall<'a> {
    pub(super) call: CallId,
    pub(super) subject: &'a str,
    pub(super) body: Bytes,
    /// What it says beside the body, written anew each time: until when it may
    /// begin, in milliseconds of the hosts' clock.
    pub(super) headers: &'a (dyn Fn(SendTimes) -> RelayHeaders + Sync),
    /// When to stop trying to send it.
    pub(super) deadline: Instant,
    /// Whether it may still be sent.
    pub(super) may_send: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// What is known at the moment of sending.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendTimes {
    /// When nobody believes any more that the call begins.
    pub(super) begin_by: Instant,
    /// How far the hosts' clocks are ahead of ours.
    pub(super) clock_offset: i64,
}

impl WorkerCore {
    /// Sends a request until somebody has got it, and waits for its answer:
    /// the bytes of a JSON-RPC response.
    pub(super) async fn send_until_answered(
        &self,
        ticket: &RelayedCallHandle<'_>,
        letter: &OutgoingCall<'_>,
    ) -> Result<Bytes, Fault> {
        let mut pause = PAUSE.0;
        let mut ready = None;
        loop {
            let up = tokio::select! {
                biased;
                way = self.wait_for_connection(&mut ready, letter.deadline) => match way {
                    Some(up) => up,
                    None => return Err(self.unreachable_fault(ticket)),
                },
                why = self.wait_credentials_refused() => return Err(without_retry(ticket.unsent_fault(FaultKind::Denied(why)))),
            };
            // Before anything else is: what was listed may not be listed any more.
            if letter.may_send.is_some_and(|is_fit| !is_fit()) {
                return Err(Fault::rejected(FaultKind::StaleSession));
            }
            match self.send(ticket, letter, &up).await? {
                Some(RelaySendOutcome::Answer(body)) => return Ok(body),
                Some(RelaySendOutcome::Chunks(assembly)) => return finish_assembly(assembly).await,
                Some(RelaySendOutcome::Fault(fault)) => return Err(fault),
                Some(RelaySendOutcome::NoResponders) => {
                    if !self.wait_for_host(self.jitter(pause), letter.deadline).await {
                        return Err(self.unreachable_fault(ticket));
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
                None => {
                    let ready = ready.get_or_insert_with(|| self.ready_connection.subscribe());
                    let is_other =
                        |now: &Option<BrokerConnection>| now.as_ref().is_none_or(|now| now.epoch != up.epoch);
                    if !matches!(timeout_at(letter.deadline, ready.wait_for(is_other)).await, Ok(Ok(_))) {
                        return Err(self.unreachable_fault(ticket));
                    }
                }
            }
        }
    }

    /// The connection, as soon as there is one.
    async fn wait_for_connection(
        &self,
        ready: &mut Option<watch::Receiver<Option<BrokerConnection>>>,
        until: Instant,
    ) -> Option<BrokerConnection> {
        if Instant::now() >= until {
            return None;
        }
        if let Some(up) = &*self.ready_connection.borrow() {
            return Some(up.clone());
        }
        let ready = ready.get_or_insert_with(|| self.ready_connection.subscribe());
        let mut over = self.closed.subscribe();
        let up = tokio::select! {
            up = timeout_at(until, ready.wait_for(Option::is_some)) => up.ok()?.ok()?.clone(),
            _ = over.wait_for(|is_over| *is_over) => None,
        };
        up
    }

    /// Hands a request to a connection; `None` if it was not taken because the
    /// connection is over.
    async fn send(
        &self,
        ticket: &RelayedCallHandle<'_>,
        letter: &OutgoingCall<'_>,
        up: &BrokerConnection,
    ) -> Result<Option<RelaySendOutcome>, Fault> {
        let message = self.message(letter);
        let limit = up.link.broker_info().max_payload;
        let length = length(&message);
        if length > limit {
            return Err(too_long(length, limit));
        }
        let mut told = ticket.begin_publish();
        let publishing = timeout_at(letter.deadline, up.link.publish(message));
        // What is over already is taken back and not sent.
        let published = tokio::select! {
            biased;
            verdict = &mut told => return Ok(Some(verdict.unwrap_or(RelaySendOutcome::Fault(closed_fault())))),
            published = publishing => published,
        };
        match published {
            Ok(Ok(())) => ticket.on_published(up.epoch),
            Ok(Err(LinkError::Closed)) => {
                ticket.on_publish_failed();
                return Ok(None);
            }
            Ok(Err(LinkError::TooLong { limit })) => {
                ticket.on_publish_failed();
                return Err(too_long(length, limit));
            }
            Err(_) => {
                ticket.on_publish_failed();
                return Err(self.unreachable_fault(ticket));
            }
        }
        let verdict = told.await.unwrap_or(RelaySendOutcome::Fault(closed_fault()));
        Ok(Some(ticket.correct_delivery(verdict)))
    }

    fn message(&self, letter: &OutgoingCall<'_>) -> BrokerMessage {
        let begin_by = letter.deadline.min(Instant::now() + ACCEPT);
        let headers = (letter.headers)(SendTimes { begin_by, clock_offset: self.clock_offset() });
        BrokerMessage::new(letter.subject.to_owned(), headers, letter.body.clone())
            .with_reply_to(self.inbox.answer_subject(letter.call))
    }

    /// Waits until a host is heard, but not longer than this; false when the
    /// request's time is over.
    pub(super) async fn wait_for_host(&self, longest: Duration, until: Instant) -> bool {
        let mut over = self.closed.subscribe();
        let waiting = async {
            tokio::select! {
                () = self.host_heard.notified() => true,
                () = sleep(longest) => true,
                _ = over.wait_for(|is_over| *is_over) => false,
            }
        };
        timeout_at(until, waiting).await.unwrap_or(false)
    }

    /// Nobody was there to whom it could be sent.
    fn unreachable_fault(&self, ticket: &RelayedCallHandle<'_>) -> Fault {
        let why = self.problem().unwrap_or_else(|| "no host takes calls".into());
        let fault = ticket.unsent_fault(FaultKind::Unreachable(why));
        if *self.closed.borrow() { without_retry(fault) } else { fault }
    }
}

/// The same fault, where no other attempt would be sent either.
fn without_retry(fault: Fault) -> Fault {
    match fault.delivery {
        Delivery::NotSent => Fault::rejected(fault.kind),
        _ => fault,
    }
}

/// Puts an answer together, away from everything that must not wait.
async fn finish_assembly(assembly: Box<super::chunk_assembly::ChunkAssembly>) -> Result<Bytes, Fault> {
    let malformed = |why: &str| Fault::unknown(FaultKind::Malformed(why.to_owned()));
    match tokio::task::spawn_blocking(|| assembly.finish()).await {
        Ok(joined) => joined.map_err(malformed),
        Err(_) => Err(malformed("the answer could not be put together")),
    }
}

/// The length of a message as a broker counts it: with its headers, written out.
fn length(message: &BrokerMessage) -> usize {
    const FRAME: usize = "NATS/1.0\r\n\r\n".len();
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len());
    message.body.len() + headers.sum::<usize>() + FRAME
}

fn too_long(length: usize, limit: usize) -> Fault {
    let why = format!("the request has {length} bytes, the broker takes {limit}");
    Fault::rejected(FaultKind::Denied(why))
}

/// The table is gone, which does not happen before the calls in it are.
fn closed_fault() -> Fault {
    Fault::unknown(FaultKind::Closed)
}
