//! Signals as something to read, so that one `poll` waits for everything.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGCHLD and the signals that ask a process to leave, blocked and readable.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

/// What has arrived since the last look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// SIGTERM, SIGINT or SIGHUP.
    pub(crate) is_told_to_leave: bool,
}

impl Signals {
    /// Blocks the signals for this process. Children started through
    /// `std::process::Command` begin with an empty mask again.
    pub(crate) fn block() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Empties the queue.
    pub(crate) fn take(&self) -> Arrived {
        let mut arrived = Arrived::default();
        while let Ok(Some(info)) = self.0.read_signal() {
            arrived.is_told_to_leave |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        arrived
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
