//! A host with its servers, and a worker that reaches them.

use std::sync::Arc;
use std::time::Duration;

use ostler_gateway::{Gateway, GatewayOptions};
use ostler_host::{Caller, Host, HostOptions};
use ostler_relay::RelayName;
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::journal::MemoryJournal;
use ostler_relay::service::{Service, ServiceOptions};
use ostler_relay::worker::{ServerMirror, Worker, WorkerOptions};
use ostler_testkit::{TestHost, TestHostBuilder};
use ostler_wire::Era;
use serde_json::Value;

use crate::agent_client::AgentClient;

/// A host with its servers, and a worker that reaches them.
pub(crate) struct RelayPair {
    pub(crate) test_host: TestHost,
    pub(crate) broker: MemoryBroker,
    pub(crate) service: Service,
    pub(crate) worker: Worker,
    /// Gateway of the worker.
    pub(crate) worker_gateway: Gateway,
    /// Gateway of the host.
    pub(crate) host_gateway: Gateway,
    role: &'static str,
    _mirror: ServerMirror,
}

impl RelayPair {
    pub(crate) async fn open(builder: TestHostBuilder) -> Self {
        Self::with_role(builder, "dev").await
    }

    pub(crate) async fn with_role(builder: TestHostBuilder, role: &'static str) -> Self {
        let test_host = builder.start().await;
        let broker = MemoryBroker::new();
        let name = |text: &str| RelayName::new(text).unwrap();
        let service = Service::start(
            test_host.host.clone(),
            broker.for_user("host", BrokerPermissions::all()),
            Arc::new(MemoryJournal::new()),
            ServiceOptions::new(name("t"), name("h")),
        );
        let options = WorkerOptions::new(name("t"), name(role), name("w"));
        let worker = Worker::start(broker.for_user("worker", BrokerPermissions::all()), options);
        let host = Host::new(HostOptions::default());
        let mirror = worker.mirror(host.clone());
        let options = GatewayOptions { readiness: Some(mirror.readiness()), ..GatewayOptions::default() };
        let worker_gateway = Gateway::new(host, options);
        let host_gateway = Gateway::new(test_host.host.clone(), GatewayOptions::default());
        Self { test_host, broker, service, worker, worker_gateway, host_gateway, role, _mirror: mirror }
    }

    /// Connects a client to the worker's gateway.
    pub(crate) async fn agent(&self, era: Era, capabilities: Value) -> AgentClient {
        AgentClient::open(&self.worker_gateway, Caller::local(), era, capabilities).await
    }

    /// Connects a client with the worker's role to the host's gateway.
    pub(crate) async fn client(&self, era: Era, capabilities: Value) -> AgentClient {
        AgentClient::open(&self.host_gateway, Caller::new("worker:w", self.role), era, capabilities).await
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what}"));
    }
}
