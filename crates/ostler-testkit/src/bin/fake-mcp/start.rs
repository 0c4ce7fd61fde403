//! What happens before the first line is read. No thread exists yet, so forking is sound.

use std::io::{self, Write as _};

use crate::fork;
use crate::ledger::Journal;
use crate::script::{EarlyExit, Script};

/// Carries out the start of the script; does not return when the script says to exit.
pub(crate) fn prepare(script: &Script) -> io::Result<()> {
    if let Some(file) = &script.starts {
        Journal::open(file)?.append(&std::process::id().to_string());
    }
    if let Some(delay) = script.start_delay {
        std::thread::sleep(delay);
    }
    if let Some(work) = script.start_work {
        let began = std::time::Instant::now();
        while began.elapsed() < work {
            std::hint::black_box((0..10_000u32).fold(0u32, |sum, n| sum.wrapping_mul(31).wrapping_add(n)));
        }
    }
    if let Some(early) = &script.exit_at_start
        && still_fails(script)?
    {
        exit(early);
    }
    for (kind, file) in &script.strays {
        let pid = fork::leave(*kind, file)?;
        if let Some(pid) = pid {
            Journal::open(file)?.append(&pid.to_string());
        }
    }
    // After the forks: a plain stray child is meant to die of SIGTERM.
    if script.ignores_sigterm {
        fork::ignore_sigterm()?;
    }
    Ok(())
}

/// This start is already in the file, so N failures are the starts numbered 1 to N.
fn still_fails(script: &Script) -> io::Result<bool> {
    let (Some(times), Some(file)) = (script.exit_at_start_times, &script.starts) else { return Ok(true) };
    Ok(std::fs::read_to_string(file)?.lines().count() <= times)
}

fn exit(early: &EarlyExit) -> ! {
    if !early.stderr.is_empty() {
        let _ = writeln!(io::stderr(), "{}", early.stderr);
    }
    std::process::exit(early.code)
}
