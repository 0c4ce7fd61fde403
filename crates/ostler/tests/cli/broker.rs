//! A broker of a test: a real NATS server, started and killed at will.

use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};
use tokio::runtime::{Builder, Runtime};

/// A running broker, or one that was killed and can come back on its port.
pub(crate) struct CliBroker {
    server: NatsServer,
    runtime: Runtime,
}

impl CliBroker {
    /// One that lets in anybody.
    pub(crate) fn open() -> Self {
        Self::start(NatsSetup::default())
    }

    /// One with these users, and with these variables that the config refers to.
    pub(crate) fn with_users(config: &str, env: &[(&str, &str)]) -> Self {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::start(NatsSetup { config: config.into(), env, ..NatsSetup::default() })
    }

    /// One that keeps buckets.
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

    /// On the same port.
    pub(crate) fn come_back(&mut self) {
        self.runtime.block_on(self.server.restart());
    }
}
