//! Stand-ins for the guard on systems without child subreapers.

use std::ffi::OsStr;
use std::io;
use std::process::Command;

use ostler_core::fault::Exit;

/// Fails: there is no guard on this system.
pub fn run_command(_argv: Vec<impl AsRef<OsStr>>) -> io::Result<Exit> {
    Err(unsupported())
}

/// Fails: there is no spawner on this system.
pub fn run_warden() -> io::Result<()> {
    Err(unsupported())
}

/// Does nothing. Descriptors that the host's own parent left open without close-on-exec reach servers here; the
/// host's own are all close-on-exec.
pub(crate) fn close_others_in_child(_command: &mut Command) {}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the guard needs Linux")
}
