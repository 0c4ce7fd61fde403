//! Blocking work: kept off the threads that calls share.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Largest JSON that a thread of the runtime reads or writes at once: reading a list takes a millisecond per 100 KiB or
/// so, and calls of other servers wait meanwhile.
pub(crate) const MAX_INLINE_BYTES: usize = 256 << 10;

/// Runs work on `size` bytes of JSON: in place if it is quick, else on a blocking thread, of which tokio has at most
/// 512 in a runtime; further work is queued. Work that takes much longer per byte than reading them counts more bytes.
/// Work on a blocking thread goes on when its caller leaves, so a result that must not be lost is stored within it. A
/// panic is propagated to the caller.
pub async fn run_blocking_if_large<T, W>(size: usize, work: W) -> T
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    if size <= MAX_INLINE_BYTES {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and its tasks with it.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn only_work_on_many_bytes_leaves_the_thread() {
        let here = thread::current().id();
        assert_eq!(run_blocking_if_large(MAX_INLINE_BYTES, || thread::current().id()).await, here);
        assert_ne!(run_blocking_if_large(MAX_INLINE_BYTES + 1, || thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn long_work_ends_although_its_caller_has_left() {
        let ((begin, begun), (end, ended)) = (mpsc::channel(), mpsc::channel());
        let work = run_blocking_if_large(MAX_INLINE_BYTES + 1, move || {
            begun.recv().unwrap();
            end.send(()).unwrap();
        });
        let caller = tokio::spawn(work);
        tokio::task::yield_now().await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        begin.send(()).unwrap();
        ended.recv().unwrap();
    }

    #[tokio::test]
    async fn a_panic_of_long_work_is_its_callers() {
        let caller = tokio::spawn(run_blocking_if_large(MAX_INLINE_BYTES + 1, || panic!("a fault")));
        assert!(caller.await.unwrap_err().is_panic());
    }
}
