//! Transport between the agent and the worker.

use std::net::SocketAddr;
use std::path::PathBuf;

use ostler_core::loopback::is_loopback;
use ostler_gateway::{ConnectionLimits, Gateway, HttpService, Scope};
use ostler_host::Caller;
use tokio::net::TcpListener;

use super::{StatusPrinter, stdio_stream};
use crate::failure::CommandFailure;
use crate::instance;

/// Transport between the agent and the worker.
#[derive(Debug)]
pub(crate) enum AgentTransport {
    /// stdin and stdout.
    Stdio,
    /// HTTP on a loopback address.
    Http {
        /// Always a loopback address.
        address: SocketAddr,
        /// File for the port.
        port_file: Option<PathBuf>,
    },
}

impl AgentTransport {
    /// Returns the transport of the command line. A client of the worker acts with its credentials, so only this
    /// machine may connect.
    pub(crate) fn new(
        listen: Option<SocketAddr>,
        port_file: Option<PathBuf>,
    ) -> Result<Self, CommandFailure> {
        match listen {
            None => Ok(Self::Stdio),
            Some(address) if is_loopback(address.ip()) => Ok(Self::Http { address, port_file }),
            Some(address) => Err(CommandFailure::Usage {
                what: format!(
                    "{address} can be reached from other machines, and a worker asks nobody who they are"
                ),
                hint: Some("listen on 127.0.0.1, or give the others a worker each".into()),
            }),
        }
    }

    /// Serves until the agent closes stdin; over HTTP there is no such end.
    pub(super) async fn serve(
        &self,
        gateway: &Gateway,
        face: Scope,
        voice: &StatusPrinter,
    ) -> Result<(), CommandFailure> {
        match self {
            Self::Stdio => {
                let (stream, output) = stdio_stream::open().map_err(CommandFailure::Machine)?;
                let (reader, writer) = tokio::io::split(stream);
                gateway.serve_stream(reader, writer, Caller::local(), face).await;
                output.finish()
            }
            Self::Http { address, port_file } => {
                let unheard = |error: std::io::Error| CommandFailure::Listen {
                    address: *address,
                    why: error.to_string(),
                    hint: "name another port with --listen".into(),
                };
                let listener = TcpListener::bind(address).await.map_err(unheard)?;
                let address = listener.local_addr().map_err(CommandFailure::Machine)?;
                if let Some(file) = port_file {
                    let unwritable = |why| CommandFailure::Unwritable { file: file.clone(), why };
                    ostler_store::private_file::replace_file(
                        file,
                        format!("{}\n", address.port()).as_bytes(),
                    )
                    .map_err(unwritable)?;
                }
                voice(&format!("listening at {}/mcp", instance::local_url(address)));
                let limits = ConnectionLimits::default();
                let service = HttpService::new(gateway.clone());
                ostler_gateway::serve(listener, service, limits, std::future::pending()).await;
                Ok(())
            }
        }
    }
}
