//! Processes that wait for years need little of the program that they run.
//!
//! What a process holds of a program's file comes back from the page cache when
//! it is needed, so it can be dropped before a long wait. The constants that the
//! linker fills in at the start are the exception: they are in no file. They are
//! moved into one, which the warden makes in memory and its guards share.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use rustix::event::{PollFd, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

/// The program's code and constants in this process's memory.
#[derive(Debug)]
pub(crate) struct Code(Vec<Range>);

impl Code {
    /// Finds where the code and the constants of the program and its libraries are mapped.
    pub(crate) fn find() -> Self {
        Self(unwritten(&smaps()))
    }

    /// Waits like `poll`, with the code taken out of memory first. There is
    /// little between the two on purpose: every function called in between, be
    /// it of the C library, would bring itself and 64 KiB around it back.
    pub(crate) fn poll_lean(
        &self,
        fds: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> rustix::io::Result<usize> {
        let timeout = timeout.map(timespec);
        for range in &self.0 {
            range.drop_pages();
        }
        poll(fds, timeout.as_ref())
    }
}

/// Takes the program's code and constants out of this process's memory. What is
/// needed again comes back from the page cache; what only the start needed does not.
pub fn shed_code() {
    for range in unwritten(&smaps()) {
        range.drop_pages();
    }
}

/// Whether something came, be it the end.
pub(crate) fn is_ready(fd: Option<&PollFd<'_>>) -> bool {
    fd.is_some_and(|fd| !fd.revents().is_empty())
}

/// For waits without end in sight: longer ones are as good as none.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// Gives memory back that was freed: the allocator keeps what lies between
/// things that are in use. Takes as long as there is to give back.
pub fn trim_heap() {
    // SAFETY: the call moves nothing and frees nothing that is in use; it takes
    // the locks of the allocator like any allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Moves the constants that the linker filled in into a file in memory, so that
/// they can be dropped like the rest. Must be called before any thread is
/// started. Where the machine refuses that they stay as they are.
pub(crate) fn move_constants() {
    for range in filled_in(&smaps()) {
        let _ = range.move_to_file();
    }
}

/// A mapping of a file, of pages that can't be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: usize,
    length: usize,
}

impl Range {
    /// Takes pages that were never written out of memory.
    #[inline]
    fn drop_pages(self) {
        // SAFETY: nothing was ever written to these pages, of which the kernel
        // counts none as anonymous or swapped out, and nothing can be: they hold
        // a file's bytes, so dropping them loses nothing, and the next access,
        // from the caller's very loop too, reads them again.
        let _ = unsafe { madvise(self.start as *mut _, self.length, Advice::LinuxDontNeed) };
    }

    /// Puts a file with the same bytes in the place of these pages.
    fn move_to_file(self) -> std::io::Result<()> {
        // Who may write no file that long is ended by a signal if it tries, also where the file is in memory.
        if getrlimit(Resource::RLIMIT_FSIZE)?.0 < self.length as u64 {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let name = c"ostler-constants";
        // Machines may insist on the second flag, and old kernels do not know it.
        let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(name, MemfdFlags::CLOEXEC))?;
        let mut file = File::from(made);
        // SAFETY: the range is a mapping of this process that can be read and
        // that nothing writes to: there is one thread, and it is here.
        file.write_all(unsafe { std::slice::from_raw_parts(self.start as *const u8, self.length) })?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the range is exactly one mapping, which is replaced, at once, by one
        // with the same bytes and rights: whoever holds a reference into it, this
        // function too, finds what was there. The kernel keeps the file for the mapping.
        unsafe { mmap(self.start as *mut _, self.length, ProtFlags::READ, flags, &file, 0) }?;
        Ok(())
    }
}

fn smaps() -> String {
    std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()
}

/// Mappings of files that can't be written to and never were. Constants that the
/// linker has filled in are not among them, be they in memory or swapped out.
fn unwritten(smaps: &str) -> Vec<Range> {
    let all = mappings(smaps, &["r-xp", "r--p"]).into_iter();
    all.filter(|mapping| !mapping.is_written).map(|mapping| mapping.range).collect()
}

/// Constants that the linker has filled in: they can be written to no more.
fn filled_in(smaps: &str) -> Vec<Range> {
    let all = mappings(smaps, &["r--p"]).into_iter();
    all.filter(|mapping| mapping.is_written).map(|mapping| mapping.range).collect()
}

/// A mapping of a file, and whether something was ever written to it.
struct Mapping {
    range: Range,
    is_written: bool,
}

/// Mappings of files with one of these accesses, from the text of `/proc/self/smaps`. There are none where
/// nothing at all was ever written, not even a stack: emulators count like that.
fn mappings(smaps: &str, accesses: &[&str]) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut has_counts = false;
    let mut current: Option<Mapping> = None;
    let is_some = |kilobytes: &str| kilobytes.trim() != "0 kB";
    for line in smaps.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) {
            // What is not said to be otherwise was written.
            current = file_range(line, accesses).map(|range| Mapping { range, is_written: true });
        } else if let Some(kilobytes) = line.strip_prefix("Anonymous:") {
            has_counts |= is_some(kilobytes);
            // Pages that are in memory now; those that are swapped out come later in the text.
            current = current.map(|mapping| Mapping { is_written: is_some(kilobytes), ..mapping });
        } else if let Some(kilobytes) = line.strip_prefix("Swap:") {
            let whole = |mapping: Mapping| Mapping {
                is_written: mapping.is_written || is_some(kilobytes),
                ..mapping
            };
            found.extend(current.take().map(whole));
        }
    }
    if has_counts { found } else { Vec::new() }
}

/// Where a mapping of a file with one of these accesses is, from the first line about it.
fn file_range(line: &str, accesses: &[&str]) -> Option<Range> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let is_wanted = accesses.contains(&access) && fields.nth(3)?.starts_with('/');
    let parse = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (parse(start)?, parse(end)?);
    is_wanted.then(|| Range { start, length: end - start })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: usize, length: usize) -> Range {
        Range { start, length }
    }

    #[test]
    fn only_code_of_files_is_taken_out() {
        let line = |access: &str, path: &str| format!("55f7-55f9 {access} 0007c000 fe:00 617 {path}");
        assert_eq!(file_range(&line("r-xp", "/usr/bin/ostler"), &["r-xp"]), Some(range(0x55f7, 2)));
        for (access, path) in
            [("r--p", "/usr/bin/ostler"), ("rw-p", "/usr/bin/ostler"), ("r-xp", "[vdso]"), ("r-xp", "")]
        {
            assert_eq!(file_range(&line(access, path), &["r-xp"]), None, "{access} {path}");
        }
    }

    #[test]
    fn only_what_was_never_written_is_shed_and_only_constants_that_were_are_moved() {
        let maps = "55f0-55f1 r--p 0 fe:00 1 /a\nRss: 4 kB\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    55f2-55f4 r-xp 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    55f4-55f5 r-xp 0 fe:00 1 /a\nAnonymous:   4 kB\nSwap:   0 kB\n\
                    55f5-55f6 r--p 0 fe:00 1 /a\nAnonymous:   8 kB\nSwap:   0 kB\n\
                    55f6-55f8 r--p 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   4 kB\n\
                    55f8-55f9 rw-p 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   0 kB\n\
                    ffff-10000 r--p 0 00:00 0 \nAnonymous:   4 kB\nSwap:   0 kB\n";
        assert_eq!(unwritten(maps), [range(0x55f0, 1), range(0x55f2, 2)]);
        assert_eq!(filled_in(maps), [range(0x55f5, 1), range(0x55f6, 2)]);
    }

    #[test]
    fn where_nothing_is_counted_nothing_is_shed() {
        let emulated = "55f0-55f1 r--p 0 fe:00 1 /a\nAnonymous:   0 kB\nSwap:   0 kB\n\
                        7ff0-7ff1 rw-p 0 00:00 0 [stack]\nAnonymous:   0 kB\nSwap:   0 kB\n";
        assert_eq!(unwritten(emulated), []);
        let half = "55f0-55f1 r--p 0 fe:00 1 /a\nSwap:   0 kB\n\
                    7ff0-7ff1 rw-p 0 00:00 0 [stack]\nAnonymous:   4 kB\nSwap:   0 kB\n";
        assert_eq!(unwritten(half), []);
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
        assert_eq!(code.poll_lean(&mut [], Some(Duration::ZERO)), Ok(0));
        assert_eq!(code.poll_lean(&mut [], Some(Duration::ZERO)), Ok(0));
    }
}
