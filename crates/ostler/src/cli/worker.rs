//! The side of whoever uses a host from elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use ostler_core::config::check_nats_address;
use ostler_relay::Name;

use super::{TEMPLATE, read_address, read_time};

/// Use the tools of a host elsewhere: MCP on stdin and stdout
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("way").args(["url", "nats"]).required(true)),
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler worker --url https://tools.example/mcp --token-file ~/.secrets/ci
  ostler worker --nats tls://broker.example:4222 --role ci --name ci-7 --nkey ci-7.nk
  ostler worker --nats nats://127.0.0.1:4222 --role ci --listen 127.0.0.1:8000",
    after_help = "With --url the host's own endpoint is used, with --nats the relay: then the host need not be \
reachable, only the broker. Who is not there is waited for, now and whenever it goes away, and that is said on \
stderr. It ends when its input ends, and with a signal.

A token is read from a file or from OSTLER_TOKEN, anew for each session with the host; a password from a file or \
from OSTLER_NATS_PASSWORD."
)]
pub(crate) struct Worker {
    /// The endpoint of the host, such as https://tools.example/mcp
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Be the caller of the token in this file
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a call may take without a sign of progress; with --nats the host says
    #[arg(long, value_name = "TIME", value_parser = read_time, requires = "url", default_value = "70s")]
    pub(crate) timeout: Duration,
    /// The broker of the relay, such as nats://127.0.0.1:4222; several of one cluster with commas
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = read_nats, requires = "role")]
    pub(crate) nats: Vec<String>,
    /// The role to be in, which the broker must allow
    #[arg(long, value_name = "ROLE", value_parser = read_name, requires = "nats")]
    pub(crate) role: Option<Name>,
    /// The name of this worker, which the broker must allow; by default the user's and the machine's
    #[arg(long, value_name = "NAME", value_parser = read_name, requires = "nats")]
    pub(crate) name: Option<Name>,
    /// The tenant whose hosts to use
    #[arg(long, value_name = "TENANT", value_parser = read_name, requires = "nats", default_value = "default")]
    pub(crate) tenant: Name,
    #[command(flatten)]
    pub(crate) login: Login,
    /// Serve HTTP at this address of this machine instead of stdin and stdout; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = read_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Write the port into this file once it is listened on
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) port_file: Option<PathBuf>,
    /// Say nothing on stderr about the connection
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What a broker is shown.
#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Show the broker this NATS credentials file
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with_all = ["nkey", "user"])]
    pub(crate) creds: Option<PathBuf>,
    /// Show the broker the nkey whose seed is in this file
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with = "user")]
    pub(crate) nkey: Option<PathBuf>,
    /// Be this user of the broker
    #[arg(long, value_name = "USER", requires = "nats")]
    pub(crate) user: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// A PEM file with the authorities that the broker's certificate may be of
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub(crate) ca: Option<PathBuf>,
    /// A PEM file with the certificate that the broker is shown
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

pub(super) fn read_name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn read_nats(text: &str) -> Result<String, String> {
    match check_nats_address(text) {
        Ok(()) => Ok(text.to_owned()),
        Err((what, hint)) => Err(format!("it wants {what}; {hint}")),
    }
}
