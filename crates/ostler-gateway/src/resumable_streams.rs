//! Streams of one legacy session: one for frames that belong to no request, and the resumable ones of requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::frame_queue::{FrameQueue, FrameReader, QueueBounds};
use crate::retained_bytes::{RetainedBytes, RetainedShare};

/// Bounds of frames that belong to no request, kept for a client that reads slowly or lost its stream.
const GENERAL_BOUNDS: QueueBounds = QueueBounds { frames: 64, bytes: 64 * 1024 };

/// Request streams that one session can resume. Above it the oldest finished stream is dropped.
const MAX_RESUMABLE: usize = 32;

/// Time for which a broken request stream is kept after its end, and the stream of other frames after it broke.
const RESUME_WITHIN: Duration = Duration::from_secs(60);

/// Streams of one legacy session: one for frames that belong to no request (number 0), and those of requests that a
/// client may resume.
#[derive(Debug, Default)]
pub(crate) struct SessionStreams(Mutex<SessionStreamsState>);

#[derive(Debug, Default)]
struct SessionStreamsState {
    general: GeneralStream,
    resumable: Vec<ResumableStream>,
    last_number: u64,
}

/// Resumable stream of a request.
#[derive(Debug)]
struct ResumableStream {
    number: u64,
    queue: Arc<FrameQueue>,
    /// Retained bytes of the stream; set once the answer is in.
    retained: Option<RetainedShare>,
}

#[derive(Debug, Default)]
enum GeneralStream {
    /// The client has not opened the stream, and no frame is kept for it.
    #[default]
    Unopened,
    Queue(Arc<FrameQueue>),
    /// The session is a connection, and every frame goes to it.
    SessionConnection(mpsc::Sender<Bytes>),
}

impl SessionStreams {
    pub(crate) fn on_connection(line: mpsc::Sender<Bytes>) -> Self {
        Self(Mutex::new(SessionStreamsState {
            general: GeneralStream::SessionConnection(line),
            ..SessionStreamsState::default()
        }))
    }

    /// Sends a frame that belongs to no request. A frame that does not fit, or comes before the client has opened a
    /// stream, is lost, as it would be on a broken connection. If memory is scarce, only a client that has read every
    /// frame gets another one.
    pub(crate) fn push(&self, frame: Bytes, is_scarce: bool) {
        let queue = match &self.lock().general {
            GeneralStream::Unopened => return,
            GeneralStream::SessionConnection(line) => {
                if !is_scarce || line.capacity() == line.max_capacity() {
                    // A full channel means a client that does not read.
                    let _ = line.try_send(frame);
                }
                return;
            }
            GeneralStream::Queue(queue) => Arc::clone(queue),
        };
        let has_room = !is_scarce || queue.is_empty();
        if has_room && !is_abandoned(&queue, Instant::now()) {
            queue.push(frame);
        }
    }

    /// Attaches a reader to the stream of frames that belong to no request.
    pub(crate) fn attach_general(&self, last: Option<u64>) -> FrameReader {
        let queue = self.lock().general();
        queue.attach(last)
    }

    /// Makes the stream of a request resumable under the returned number; `None` if too many streams are open.
    pub(crate) fn make_resumable(&self, queue: &Arc<FrameQueue>) -> Option<u64> {
        let mut open = self.lock();
        if open.resumable.len() >= MAX_RESUMABLE {
            let at = open.resumable.iter().position(|known| known.queue.is_closed())?;
            open.resumable.remove(at);
        }
        open.last_number += 1;
        let number = open.last_number;
        queue.keep_read();
        open.resumable.push(ResumableStream { number, queue: Arc::clone(queue), retained: None });
        Some(number)
    }

    /// Counts the retained bytes of a finished stream, unless it has been dropped already.
    pub(crate) fn retain(&self, queue: &Arc<FrameQueue>, kept: &RetainedBytes) {
        let mut open = self.lock();
        if let Some(known) = open.resumable.iter_mut().find(|known| Arc::ptr_eq(&known.queue, queue)) {
            known.retained = Some(kept.retain(queue.size()));
        }
    }

    /// Returns the streams with retained bytes, each with the time since which it holds them. A stream that has a
    /// reader comes last.
    pub(crate) fn retained(&self) -> Vec<(Instant, Arc<FrameQueue>)> {
        let counted = |known: &ResumableStream| {
            known.retained.as_ref().map(|share| (share.since, Arc::clone(&known.queue)))
        };
        let open = self.lock();
        let general = match &open.general {
            GeneralStream::Queue(queue) if queue.size() > 0 => {
                Some((queue.detached_since().unwrap_or_else(Instant::now), Arc::clone(queue)))
            }
            _ => None,
        };
        open.resumable.iter().filter_map(counted).chain(general).collect()
    }

    /// Resumes the stream of a request behind the frame `last`.
    pub(crate) fn resume(&self, number: u64, last: u64) -> Option<FrameReader> {
        let queue = {
            let open = self.lock();
            open.resumable.iter().find(|known| known.number == number).map(|known| Arc::clone(&known.queue))
        };
        Some(queue?.attach(Some(last)))
    }

    /// Drops the stream of a request, or the frames that the other stream need not hold.
    pub(crate) fn discard(&self, queue: &Arc<FrameQueue>) {
        let mut open = self.lock();
        match &open.general {
            GeneralStream::Queue(general) if Arc::ptr_eq(general, queue) => general.discard(),
            _ => open.resumable.retain(|known| !Arc::ptr_eq(&known.queue, queue)),
        }
    }

    /// Drops streams whose client did not come back in time.
    pub(crate) fn discard_abandoned(&self, now: Instant) {
        let is_due =
            |queue: &FrameQueue| queue.abandoned_since().is_some_and(|left| now > left + RESUME_WITHIN);
        let mut open = self.lock();
        open.resumable.retain(|known| !is_due(&known.queue));
        if let GeneralStream::Queue(queue) = &open.general
            && is_abandoned(queue, now)
        {
            queue.discard();
        }
    }

    /// Ends all streams.
    pub(crate) fn end(&self) {
        let open = std::mem::take(&mut *self.lock());
        if let GeneralStream::Queue(queue) = open.general {
            queue.cancel();
        }
        for known in open.resumable {
            known.queue.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionStreamsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the resume time of the stream for frames without a request has passed.
fn is_abandoned(queue: &FrameQueue, now: Instant) -> bool {
    queue.detached_since().is_some_and(|left| now > left + RESUME_WITHIN)
}

impl SessionStreamsState {
    fn general(&mut self) -> Arc<FrameQueue> {
        if let GeneralStream::Queue(queue) = &self.general {
            return Arc::clone(queue);
        }
        let queue = Arc::new(FrameQueue::new(GENERAL_BOUNDS));
        queue.keep_read();
        self.general = GeneralStream::Queue(Arc::clone(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn read(reader: &mut FrameReader) -> Vec<(u64, Bytes)> {
        let mut cx = Context::from_waker(Waker::noop());
        let next = || match reader.poll_next(&mut cx) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn frames_wait_for_a_stream_that_was_opened_up_to_a_bound() {
        let streams = SessionStreams::default();
        streams.push("too early".into(), false);
        let mut reader = streams.attach_general(None);
        for at in 0..100 {
            streams.push(format!("{at}").into(), false);
        }
        let waited = read(&mut reader);
        assert_eq!(waited.len(), 64);
        assert_eq!(waited[0], (1, "0".into()));
        streams.push("later".into(), false);
        assert_eq!(read(&mut reader), [(65, "later".into())]);
        drop(reader);
        assert_eq!(
            read(&mut streams.attach_general(Some(63))).len(),
            2,
            "a client that comes back gets what it missed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_left_is_waited_for_a_minute_and_its_numbers_go_on() {
        let streams = SessionStreams::default();
        let mut reader = streams.attach_general(None);
        streams.push("read".into(), false);
        assert_eq!(read(&mut reader), [(1, "read".into())]);
        drop(reader);
        streams.push("waits".into(), false);
        tokio::time::advance(RESUME_WITHIN * 2).await;
        streams.push("too late".into(), false);
        let queue = streams.lock().general();
        assert_eq!(queue.size(), 9, "what came in time");
        streams.discard_abandoned(Instant::now());
        assert_eq!(queue.size(), 0);
        let mut reader = streams.attach_general(Some(1));
        streams.push("new".into(), false);
        assert_eq!(read(&mut reader), [(3, "new".into())]);
    }

    #[test]
    fn where_memory_is_scarce_only_a_client_that_reads_is_told_more() {
        let streams = SessionStreams::default();
        let mut reader = streams.attach_general(None);
        for text in ["1", "2"] {
            streams.push(text.into(), true);
        }
        assert_eq!(read(&mut reader), [(1, "1".into())]);
        streams.push("3".into(), true);
        assert_eq!(read(&mut reader), [(2, "3".into())]);
        let (line, mut lines) = mpsc::channel(4);
        let streams = SessionStreams::on_connection(line);
        for text in ["1", "2"] {
            streams.push(text.into(), true);
        }
        assert_eq!(lines.try_recv().unwrap(), "1");
        assert!(lines.try_recv().is_err());
    }

    #[test]
    fn a_stream_that_is_over_makes_room_for_another() {
        let streams = SessionStreams::default();
        let queue = || Arc::new(FrameQueue::new(GENERAL_BOUNDS));
        let first = queue();
        assert_eq!(streams.make_resumable(&first), Some(1));
        for _ in 1..MAX_RESUMABLE {
            assert!(streams.make_resumable(&queue()).is_some());
        }
        assert_eq!(streams.make_resumable(&queue()), None, "all are under way");
        first.finish(Some("answer".into()));
        assert!(streams.make_resumable(&queue()).is_some());
        assert!(streams.resume(1, 0).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_waits_a_minute_for_its_client() {
        let streams = SessionStreams::default();
        let queue = Arc::new(FrameQueue::new(GENERAL_BOUNDS));
        let number = streams.make_resumable(&queue).unwrap();
        drop(queue.attach(None));
        tokio::time::advance(RESUME_WITHIN * 2).await;
        streams.discard_abandoned(Instant::now());
        queue.finish(Some("answer".into()));
        assert_eq!(read(&mut streams.resume(number, 0).unwrap()).len(), 1, "a call under way is waited for");
        tokio::time::advance(RESUME_WITHIN * 2).await;
        streams.discard_abandoned(Instant::now());
        assert!(streams.resume(number, 0).is_none());
    }

    #[test]
    fn the_end_of_a_session_ends_its_streams() {
        let streams = SessionStreams::default();
        let mut reader = streams.attach_general(None);
        streams.push("lost".into(), false);
        streams.end();
        assert_eq!(read(&mut reader), []);
        assert!(reader.is_done());
    }
}
