//! Who is here: a daemon that was started for somebody ends some time after
//! everybody has left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::watch;

/// Counts those who are attached and those whose request is under way.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    visitors: watch::Sender<usize>,
    /// Those of them that are attached through `ostler stdio`.
    attached: watch::Sender<usize>,
    /// Those of them that leave when they are told to.
    told: watch::Sender<usize>,
}

/// Somebody is here; dropping it says that they have left.
#[derive(Debug)]
pub(super) struct Visit(Arc<Attendance>);

/// A client that is attached; dropping it says that it is not any more.
#[derive(Debug)]
pub(super) struct Attached {
    visit: Visit,
    leaves_when_told: bool,
}

impl Attendance {
    /// Somebody comes.
    pub(super) fn enter(self: &Arc<Self>) -> Visit {
        self.visitors.send_modify(|visitors| *visitors += 1);
        Visit(Arc::clone(self))
    }

    /// A client attaches.
    pub(super) fn attach(self: &Arc<Self>, leaves_when_told: bool) -> Attached {
        self.attached.send_modify(|attached| *attached += 1);
        self.told.send_modify(|told| *told += usize::from(leaves_when_told));
        Attached { visit: self.enter(), leaves_when_told }
    }

    /// Waits until no client is attached that leaves when it is told to.
    pub(super) async fn until_told_left(&self) {
        // The sender is `self`, which stays.
        let _ = self.told.subscribe().wait_for(|told| *told == 0).await;
    }

    /// Returns how many clients are attached.
    pub(super) fn attached(&self) -> usize {
        *self.attached.borrow()
    }

    /// Waits until nobody has been here for that long.
    pub(super) async fn deserted(&self, linger: Duration) {
        let mut visitors = self.visitors.subscribe();
        loop {
            if visitors.wait_for(|visitors| *visitors == 0).await.is_err() {
                return;
            }
            if tokio::time::timeout(linger, visitors.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.send_modify(|visitors| *visitors -= 1);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let attendance = &self.visit.0;
        attendance.attached.send_modify(|attached| *attached -= 1);
        attendance.told.send_modify(|told| *told -= usize::from(self.leaves_when_told));
    }
}

/// Counts a request in until the last byte of its answer is gone.
pub(super) async fn count(
    State(attendance): State<Arc<Attendance>>,
    request: Request,
    next: Next,
) -> Response {
    let visit = attendance.enter();
    next.run(request).await.map(|body| Body::new(Attended { body, _visit: visit }))
}

/// A body that is part of a visit.
struct Attended {
    body: Body,
    _visit: Visit,
}

impl HttpBody for Attended {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_ends_some_time_after_the_last_has_left() {
        let attendance = Arc::new(Attendance::default());
        let linger = Duration::from_secs(600);
        let began = tokio::time::Instant::now();
        let first = attendance.enter();
        let stay = async {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            let second = attendance.enter();
            drop(first);
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            drop(second);
        };
        tokio::join!(attendance.deserted(linger), stay);
        assert_eq!(began.elapsed(), Duration::from_secs(2_600));
    }
}
