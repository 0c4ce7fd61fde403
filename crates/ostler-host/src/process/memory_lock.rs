//! Memory lock of the stop path: ending processes never waits for a file.
//!
//! The kernel may drop pages of a program's file and read them again when they are needed. A guard whose program
//! can't be read any more, because its disk or its network is gone, would die of that, and so would the spawner that
//! kills its orphans. A dry run therefore executes the stop sequence once, in a process of its own, over children
//! that do nothing. The pages of files that it brings into memory are locked there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::sys::wait::waitpid;

use super::{guard, spawner, sys};

/// One entry of `/proc/self/pagemap`.
const ENTRY: usize = size_of::<u64>();
/// The bit of an entry that says that the page is in memory.
const IS_PRESENT: u64 = 1 << 63;

/// Pages of the program and its libraries that the stop sequence uses.
#[derive(Debug)]
pub(crate) struct StopPath {
    /// Ranges of addresses, in whole pages, or why they are not known.
    ranges: Result<Vec<Range<usize>>, String>,
}

impl StopPath {
    /// Runs the stop sequence in a forked process and returns the pages that it uses: forked processes have the same
    /// pages at the same addresses, and begin with none of those in memory that only the start of the program needed.
    /// Must be called by a process that has one thread.
    pub(crate) fn from_dry_run() -> Self {
        Self { ranges: dry_run_pages().map_err(|error| error.to_string()) }
    }

    /// Makes a path without pages, for the dry run itself.
    pub(super) fn empty() -> Self {
        Self { ranges: Ok(Vec::new()) }
    }

    /// Keeps the pages in this process's memory. Locks are not inherited, so
    /// each process takes its own.
    pub(crate) fn lock(&self) -> Result<(), String> {
        for range in self.ranges.as_ref()? {
            sys::lock_memory(range.clone()).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn dry_run_pages() -> io::Result<Vec<Range<usize>>> {
    let (mut told, mut tell) = io::pipe()?;
    let Some(child) = sys::fork()? else {
        let pages = guard::dry_run().and_then(|()| spawner::dry_run()).and_then(|()| pages_in_memory());
        let pages = pages.unwrap_or_default();
        let lines: String = pages.iter().map(|page| format!("{:x}-{:x}\n", page.start, page.end)).collect();
        std::process::exit(i32::from(tell.write_all(lines.as_bytes()).is_err()));
    };
    drop(tell);
    let mut lines = String::new();
    told.read_to_string(&mut lines)?;
    waitpid(child, None)?;
    let ranges: Option<Vec<_>> = lines.lines().map(addresses).collect();
    ranges
        .filter(|ranges| !ranges.is_empty())
        .ok_or_else(|| io::Error::other("the stop sequence could not be rehearsed"))
}

/// Returns the pages of files that this process has in memory.
fn pages_in_memory() -> io::Result<Vec<Range<usize>>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut ranges = Vec::new();
    for mapping in maps.lines().filter_map(file_mapping) {
        ranges.extend(present(&pagemap, mapping)?);
    }
    Ok(ranges)
}

/// Returns the pages of a mapping that are in memory, neighbours joined.
fn present(pagemap: &File, mapping: Range<usize>) -> io::Result<Vec<Range<usize>>> {
    let page = rustix::param::page_size();
    let mut entries = vec![0; mapping.len() / page * ENTRY];
    pagemap.read_exact_at(&mut entries, (mapping.start / page * ENTRY) as u64)?;
    let is_present =
        |entry: &[u8]| entry.try_into().is_ok_and(|bytes| u64::from_ne_bytes(bytes) & IS_PRESENT != 0);
    Ok(runs(entries.chunks_exact(ENTRY).map(is_present))
        .into_iter()
        .map(|run| mapping.start + run.start * page..mapping.start + run.end * page)
        .collect())
}

/// Returns the runs of `true`.
fn runs(flags: impl Iterator<Item = bool>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in flags.enumerate().filter_map(|(at, is_set)| is_set.then_some(at)) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// Reads a line of `/proc/self/maps`; `None` unless it is about a private mapping of a file.
fn file_mapping(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let is_of_file = access.starts_with('r') && access.ends_with('p') && fields.nth(3)?.starts_with('/');
    if is_of_file { addresses(range) } else { None }
}

/// Reads a range of addresses.
fn addresses(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    let parse = |text| usize::from_str_radix(text, 16).ok();
    Some(parse(start)?..parse(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_mappings_of_files_are_looked_at() {
        let line = |access: &str, path: &str| format!("55f7-55f9 {access} 0007c000 fe:00 617 {path}");
        for access in ["r-xp", "r--p", "rw-p"] {
            assert_eq!(file_mapping(&line(access, "/usr/bin/ostler")), Some(0x55f7..0x55f9), "{access}");
        }
        for (access, path) in
            [("rw-s", "/dev/shm/a"), ("---p", "/usr/bin/ostler"), ("r-xp", "[vdso]"), ("rw-p", "")]
        {
            assert_eq!(file_mapping(&line(access, path)), None, "{access} {path}");
        }
    }

    #[test]
    fn neighbours_are_one_run() {
        let flags = [true, true, false, true, false, false, true];
        assert_eq!(runs(flags.into_iter()), [0..2, 3..4, 6..7]);
        assert!(runs([false].into_iter()).is_empty());
    }
}
