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
    pub(crate) world: TestHost,
    pub(crate) broker: MemoryBroker,
    pub(crate) service: Service,
    pub(crate) worker: Worker,
    /// The gateway of the worker.
    pub(crate) worker_gateway: Gateway,
    /// The gateway of the host.
    pub(crate) host_gateway: Gateway,
    role: &'static str,
    _mirror: ServerMirror,
}

impl RelayPair {
    pub(crate) async fn open(opening: TestHostBuilder) -> Self {
        Self::with_role(opening, "dev").await
    }

    pub(crate) async fn with_role(opening: TestHostBuilder, role: &'static str) -> Self {
        let world = opening.start().await;
        let broker = MemoryBroker::new();
        let name = |text: &str| RelayName::new(text).unwrap();
        let service = Service::start(
            world.host.clone(),
            broker.for_user("host", BrokerPermissions::all()),
            Arc::new(MemoryJournal::new()),
            ServiceOptions::new(name("t"), name("h")),
        );
        let options = WorkerOptions::new(name("t"), name(role), name("w"));
        let worker = Worker::start(broker.for_user("worker", BrokerPermissions::all()), options);
        let host = Host::new(HostOptions::default());
        let mirror = worker.mirror(host.clone());
        let options = GatewayOptions { readiness: Some(mirror.readiness()), ..GatewayOptions::default() };
        let far = Gateway::new(host, options);
        let near = Gateway::new(world.host.clone(), GatewayOptions::default());
        Self {
            world,
            broker,
            service,
            worker,
            worker_gateway: far,
            host_gateway: near,
            role,
            _mirror: mirror,
        }
    }

    /// An agent beside the worker.
    pub(crate) async fn agent(&self, era: Era, capabilities: Value) -> AgentClient {
        AgentClient::open(&self.worker_gateway, Caller::local(), era, capabilities).await
    }

    /// A client of the host itself, who may do what the worker may do.
    pub(crate) async fn client(&self, era: Era, capabilities: Value) -> AgentClient {
        AgentClient::open(&self.host_gateway, Caller::new("worker:w", self.role), era, capabilities).await
    }

    /// Waits for something that takes no more than moments.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{what}"));
    }
}
