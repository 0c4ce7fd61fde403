//! One request: waits for a way, is sent, and is followed to its end.

use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault, FaultKind};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::Core;
use super::pending::ACCEPT;
use super::table::{Ticket, Verdict};
use crate::broker::{Message, Unsent};
use crate::call_id::CallId;
use crate::envelope::Headers;
use crate::tether::Up;

/// The first and the longest wait for a host where none is heard.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A request on its way out.
pub(super) struct Letter<'a> {
    pub(super) call: CallId,
    pub(super) subject: &'a str,
    pub(super) body: Bytes,
    /// What it says beside the body, written anew each time: until when it may
    /// begin, in milliseconds of the hosts' clock.
    pub(super) headers: &'a (dyn Fn(Sending) -> Headers + Sync),
    /// When to stop trying to send it.
    pub(super) until: Instant,
    /// Whether it may still be sent.
    pub(super) is_fit: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// What is known at the moment of sending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    /// When nobody believes any more that the call begins.
    pub(super) begin_by: Instant,
    /// How far the hosts' clocks are ahead of ours.
    pub(super) ahead: i64,
}

impl Core {
    /// Sends a request until somebody has got it, and waits for its answer:
    /// the bytes of a JSON-RPC response.
    pub(super) async fn carry(&self, ticket: &Ticket<'_>, letter: &Letter<'_>) -> Result<Bytes, Fault> {
        let mut pause = PAUSE.0;
        let mut ready = None;
        loop {
            let up = tokio::select! {
                biased;
                way = self.way(&mut ready, letter.until) => match way {
                    Some(up) => up,
                    None => return Err(self.unreachable(ticket)),
                },
                why = self.turned_away() => return Err(final_of(ticket.unsent_fault(FaultKind::Denied(why)))),
            };
            // Before anything else is: what was listed may not be listed any more.
            if letter.is_fit.is_some_and(|is_fit| !is_fit()) {
                return Err(Fault::rejected(FaultKind::Renewed));
            }
            match self.send(ticket, letter, &up).await? {
                Some(Verdict::Answer(body)) => return Ok(body),
                Some(Verdict::Chunks(assembly)) => return join(assembly).await,
                Some(Verdict::Fault(fault)) => return Err(fault),
                Some(Verdict::Unheard) => {
                    if !self.wait_for_host(self.draw(pause), letter.until).await {
                        return Err(self.unreachable(ticket));
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
                None => {
                    let ready = ready.get_or_insert_with(|| self.ready.subscribe());
                    let is_other = |now: &Option<Up>| now.as_ref().is_none_or(|now| now.epoch != up.epoch);
                    if !matches!(timeout_at(letter.until, ready.wait_for(is_other)).await, Ok(Ok(_))) {
                        return Err(self.unreachable(ticket));
                    }
                }
            }
        }
    }

    /// The connection, as soon as there is one.
    async fn way(&self, ready: &mut Option<watch::Receiver<Option<Up>>>, until: Instant) -> Option<Up> {
        if Instant::now() >= until {
            return None;
        }
        if let Some(up) = &*self.ready.borrow() {
            return Some(up.clone());
        }
        let ready = ready.get_or_insert_with(|| self.ready.subscribe());
        let mut over = self.over.subscribe();
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
        ticket: &Ticket<'_>,
        letter: &Letter<'_>,
        up: &Up,
    ) -> Result<Option<Verdict>, Fault> {
        let message = self.message(letter);
        let limit = up.link.welcome().max_payload;
        let length = length(&message);
        if length > limit {
            return Err(too_long(length, limit));
        }
        let mut told = ticket.hand();
        let publishing = timeout_at(letter.until, up.link.publish(message));
        // What is over already is taken back and not sent.
        let published = tokio::select! {
            biased;
            verdict = &mut told => return Ok(Some(verdict.unwrap_or(Verdict::Fault(vanished())))),
            published = publishing => published,
        };
        match published {
            Ok(Ok(())) => ticket.published(up.epoch),
            Ok(Err(Unsent::Over)) => {
                ticket.unsent();
                return Ok(None);
            }
            Ok(Err(Unsent::TooLong { limit })) => {
                ticket.unsent();
                return Err(too_long(length, limit));
            }
            Err(_) => {
                ticket.unsent();
                return Err(self.unreachable(ticket));
            }
        }
        let verdict = told.await.unwrap_or(Verdict::Fault(vanished()));
        Ok(Some(ticket.after_publishing(verdict)))
    }

    fn message(&self, letter: &Letter<'_>) -> Message {
        let begin_by = letter.until.min(Instant::now() + ACCEPT);
        let headers = (letter.headers)(Sending { begin_by, ahead: self.ahead() });
        Message::new(letter.subject.to_owned(), headers, letter.body.clone())
            .with_reply(self.inbox.answer(letter.call))
    }

    /// Waits until a host is heard, but not longer than this; false when the
    /// request's time is over.
    pub(super) async fn wait_for_host(&self, longest: Duration, until: Instant) -> bool {
        let mut over = self.over.subscribe();
        let waiting = async {
            tokio::select! {
                () = self.beat.notified() => true,
                () = sleep(longest) => true,
                _ = over.wait_for(|is_over| *is_over) => false,
            }
        };
        timeout_at(until, waiting).await.unwrap_or(false)
    }

    /// Nobody was there to whom it could be sent.
    fn unreachable(&self, ticket: &Ticket<'_>) -> Fault {
        let why = self.trouble().unwrap_or_else(|| "no host takes calls".into());
        let fault = ticket.unsent_fault(FaultKind::Unreachable(why));
        if *self.over.borrow() { final_of(fault) } else { fault }
    }
}

/// The same fault, where no other attempt would be sent either.
fn final_of(fault: Fault) -> Fault {
    match fault.delivery {
        Delivery::NotSent => Fault::rejected(fault.kind),
        _ => fault,
    }
}

/// Puts an answer together, away from everything that must not wait.
async fn join(assembly: Box<super::assemble::Assembly>) -> Result<Bytes, Fault> {
    let malformed = |why: &str| Fault::unknown(FaultKind::Malformed(why.to_owned()));
    match tokio::task::spawn_blocking(|| assembly.join()).await {
        Ok(joined) => joined.map_err(malformed),
        Err(_) => Err(malformed("the answer could not be put together")),
    }
}

/// The length of a message as a broker counts it: with its headers, written out.
fn length(message: &Message) -> usize {
    const FRAME: usize = "NATS/1.0\r\n\r\n".len();
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len());
    message.body.len() + headers.sum::<usize>() + FRAME
}

fn too_long(length: usize, limit: usize) -> Fault {
    let why = format!("the request has {length} bytes, the broker takes {limit}");
    Fault::rejected(FaultKind::Denied(why))
}

/// The table is gone, which does not happen before the calls in it are.
fn vanished() -> Fault {
    Fault::unknown(FaultKind::Closed)
}
