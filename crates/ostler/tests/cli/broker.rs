//! Broker of a test: a real NATS server that a test can kill and restart.

use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};
use tokio::runtime::{Builder, Runtime};

/// Running broker, or one that was killed and can come back on its port.
pub(crate) struct CliBroker {
    server: NatsServer,
    runtime: Runtime,
}

impl CliBroker {
    /// Starts a broker that accepts anonymous clients.
    pub(crate) fn open() -> Self {
        Self::start(NatsSetup::default())
    }

    /// Starts a broker with these users, and with these variables that the config refers to.
    pub(crate) fn with_users(config: &str, env: &[(&str, &str)]) -> Self {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::start(NatsSetup { config: config.into(), env, ..NatsSetup::default() })
    }

    /// Starts a broker with JetStream buckets.
    pub(crate) fn with_buckets() -> Self {
        Self::start(NatsSetup { jetstream: true, version: NatsVersion::Current, ..NatsSetup::default() })
    }

    fn start(setup: NatsSetup) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(NatsServer::start(setup));
        Self { server, runtime }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts the broker on the same port.
    pub(crate) fn come_back(&mut self) {
        self.runtime.block_on(self.server.restart());
    }
}
