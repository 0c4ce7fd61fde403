//! `ostler worker`: the tools of a host on another machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use ostler_core::config::check_nats_address;
use ostler_relay::RelayName;

use super::{TEMPLATE, read_address, read_time};

/// Use the tools of an Ostler on another machine
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("way").args(["url", "nats"]).required(true)),
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler worker --url https://tools.example/mcp --token-file ~/.secrets/ci
  ostler worker --nats tls://broker.example:4222 --role ci --name ci-7 --nkey ci-7.nk
  ostler worker --nats nats://127.0.0.1:4222 --role ci --listen 127.0.0.1:8000",
    after_help = "The worker speaks MCP on stdin and stdout. With --url it connects to the endpoint of the other \
machine; with --nats both connect to a NATS broker, and only that must be reachable. When host or broker is away, the \
worker waits, says so on stderr, and connects again. It ends when its input ends, and with a signal.

The token is read from a file or from OSTLER_TOKEN, for each connection again; the password from a file or from \
OSTLER_NATS_PASSWORD."
)]
pub(crate) struct WorkerArgs {
    /// The endpoint of the host, such as https://tools.example/mcp
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Use the token in this file
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// Give up a call after this long without progress; with --nats the host decides
    #[arg(long, value_name = "TIME", value_parser = read_time, requires = "url", default_value = "70s")]
    pub(crate) timeout: Duration,
    /// The NATS broker, such as nats://127.0.0.1:4222; several of one cluster with commas
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = read_nats, requires = "role")]
    pub(crate) nats: Vec<String>,
    /// The role of this worker; the broker must allow it
    #[arg(long, value_name = "ROLE", value_parser = read_name, requires = "nats")]
    pub(crate) role: Option<RelayName>,
    /// The name of this worker; the broker must allow it. By default the names of user and machine
    #[arg(long, value_name = "NAME", value_parser = read_name, requires = "nats")]
    pub(crate) name: Option<RelayName>,
    /// The tenant whose hosts to use
    #[arg(long, value_name = "TENANT", value_parser = read_name, requires = "nats", default_value = "default")]
    pub(crate) tenant: RelayName,
    #[command(flatten)]
    pub(crate) login: BrokerLoginArgs,
    /// Serve HTTP at this port of this machine instead of stdin and stdout; 0 is a free port
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = read_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Write the port into this file when the worker is listening
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) port_file: Option<PathBuf>,
    /// Print nothing on stderr about the connection
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Credentials for the broker.
#[derive(Debug, Args)]
pub(crate) struct BrokerLoginArgs {
    /// Log in to the broker with this NATS credentials file
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with_all = ["nkey", "user"])]
    pub(crate) creds: Option<PathBuf>,
    /// Log in to the broker with the nkey seed in this file
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with = "user")]
    pub(crate) nkey: Option<PathBuf>,
    /// Log in to the broker as this user
    #[arg(long, value_name = "USER", requires = "nats")]
    pub(crate) user: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// Trust the certificate authorities in this PEM file for the broker
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub(crate) ca: Option<PathBuf>,
    /// Show the broker the client certificate in this PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The PEM file with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

pub(super) fn read_name(text: &str) -> Result<RelayName, String> {
    RelayName::new(text).map_err(|error| error.to_string())
}

fn read_nats(text: &str) -> Result<String, String> {
    match check_nats_address(text) {
        Ok(()) => Ok(text.to_owned()),
        Err((what, hint)) => Err(format!("it wants {what}; {hint}")),
    }
}
