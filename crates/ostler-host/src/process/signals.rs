//! Signals as a readable descriptor, so that one `poll` waits for everything.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// SIGCHLD and the signals that ask a process to leave, blocked and readable.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

/// Signals that have arrived since the last read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingSignals {
    /// SIGTERM, SIGINT or SIGHUP.
    pub(crate) is_stop_requested: bool,
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

    /// Waits until a signal arrives, `other` can be read or has ended, or the timeout has passed. Returns whether it
    /// was `other`.
    pub(crate) fn wait(
        &self,
        other: Option<&impl AsFd>,
        timeout: Option<Duration>,
    ) -> rustix::io::Result<bool> {
        // A timeout too long for the kernel's clock is an infinite one.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = vec![PollFd::new(&self.0, PollFlags::IN)];
        fds.extend(other.map(|other| PollFd::new(other, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(fds.get(1).is_some_and(|other| !other.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads all queued signals.
    pub(crate) fn take(&self) -> PendingSignals {
        let mut arrived = PendingSignals::default();
        while let Ok(Some(info)) = self.0.read_signal() {
            arrived.is_stop_requested |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        arrived
    }
}
