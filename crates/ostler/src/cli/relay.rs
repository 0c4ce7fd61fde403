//! Commands of the relay.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ostler_relay::RelayName;
use ostler_relay::nats_config::UserKey;

use super::TEMPLATE;
use super::worker::read_name;

#[derive(Debug, Subcommand)]
pub(crate) enum RelayCommand {
    NatsConfig(NatsConfigArgs),
}

/// Print the users and permissions for the config of a nats-server
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler relay nats-config > nats.conf
  ostler relay nats-config --worker ci-7=ci --worker ci-8=ci --new-keys keys > nats.conf
  ostler relay nats-config --host mill --host barn --worker ci-7=ci:UDXU4RCSJ…",
    after_help = "Tenant, host name and roles come from the config. Each worker may use its own role only, and receives \
only its own messages. A user without a key gets a password, which nats-server reads from its environment. A role \
without a worker gets a worker of the same name.

With --new-keys, users without a key get one. Seeds are written into the folder, readable by you alone, and never \
printed. A seed that exists is kept."
)]
pub(crate) struct NatsConfigArgs {
    /// A worker, its role, and its public nkey if it has one
    #[arg(long, value_name = "NAME=ROLE[:NKEY]", value_parser = read_worker)]
    pub(crate) worker: Vec<WorkerArg>,
    /// A host, and its public nkey if it has one; by default the one of the config
    #[arg(long, value_name = "NAME[:NKEY]", value_parser = read_host)]
    pub(crate) host: Vec<HostArg>,
    /// Create keys for users without one, and write the seeds into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) new_keys: Option<PathBuf>,
}

/// A worker as it was typed.
#[derive(Debug, Clone)]
pub(crate) struct WorkerArg {
    pub(crate) name: RelayName,
    pub(crate) role: RelayName,
    pub(crate) key: Option<UserKey>,
}

/// A host as it was typed.
#[derive(Debug, Clone)]
pub(crate) struct HostArg {
    pub(crate) name: RelayName,
    pub(crate) key: Option<UserKey>,
}

fn read_worker(text: &str) -> Result<WorkerArg, String> {
    let (name, rest) = text.split_once('=').ok_or("it wants NAME=ROLE, such as ci-7=ci")?;
    let (role, key) = read_keyed(rest)?;
    Ok(WorkerArg { name: read_name(name)?, role, key })
}

fn read_host(text: &str) -> Result<HostArg, String> {
    let (name, key) = read_keyed(text)?;
    Ok(HostArg { name, key })
}

fn read_keyed(text: &str) -> Result<(RelayName, Option<UserKey>), String> {
    let (name, key) = match text.split_once(':') {
        Some((name, key)) => (name, Some(UserKey::new(key).map_err(|error| error.to_string())?)),
        None => (text, None),
    };
    Ok((read_name(name)?, key))
}
