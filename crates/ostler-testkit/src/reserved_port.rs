//! Reserved ports: a test keeps its port while no program listens on it.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of this test alone, for programs that start again at the same address. A socket that is
/// bound and never listens keeps it: the system gives the port to no program that asks for any
/// port, and a program that names it may listen there, because both sockets set `SO_REUSEADDR`.
#[derive(Debug)]
pub struct ReservedPort(TcpSocket);

impl ReservedPort {
    /// Takes a free port of the loopback address.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            Ok(socket)
        });
        Self(socket.unwrap_or_else(|error| panic!("no port: {error}")))
    }

    /// Returns the port's address.
    ///
    /// # Panics
    ///
    /// If the system does not know it.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap_or_else(|error| panic!("no address: {error}"))
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}
