//! What comes first: the answer, or something to say before it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::exchange::Reply;

/// A request that is being answered.
pub(super) type Answering = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// What came first.
pub(super) enum First {
    /// Frames may have come with it, which go before it.
    Answer(Reply),
    /// There is something to say before the answer.
    Frame,
    /// Nothing for a while.
    Silence,
}

/// Waits for the answer, for `ready`, or for the time to be over.
pub(super) async fn first(
    answering: &mut Answering,
    mut ready: impl FnMut(&mut Context<'_>) -> Poll<()>,
    patience: Duration,
) -> First {
    let mut silence = pin!(tokio::time::sleep(patience));
    poll_fn(|cx| {
        if let Poll::Ready(reply) = answering.as_mut().poll(cx) {
            return Poll::Ready(First::Answer(reply));
        }
        if ready(cx).is_ready() {
            return Poll::Ready(First::Frame);
        }
        silence.as_mut().poll(cx).map(|()| First::Silence)
    })
    .await
}
