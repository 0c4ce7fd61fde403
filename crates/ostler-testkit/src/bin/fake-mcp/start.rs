//! What happens before the first line is read. No thread exists yet, so forking is sound.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::append_file::AppendFile;
use crate::fork;
use crate::options::{EarlyExit, FakeOptions};

/// Carries out the start of the script; does not return when the script says to exit.
pub(crate) fn prepare(script: &FakeOptions) -> io::Result<()> {
    if let Some(file) = &script.starts {
        AppendFile::open(file)?.append(&std::process::id().to_string());
    }
    if let Some(delay) = script.start_delay {
        std::thread::sleep(delay);
    }
    if let Some(work) = script.start_work {
        let began = Instant::now();
        compute_until(|| Ok(began.elapsed() >= work))?;
    }
    if let Some(work) = script.start_cpu {
        compute_until(|| Ok(processor_time()? >= work))?;
    }
    if let Some(early) = &script.exit_at_start
        && still_fails(script)?
    {
        exit(early);
    }
    for (kind, file) in &script.strays {
        let pid = fork::spawn_stray(*kind, file)?;
        if let Some(pid) = pid {
            AppendFile::open(file)?.append(&pid.to_string());
        }
    }
    // After the forks: a plain stray child is meant to die of SIGTERM.
    if script.ignores_sigterm {
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

/// The processor time of this process.
fn processor_time() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let spent =
        |time: TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs());
    Ok(spent(usage.user_time()) + spent(usage.system_time()))
}

/// This start is already in the file, so N failures are the starts numbered 1 to N.
fn still_fails(script: &FakeOptions) -> io::Result<bool> {
    let (Some(times), Some(file)) = (script.exit_at_start_times, &script.starts) else { return Ok(true) };
    Ok(std::fs::read_to_string(file)?.lines().count() <= times)
}

fn exit(early: &EarlyExit) -> ! {
    if !early.stderr.is_empty() {
        let _ = writeln!(io::stderr(), "{}", early.stderr);
    }
    std::process::exit(early.code)
}
