//! `ostler worker`: the tools of a host elsewhere.

use crate::cli;
use crate::failure::Failure;
use crate::worker::{self, Bridge, Door};

pub(super) fn run(typed: cli::Worker) -> Result<(), Failure> {
    let voice = worker::voice(typed.quiet);
    let door = Door::new(typed.listen, typed.port_file)?;
    let url = typed.url.unwrap_or_default();
    let bridge = Bridge::new(&url, typed.token_file.as_deref(), typed.timeout)?;
    worker::run_bridge(bridge, door, voice)
}
