//! The side of whoever uses a host from elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{TEMPLATE, read_address, read_time};

/// Use the tools of a host elsewhere: MCP on stdin and stdout
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler worker --url https://tools.example/mcp --token-file ~/.secrets/ci
  ostler worker --url http://127.0.0.1:7777/mcp --listen 127.0.0.1:8000",
    after_help = "A host that is not there is waited for, now and whenever it goes away, and that is said on stderr. \
It ends when its input ends, and with a signal.

A token is read from a file or from OSTLER_TOKEN, anew for each session with the host."
)]
pub(crate) struct Worker {
    /// The endpoint of the host, such as https://tools.example/mcp
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) url: Option<String>,
    /// Be the caller of the token in this file
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a call may take without a sign of progress
    #[arg(long, value_name = "TIME", value_parser = read_time, requires = "url", default_value = "70s")]
    pub(crate) timeout: Duration,
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
