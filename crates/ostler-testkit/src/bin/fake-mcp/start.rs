//! Start of the process, before the first line is read. No thread exists yet, so forking is sound.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::executions::AppendFile;
use crate::fork;
use crate::options::{EarlyExit, FakeOptions};

/// Carries out the start that the options describe; does not return for `--exit-at-start`.
pub(crate) fn prepare(options: &FakeOptions) -> io::Result<()> {
    if let Some(file) = &options.starts {
        AppendFile::open(file)?.append(&std::process::id().to_string());
    }
    if let Some(delay) = options.start_delay {
        std::thread::sleep(delay);
    }
    if let Some(work) = options.start_work {
        let began = Instant::now();
        compute_until(|| Ok(began.elapsed() >= work))?;
    }
    if let Some(work) = options.start_cpu {
        compute_until(|| Ok(processor_time()? >= work))?;
    }
    if let Some(early) = &options.exit_at_start
        && still_fails(options)?
    {
        exit(early);
    }
    for (kind, file) in &options.strays {
        let pid = fork::spawn_stray(*kind, file)?;
        if let Some(pid) = pid {
            AppendFile::open(file)?.append(&pid.to_string());
        }
    }
    // After the forks: SIGTERM must end a plain stray child.
    if options.ignores_sigterm {
        fork::ignore_sigterm()?;
    }
    Ok(())
}

fn compute_until(is_over: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    while !is_over()? {
        std::hint::black_box((0..10_000u32).fold(0u32, |sum, n| sum.wrapping_mul(31).wrapping_add(n)));
    }
    Ok(())
}

/// Returns the processor time of this process.
fn processor_time() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let spent =
        |time: TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs());
    Ok(spent(usage.user_time()) + spent(usage.system_time()))
}

/// Returns whether this start fails. It is already in the file, so N failures are the starts
/// numbered 1 to N.
fn still_fails(options: &FakeOptions) -> io::Result<bool> {
    let (Some(times), Some(file)) = (options.exit_at_start_times, &options.starts) else { return Ok(true) };
    Ok(std::fs::read_to_string(file)?.lines().count() <= times)
}

fn exit(early: &EarlyExit) -> ! {
    if !early.stderr.is_empty() {
        let _ = writeln!(io::stderr(), "{}", early.stderr);
    }
    std::process::exit(early.code)
}
