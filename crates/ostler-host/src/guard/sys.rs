//! The few system calls of the guard that Rust can't check.
//!
//! Everything unsafe of the crate stands here, each with the reason why it is
//! sound where it is called.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::cmsg_space;
use nix::libc;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{ForkResult, Pid};

/// Descriptors that come with one start: stdin, stdout, stderr, lifeline.
pub(crate) const DESCRIPTORS: usize = 4;

/// Forks a process that has one thread. Returns the child's pid to the parent
/// and `None` to the child.
pub(crate) fn fork() -> nix::Result<Option<Pid>> {
    // SAFETY: fork is unsafe because locks held by other threads stay locked
    // in the child. The warden never starts a thread.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// What a read of the control socket brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// The descriptors of one start.
    Start([OwnedFd; DESCRIPTORS]),
    /// A message that no host sends; its descriptors are closed.
    Nonsense,
    /// The host is gone.
    Closed,
}

/// Receives one message of the control socket.
pub(crate) fn receive(socket: &OwnedFd) -> nix::Result<Received> {
    let mut byte = [0u8; 1];
    let mut space = cmsg_space!([libc::c_int; DESCRIPTORS]);
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(Received::Closed);
    }
    let mut owned = Vec::with_capacity(DESCRIPTORS);
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel has just put these descriptors into this
            // process for this message; nothing else knows their numbers.
            owned.extend(descriptors.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(owned.try_into().map_or(Received::Nonsense, Received::Start))
}

/// Makes the kernel end the child when the guard that starts it dies. The
/// signal follows the *thread* that forks; a guard has exactly one.
pub(crate) fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only the system call `prctl` is made.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
}

/// A descriptor of the process that started this one; readable once it has ended.
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

/// Marks every descriptor from 3 on close-on-exec, so that nothing the host's
/// own parent left open reaches a server.
pub(crate) fn close_others_on_exec() {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing; it only sets a flag.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
    }
}

/// The program's code and constants in this process's memory.
///
/// A process that waits for years needs none of it mapped: what is needed
/// again comes back from the page cache, which all guards share.
#[derive(Debug)]
pub(crate) struct Code(Vec<(usize, usize)>);

impl Code {
    /// Finds where the code and the constants of the program and its libraries are mapped.
    pub(crate) fn find() -> Self {
        Self(unwritten(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()))
    }

    /// Waits like `poll`, with the code taken out of memory first. There is
    /// little between the two on purpose: every function called in between
    /// would bring its surroundings back.
    pub(crate) fn poll_lean(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> nix::Result<libc::c_int> {
        for (start, length) in &self.0 {
            // SAFETY: the range can't be written to and never was, so it holds
            // a file's bytes and nothing of ours: dropping its pages loses
            // nothing, and the next access, from this very loop too, reads
            // them again.
            unsafe {
                libc::madvise(*start as *mut libc::c_void, *length, libc::MADV_DONTNEED);
            }
        }
        poll(fds, timeout)
    }
}

/// Gives memory back that was freed: the allocator keeps what lies between
/// things that are in use. Takes as long as there is to give back.
pub fn trim_heap() {
    // SAFETY: the call moves nothing and frees nothing that is in use; it takes
    // the locks of the allocator like any allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes the program's code and constants out of this process's memory. What is
/// needed again comes back from the page cache; what only the start needed does not.
pub fn shed_code() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (start, length) in unwritten(&maps) {
        // SAFETY: nothing was ever written to these pages, of which the kernel
        // counts none as anonymous or swapped out, and nothing can be: they hold
        // a file's bytes, which the next access reads again.
        unsafe {
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
}

/// Mappings of files that can't be written to and never were, from the text of
/// `/proc/self/smaps`. Constants that the linker has filled in are not among them, be they in memory or
/// swapped out: of these two counts, the second comes later in the text.
fn unwritten(maps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    let is_none = |kilobytes: &str| kilobytes.trim() == "0 kB";
    for line in maps.lines() {
        if let Some(range) = file_range(line, &["r-xp", "r--p"]) {
            current = Some(range);
        } else if line.starts_with(|c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()) {
            current = None;
        } else if let Some(kilobytes) = line.strip_prefix("Anonymous:") {
            current = current.filter(|_| is_none(kilobytes));
        } else if let Some(kilobytes) = line.strip_prefix("Swap:") {
            found.extend(current.take().filter(|_| is_none(kilobytes)));
        }
    }
    found
}

/// Start and length of a mapping of a file with one of these accesses, from a line of `/proc/self/maps`.
fn file_range(line: &str, accesses: &[&str]) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let is_wanted = accesses.contains(&access) && fields.nth(3)?.starts_with('/');
    let parse = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (parse(start)?, parse(end)?);
    is_wanted.then(|| (start, end - start))
}

/// Closes the same descriptors for a child of a program that has many threads:
/// done between fork and exec.
pub(crate) fn close_others_in_child(command: &mut Command) {
    // SAFETY: between fork and exec only the system call `close_range` is made.
    unsafe {
        command.pre_exec(|| {
            close_others_on_exec();
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_taken_out() {
        let line = |access: &str, path: &str| format!("55f7-55f9 {access} 0007c000 fe:00 617 {path}");
        assert_eq!(file_range(&line("r-xp", "/usr/bin/ostler"), &["r-xp"]), Some((0x55f7, 2)));
        for (access, path) in
            [("r--p", "/usr/bin/ostler"), ("rw-p", "/usr/bin/ostler"), ("r-xp", "[vdso]"), ("r-xp", "")]
        {
            assert_eq!(file_range(&line(access, path), &["r-xp"]), None, "{access} {path}");
        }
    }

    #[test]
    fn only_what_was_never_written_is_shed() {
        let maps = "55f0-55f1 r--p 0 fe:00 1 /a\nRss: 4 kB\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    55f2-55f4 r-xp 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    55f5-55f6 r--p 0 fe:00 1 /a\nAnonymous:   8 kB\nSwap:   0 kB\n\
                    55f6-55f7 r--p 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   4 kB\n\
                    55f7-55f8 rw-p 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    55f9-55fa r--p 0 00:00 0 \nAnonymous:   0 kB\nSwap:   0 kB\n";
        assert_eq!(unwritten(maps), [(0x55f0, 1), (0x55f2, 2)]);
    }

    #[test]
    fn a_program_that_has_shed_its_code_goes_on() {
        for _ in 0..3 {
            shed_code();
            assert_eq!(format!("{:?}", std::time::Duration::from_millis(1)), "1ms");
        }
    }

    #[test]
    fn code_that_was_taken_out_still_runs() {
        let code = Code::find();
        assert!(!code.0.is_empty());
        assert_eq!(code.poll_lean(&mut [], PollTimeout::ZERO), Ok(0));
        assert_eq!(code.poll_lean(&mut [], PollTimeout::ZERO), Ok(0));
    }
}
