//! System calls of the guard that Rust can't check.
//!
//! All unsafe code of the crate is here, each block with the reason why it is sound where it is called.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::cmsg_space;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{ForkResult, Pid};
use rustix::fs::{Mode, OFlags, RawDir};

/// The first descriptor behind stdin, stdout and stderr.
const FIRST_OTHER: libc::c_uint = 3;

/// Descriptors that come with one start: stdin, stdout, stderr, lifeline.
pub(crate) const DESCRIPTORS: usize = 4;

/// Forks a process that has one thread. Returns the child's pid to the parent
/// and `None` to the child.
pub(crate) fn fork() -> nix::Result<Option<Pid>> {
    // SAFETY: fork is unsafe because locks held by other threads stay locked in the child. The spawner never starts a
    // thread.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Result of a read of the control socket.
#[derive(Debug)]
pub(crate) enum SpawnerMessage {
    /// The descriptors of one start.
    Start([OwnedFd; DESCRIPTORS]),
    /// A message that no host sends; its descriptors are closed.
    Invalid,
    /// The host has ended.
    Closed,
}

/// Receives one message of the control socket.
pub(crate) fn receive(socket: &OwnedFd) -> nix::Result<SpawnerMessage> {
    let mut byte = [0u8; 1];
    let mut space = cmsg_space!([libc::c_int; DESCRIPTORS]);
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(SpawnerMessage::Closed);
    }
    let mut owned = Vec::with_capacity(DESCRIPTORS);
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel has just put these descriptors into this
            // process for this message; nothing else knows their numbers.
            owned.extend(descriptors.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(owned.try_into().map_or(SpawnerMessage::Invalid, SpawnerMessage::Start))
}

/// Makes the kernel end the child when the guard that starts it dies. The
/// signal follows the *thread* that forks; a guard has exactly one.
pub(crate) fn kill_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only the system call `prctl` is made.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
}

/// Returns a descriptor of the process that started this one; readable once it has ended.
pub(crate) fn open_parent() -> io::Result<OwnedFd> {
    // SAFETY: `pidfd_open` takes two numbers and returns a new descriptor, which
    // nothing else owns, or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getppid(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: see above; descriptor numbers fit an `i32`.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Keeps pages of this process in memory.
pub(crate) fn lock_memory(range: Range<usize>) -> io::Result<()> {
    // SAFETY: the call changes no byte; addresses without a mapping are an error.
    Ok(unsafe { rustix::mm::mlock(range.start as *mut _, range.len()) }?)
}

/// Marks every descriptor from 3 on close-on-exec, so that nothing the host's
/// own parent left open reaches a server. Allocates nothing.
pub(crate) fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing; it only sets a flag.
    let refused = unsafe {
        libc::close_range(FIRST_OTHER, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int)
    };
    // Kernels before 5.11 don't have it, and sandboxes may refuse it.
    if refused == 0 { Ok(()) } else { close_each_on_exec() }
}

/// Sets close-on-exec on each descriptor from 3 on that `/proc` shows.
fn close_each_on_exec() -> io::Result<()> {
    let folder = rustix::fs::open(c"/proc/self/fd", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut space = [MaybeUninit::uninit(); 2_048];
    let mut entries = RawDir::new(&folder, &mut space);
    while let Some(entry) = entries.next() {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(fd) = number.filter(|fd| *fd >= FIRST_OTHER.cast_signed()) {
            // SAFETY: the call sets a flag of a descriptor, or fails if there is none of this number.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Sets close-on-exec from 3 on in a child of a program that has many threads: done between fork and exec.
pub(crate) fn close_others_in_child(command: &mut Command) {
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(close_others_on_exec);
    }
}
