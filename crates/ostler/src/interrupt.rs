//! Ctrl-C and its relatives: once ends in order, twice at once. And one signal that must not end anything.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Hears the signals that ask the program to end. A hangup is left alone, so
/// that `nohup` keeps its meaning; should it end the program, the guard ends
/// the servers.
#[derive(Debug)]
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    /// Heard and not listened to: a file that may not grow any more is an error
    /// like a full disk, and not the end of the program.
    _large_files: Signal,
}

impl Interrupts {
    /// From now on signals are heard here and don't end the program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            _large_files: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// Works until it is done or a signal comes.
    pub(crate) async fn until<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result,
            signal = self.next() => Err(Failure::Interrupted { signal, may_have_run: false }),
        }
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.int.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.term.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}
