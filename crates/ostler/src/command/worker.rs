//! `ostler worker`: the tools of a host elsewhere.

use ostler_relay::worker::WorkerOptions;

use crate::failure::Failure;
use crate::worker::{self, Bridge, Door};
use crate::{cli, relay};

pub(super) fn run(typed: cli::Worker) -> Result<(), Failure> {
    let voice = worker::voice(typed.quiet);
    let door = Door::new(typed.listen, typed.port_file)?;
    if let Some(url) = &typed.url {
        let bridge = Bridge::new(url, typed.token_file.as_deref(), typed.timeout)?;
        return worker::run_bridge(bridge, door, voice);
    }
    let missing = |what: &str| Failure::Usage { what: format!("{what} is missing"), hint: None };
    let role = typed.role.ok_or_else(|| missing("--role"))?;
    let name = typed.name.or_else(relay::of_this_worker).ok_or_else(|| missing("--name"))?;
    let nats = relay::of_worker(typed.nats, &typed.login, &name)?;
    worker::run_relay(nats, WorkerOptions::new(typed.tenant, role, name), door, voice)
}
