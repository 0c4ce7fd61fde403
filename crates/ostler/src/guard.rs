//! `ostler guard`: dispatched before anything else in `main`.
//!
//! A guard lives as long as its server, so it must stay small. It forks, so it must have one thread. A command line
//! parser or an async runtime would break both.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use ostler_core::fault::Exit;
use ostler_host::process::{run_command, run_warden};

use crate::fd_limits;
use crate::output::print_stderr;

/// Exit code of shells for a command that was found and could not be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code of shells for a command that was not found.
const NOT_FOUND: u8 = 127;
/// Offset that shells add to the number of the signal that ended a command.
pub(crate) const BY_SIGNAL: i32 = 128;

/// Runs as a guard if the arguments ask for one, and returns its exit code.
pub(crate) fn run_if_requested(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.next()? != "guard" {
        return None;
    }
    let first = args.next()?;
    match first.to_str()? {
        "--warden" => {
            if let Some(told) = args.next().and_then(|word| word.into_string().ok()) {
                fd_limits::restore(&told);
            }
            Some(match run_warden() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            })
        }
        "--" => {
            let argv = args.map(OsString::into_string).collect::<Result<Vec<_>, _>>().ok()?;
            (!argv.is_empty()).then(|| run(argv))
        }
        _ => None,
    }
}

/// Runs one command under a guard of its own and exits like it.
pub(crate) fn run(argv: Vec<String>) -> ExitCode {
    let program = argv.first().cloned().unwrap_or_default();
    match run_command(argv) {
        Ok(exit) => ExitCode::from(code_of(exit)),
        Err(error) => {
            print_stderr(&format!("error: `{}` could not be started: {error}", program.escape_debug()));
            ExitCode::from(match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            })
        }
    }
}

fn code_of(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => BY_SIGNAL + signal,
        Exit::Untold => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_exits_like_its_command() {
        let table = [(Exit::Code(0), 0), (Exit::Code(7), 7), (Exit::Signal(9), 137), (Exit::Untold, 1)];
        for (exit, code) in table {
            assert_eq!(code_of(exit), code, "{exit}");
        }
    }

    #[test]
    fn only_a_guard_with_something_to_do_is_recognized() {
        for line in ["", "tools", "guard", "guard --help", "guard --", "call guard -- x"] {
            let words = line.split_whitespace().map(OsString::from);
            assert!(run_if_requested(words).is_none(), "{line}");
        }
    }
}
