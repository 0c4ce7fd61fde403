//! Relayed request: waits for a connection, is published, and is followed to its outcome.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::in_flight::{RelaySendOutcome, RelayedCallHandle};
use super::pending::ACCEPT;
use super::{WorkerCore, wait_for_other_connection};
use crate::broker::{BrokerMessage, LinkError};
use crate::call_id::CallId;
use crate::envelope::RelayHeaders;
use crate::reconnect::BrokerConnection;

/// First and last ceiling of the delay before a retry while no host is heard.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Request to be sent.
pub(super) struct OutgoingCall<'a> {
    pub(super) call: CallId,
    pub(super) subject: &'a str,
    pub(super) body: Bytes,
    /// Builds the headers anew for each publish, since the start deadline changes.
    pub(super) headers: &'a (dyn Fn(SendTimes) -> RelayHeaders + Sync),
    /// Deadline for publishing.
    pub(super) deadline: Instant,
    /// Returns whether the request may still be sent; `None` always permits it.
    pub(super) may_send: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// Times of one publish.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendTimes {
    /// Latest start; after it the worker reports the call as not begun.
    pub(super) begin_by: Instant,
    /// Offset of the hosts' clocks to the local one, in milliseconds.
    pub(super) clock_offset: i64,
}

impl WorkerCore {
    /// Publishes a request until a host receives it, and waits for its answer: the bytes of a
    /// JSON-RPC response.
    pub(super) async fn send_until_answered(
        &self,
        handle: &RelayedCallHandle<'_>,
        outgoing: &OutgoingCall<'_>,
    ) -> Result<Bytes, Fault> {
        let mut pause = PAUSE.0;
        let mut ready = None;
        loop {
            let connection = tokio::select! {
                biased;
                connection = self.wait_for_connection(&mut ready, outgoing.deadline) => match connection {
                    Some(connection) => connection,
                    None => return Err(self.unreachable_fault(handle)),
                },
                why = self.wait_credentials_refused() => return Err(without_retry(handle.unsent_fault(FaultKind::Denied(why)))),
            };
            // Checked before each publish: the listed tool may have changed.
            if outgoing.may_send.is_some_and(|may_send| !may_send()) {
                return Err(Fault::rejected(FaultKind::StaleSession));
            }
            match self.send(handle, outgoing, &connection).await? {
                Some(RelaySendOutcome::Answer(body)) => return Ok(body),
                Some(RelaySendOutcome::Chunks(assembly)) => return finish_assembly(assembly).await,
                Some(RelaySendOutcome::Fault(fault)) => return Err(fault),
                Some(RelaySendOutcome::NoResponders) => {
                    if !self.wait_for_host(self.jitter(pause), outgoing.deadline).await {
                        return Err(self.unreachable_fault(handle));
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
                None => {
                    let ready = ready.get_or_insert_with(|| self.ready_connection.subscribe());
                    let other = wait_for_other_connection(ready, connection.epoch);
                    if !matches!(timeout_at(outgoing.deadline, other).await, Ok(Some(()))) {
                        return Err(self.unreachable_fault(handle));
                    }
                }
            }
        }
    }

    /// Waits for a connection; `None` at the deadline or when the worker ends.
    async fn wait_for_connection(
        &self,
        ready: &mut Option<watch::Receiver<Option<BrokerConnection>>>,
        deadline: Instant,
    ) -> Option<BrokerConnection> {
        if Instant::now() >= deadline {
            return None;
        }
        if let Some(connection) = &*self.ready_connection.borrow() {
            return Some(connection.clone());
        }
        let ready = ready.get_or_insert_with(|| self.ready_connection.subscribe());
        let mut closed = self.closed.subscribe();
        let connection = tokio::select! {
            connection = timeout_at(deadline, ready.wait_for(Option::is_some)) => connection.ok()?.ok()?.clone(),
            _ = closed.wait_for(|closed| *closed) => None,
        };
        connection
    }

    /// Publishes a request and waits for its outcome; `None` if the connection closed before it
    /// took the request.
    async fn send(
        &self,
        handle: &RelayedCallHandle<'_>,
        outgoing: &OutgoingCall<'_>,
        connection: &BrokerConnection,
    ) -> Result<Option<RelaySendOutcome>, Fault> {
        let message = self.message(outgoing);
        let limit = connection.link.broker_info().max_payload;
        let length = length(&message);
        if length > limit {
            return Err(too_long(length, limit));
        }
        let mut outcome_receiver = handle.begin_publish();
        let publishing = timeout_at(outgoing.deadline, connection.link.publish(message));
        // `biased`: a call that has ended already is withdrawn instead of published.
        let published = tokio::select! {
            biased;
            outcome = &mut outcome_receiver => return Ok(Some(outcome.unwrap_or(RelaySendOutcome::Fault(closed_fault())))),
            published = publishing => published,
        };
        match published {
            Ok(Ok(())) => handle.on_published(connection.epoch),
            Ok(Err(LinkError::Closed)) => {
                handle.on_publish_failed();
                return Ok(None);
            }
            Ok(Err(LinkError::TooLong { limit })) => {
                handle.on_publish_failed();
                return Err(too_long(length, limit));
            }
            Err(_) => {
                handle.on_publish_failed();
                return Err(self.unreachable_fault(handle));
            }
        }
        let outcome = outcome_receiver.await.unwrap_or(RelaySendOutcome::Fault(closed_fault()));
        Ok(Some(handle.correct_delivery(outcome)))
    }

    fn message(&self, outgoing: &OutgoingCall<'_>) -> BrokerMessage {
        let begin_by = outgoing.deadline.min(Instant::now() + ACCEPT);
        let headers = (outgoing.headers)(SendTimes { begin_by, clock_offset: self.clock_offset() });
        BrokerMessage::new(outgoing.subject.to_owned(), headers, outgoing.body.clone())
            .with_reply_to(self.inbox.answer_subject(outgoing.call))
    }

    /// Waits until a host is heard, at most `max_wait`. Returns `false` at the deadline.
    pub(super) async fn wait_for_host(&self, max_wait: Duration, deadline: Instant) -> bool {
        let mut closed = self.closed.subscribe();
        let wait = async {
            tokio::select! {
                () = self.host_heard.notified() => true,
                () = sleep(max_wait) => true,
                _ = closed.wait_for(|closed| *closed) => false,
            }
        };
        timeout_at(deadline, wait).await.unwrap_or(false)
    }

    /// Returns the fault of a request that no host could receive.
    fn unreachable_fault(&self, handle: &RelayedCallHandle<'_>) -> Fault {
        let why = self.problem().unwrap_or_else(|| "no host takes calls".into());
        let fault = handle.unsent_fault(FaultKind::Unreachable(why));
        if *self.closed.borrow() { without_retry(fault) } else { fault }
    }
}

/// Marks the fault as final where a retry would not be sent either.
fn without_retry(fault: Fault) -> Fault {
    match fault.delivery {
        Delivery::NotSent => Fault::rejected(fault.kind),
        _ => fault,
    }
}

/// Assembles an answer on a blocking thread.
async fn finish_assembly(assembly: Box<super::chunk_assembly::ChunkAssembly>) -> Result<Bytes, Fault> {
    let malformed = |why: &str| Fault::unknown(FaultKind::Malformed(why.to_owned()));
    match tokio::task::spawn_blocking(|| assembly.finish()).await {
        Ok(joined) => joined.map_err(malformed),
        Err(_) => Err(malformed("the answer could not be put together")),
    }
}

/// Returns the length of a message as brokers count it, headers included.
fn length(message: &BrokerMessage) -> usize {
    const FRAME: usize = "NATS/1.0\r\n\r\n".len();
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len());
    message.body.len() + headers.sum::<usize>() + FRAME
}

fn too_long(length: usize, limit: usize) -> Fault {
    let why = format!("the request has {length} bytes, the broker takes {limit}");
    Fault::rejected(FaultKind::Denied(why))
}

/// Returns the fault of a dropped table, which outlives its calls.
fn closed_fault() -> Fault {
    Fault::unknown(FaultKind::Closed)
}
