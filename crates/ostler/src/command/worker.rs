//! `ostler worker`: an MCP server with the tools of a remote host.

use ostler_relay::worker::WorkerOptions;

use crate::failure::CommandFailure;
use crate::worker::{self, AgentTransport, UrlHost};
use crate::{cli, relay};

pub(super) fn run(typed: cli::WorkerArgs) -> Result<(), CommandFailure> {
    let voice = worker::status_printer(typed.quiet);
    let door = AgentTransport::new(typed.listen, typed.port_file)?;
    if let Some(url) = &typed.url {
        let bridge = UrlHost::new(url, typed.token_file.as_deref(), typed.timeout)?;
        return worker::run_url(bridge, door, voice);
    }
    let missing = |what: &str| CommandFailure::Usage { what: format!("{what} is missing"), hint: None };
    let role = typed.role.ok_or_else(|| missing("--role"))?;
    let name = typed.name.or_else(relay::default_worker_name).ok_or_else(|| missing("--name"))?;
    let nats = relay::worker_options(typed.nats, &typed.login, &name)?;
    worker::run_relay(nats, WorkerOptions::new(typed.tenant, role, name), door, voice)
}
