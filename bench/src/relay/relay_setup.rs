//! Setup of the relay benchmark, started once and kept over the rounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_host::{Caller, Host, HostOptions};
use ostler_relay::RelayName;
use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions};
use ostler_relay::nats_config::{
    HostUser, NatsConfigSpec, NatsLogin, WorkerUser, host_user_name, nats_config, worker_user_name,
};
use ostler_relay::worker::{ServerMirror, Worker, WorkerOptions};
use ostler_testkit::{NatsServer, NatsSetup, NatsVersion, fake_mcp_spec};
use tempfile::TempDir;

use super::bare_nats::BareNats;
use crate::daemon::BenchDaemon;

/// The password of the workers at the broker.
const WORKER_PASSWORD: &str = "straw";

/// The role of the workers in the daemon's config.
const ROLE: &str = "bench";

/// The worker in this process, and the one in a process of its own.
const WORKERS: [&str; 2] = ["inner", "piped"];

/// Upper bound of the time until calls reach the server.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Every end of a measured path.
pub(crate) struct RelaySetup {
    pub(crate) bare: BareNats,
    /// The same server in this process, without any relay.
    pub(crate) direct: Host,
    pub(crate) local: RelayedHost,
    /// Its journal is shared; only the current server can have one.
    pub(crate) shared: Option<RelayedHost>,
    /// `ostler worker` as a server of this process.
    pub(crate) piped: Host,
}

impl RelaySetup {
    pub(crate) async fn start(version: NatsVersion) -> Self {
        let local = RelayedHost::start(version, "local").await;
        let shared = match version {
            NatsVersion::Core => None,
            NatsVersion::Current => Some(RelayedHost::start(version, "shared").await),
        };
        let piped = piped(&local.broker).await;
        Self { bare: BareNats::start(version).await, direct: direct().await, local, shared, piped }
    }

    /// Returns the version of the NATS server.
    pub(crate) fn version(&self) -> String {
        format!("nats-server {}", self.bare.version())
    }
}

/// A worker here, a broker, and a daemon behind it.
pub(crate) struct RelayedHost {
    pub(crate) host: Host,
    pub(crate) daemon: BenchDaemon,
    pub(crate) broker: NatsServer,
    _mirror: ServerMirror,
    _store: TempDir,
}

impl RelayedHost {
    pub(crate) async fn start(version: NatsVersion, journal: &str) -> Self {
        let store = tempfile::tempdir().unwrap();
        let broker = NatsServer::start(nats_setup(version, journal == "shared", &store)).await;
        let daemon = start_host(&broker.url(), journal).await;
        let options = NatsOptions {
            credentials: Credentials::Password {
                user: worker_user_name(&name(WORKERS[0])),
                password: WORKER_PASSWORD.into(),
            },
            ..NatsOptions::new(vec![broker.url()])
        };
        let options = (options, WorkerOptions::new(name("default"), name(ROLE), name(WORKERS[0])));
        let worker = Worker::start(Arc::new(NatsBroker::new(options.0)), options.1);
        // The options of `ostler worker`.
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let mirror = worker.mirror(host.clone());
        let relay = Self { host, daemon, broker, _mirror: mirror, _store: store };
        relay.wait_until_ready().await;
        relay
    }

    /// Waits until calls come through.
    pub(crate) async fn wait_until_ready(&self) {
        wait_until_callable(&self.host, "echo", "echo").await;
        wait_until_callable(&self.host, "slow", "echo").await;
    }

    /// Returns the processes: this one, the broker, the host.
    pub(crate) fn pids(&self) -> [u32; 3] {
        [std::process::id(), self.broker.proc().pid, self.daemon.pid()]
    }
}

/// Returns the setup of a broker as `ostler relay nats-config` writes it.
fn nats_setup(version: NatsVersion, has_kv: bool, store: &TempDir) -> NatsSetup {
    let worker = |text: &str| WorkerUser { name: name(text), role: name(ROLE), login: NatsLogin::Password };
    let config = nats_config(&NatsConfigSpec {
        tenant: name("default"),
        hosts: vec![HostUser { name: name(HOST_NAME), login: NatsLogin::Password }],
        roles: vec![name(ROLE)],
        workers: WORKERS.map(worker).into(),
        max_call_time: Duration::from_secs(600),
        has_kv,
        store_dir: Some(store.path().to_string_lossy().into_owned()),
    });
    let variable = |user: String| format!("OSTLER_{}_PASSWORD", user.to_ascii_uppercase().replace('-', "_"));
    let of_worker = |text: &str| (variable(worker_user_name(&name(text))), WORKER_PASSWORD.to_owned());
    let of_host = (variable(host_user_name(&name(HOST_NAME))), HOST_PASSWORD.to_owned());
    let env = WORKERS.map(of_worker).into_iter().chain([of_host]).collect();
    NatsSetup { config, env, version, jetstream: false }
}

async fn direct() -> Host {
    let host =
        Host::new(HostOptions { guard: Some(ostler_testkit::guard_command()), ..HostOptions::default() });
    let mut echo = fake_mcp_spec("echo", &["--raw-echo"]);
    echo.max_in_flight = IN_FLIGHT;
    host.spawn(&Caller::local(), echo).await.expect("fake-mcp starts");
    let mut slow = fake_mcp_spec("slow", &[]);
    slow.max_line = 64 << 20;
    host.spawn(&Caller::local(), slow).await.expect("fake-mcp starts");
    host
}

/// Starts `ostler worker` on its pipes.
async fn piped(broker: &NatsServer) -> Host {
    let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
    let worker = WORKERS[1];
    let user = worker_user_name(&name(worker));
    let url = broker.url();
    let args = ["worker", "--nats", &url, "--role", ROLE, "--name", worker, "--user", &user];
    let server = ostler_host::ServerName::new("worker").unwrap();
    let mut spec =
        ostler_host::ServerSpec::stdio(server, ostler_testkit::ostler().to_string_lossy()).args(args);
    spec.max_in_flight = IN_FLIGHT;
    if let ostler_core::spec::ServerTransport::Stdio(process) = &mut spec.transport {
        process.env.insert("OSTLER_NATS_PASSWORD".into(), WORKER_PASSWORD.into());
    }
    host.spawn(&Caller::local(), spec).await.expect("ostler worker starts");
    wait_until_callable(&host, "worker", "echo__echo").await;
    host
}

async fn wait_until_callable(host: &Host, server: &str, tool: &str) {
    let caller = Caller::local();
    let asking = async {
        let mut last = None;
        while let Err(error) = host.call(&caller, server, tool, serde_json::json!({"text": "x"})).await {
            if last.replace(error.to_string()) != Some(error.to_string()) {
                eprintln!("{server}: {error}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(READY_TIMEOUT, asking).await.unwrap_or_else(|_| panic!("{server} does not answer"));
}

fn name(text: &str) -> RelayName {
    RelayName::new(text).unwrap()
}

/// Longer than any answer that is measured.
const MAX_LINE: &str = "64MiB";

/// The host's name, and its password at the broker.
const HOST_NAME: &str = "mill";
const HOST_PASSWORD: &str = "grain";

/// Calls that a server may have at once: more than there are callers.
const IN_FLIGHT: usize = 1_024;

/// Starts a host whose journal is `local` or `shared`.
async fn start_host(nats: &str, journal: &str) -> BenchDaemon {
    let config = |folder: &Path| host_config(&folder.join(FRAMES), nats, journal);
    BenchDaemon::start(config, vec![("OSTLER_HOST_PASSWORD", HOST_PASSWORD)], Vec::new()).await
}

const FRAMES: &str = "frames";

/// Returns the file with every line that the server `slow` has received.
pub(super) fn frames(daemon: &BenchDaemon) -> PathBuf {
    daemon.path(FRAMES)
}

fn host_config(frames: &Path, nats: &str, journal: &str) -> String {
    let text = |path: &Path| serde_json::to_string(&path.to_string_lossy()).unwrap();
    let (fake, frames) = (text(&ostler_testkit::fake_mcp()), text(frames));
    format!(
        r#"version = 1
[servers.echo]
command = {fake}
args = ["--raw-echo"]
lazy = false
max_in_flight = {IN_FLIGHT}
[servers.slow]
command = {fake}
args = ["--frames", {frames}]
lazy = false
max_line = "{MAX_LINE}"
[roles.bench]
allow = ["*"]
[relay]
nats = "{nats}"
host = "{HOST_NAME}"
user = "host-{HOST_NAME}"
password = "${{env:OSTLER_HOST_PASSWORD}}"
journal = "{journal}"
"#
    )
}
