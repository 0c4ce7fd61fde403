//! Signal handling: the first Ctrl-C shuts down in order, the second ends the program at once.
//!
//! `SIGXFSZ` never ends the program.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::failure::CommandFailure;

/// Listener for the signals that ask the program to end. `SIGHUP` is not handled, so that `nohup` works; should it
/// end the program, the guard ends the servers.
#[derive(Debug)]
pub(crate) struct SignalListener {
    int: Signal,
    term: Signal,
    /// Caught and ignored: a file that reached its size limit is an error like a full disk, and must not end the
    /// program.
    _large_files: Signal,
}

/// Question that the next Ctrl-C cancels, instead of ending the program.
static OPEN_QUESTION: Mutex<Option<Arc<Notify>>> = Mutex::new(None);

fn open_question() -> MutexGuard<'static, Option<Arc<Notify>>> {
    OPEN_QUESTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Diverts one Ctrl-C to a question, for as long as it lives.
#[derive(Debug)]
pub(crate) struct CtrlCHold(Arc<Notify>);

impl CtrlCHold {
    pub(crate) fn claim() -> Self {
        let notify = Arc::new(Notify::new());
        *open_question() = Some(Arc::clone(&notify));
        Self(notify)
    }

    /// Waits for Ctrl-C.
    pub(crate) async fn interrupted(&self) {
        self.0.notified().await;
    }
}

impl Drop for CtrlCHold {
    fn drop(&mut self) {
        *open_question() = None;
    }
}

impl SignalListener {
    /// Installs the handlers, so that these signals don't end the program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            _large_files: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// Runs a future until it is done or a signal comes.
    pub(crate) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = Result<T, CommandFailure>>,
    ) -> Result<T, CommandFailure> {
        tokio::select! {
            result = work => result,
            signal = self.next() => Err(CommandFailure::Interrupted { signal, may_have_run: false }),
        }
    }

    async fn next(&mut self) -> i32 {
        loop {
            tokio::select! {
                _ = self.int.recv() => match open_question().take() {
                    Some(question) => question.notify_one(),
                    None => return SignalKind::interrupt().as_raw_value(),
                },
                _ = self.term.recv() => return SignalKind::terminate().as_raw_value(),
            }
        }
    }
}
