//! Everything that is driven, started once and kept over the rounds.

use std::sync::Arc;
use std::time::Duration;

use ostler_host::{Caller, Host, HostOptions};
use ostler_relay::Name;
use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions};
use ostler_relay::nats_config::{HostUser, Login, Wanted, WorkerUser, host_user, nats_config, worker_user};
use ostler_relay::worker::{Mirror, Worker, WorkerOptions};
use ostler_testkit::{NatsServer, NatsSetup, NatsVersion, fake_spec};
use tempfile::TempDir;

use super::bare::Bare;
use super::daemon;
use crate::daemon::Daemon;

/// What the workers show the broker.
const PASSWORD: &str = "straw";

/// The role of the workers, as the daemon's config has it.
const ROLE: &str = "bench";

/// The worker in this process, and the one in a process of its own.
const WORKERS: [&str; 2] = ["inner", "piped"];

/// How long a call is tried until the way is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that is driven.
pub(crate) struct Stage {
    pub(crate) bare: Bare,
    /// The same server in this process, without any relay.
    pub(crate) direct: Host,
    pub(crate) local: Relay,
    /// Its journal is shared; only the current server can have one.
    pub(crate) shared: Option<Relay>,
    /// `ostler worker` as a server of this process.
    pub(crate) piped: Host,
}

impl Stage {
    pub(crate) async fn open(which: NatsVersion) -> Self {
        let local = Relay::open(which, "local").await;
        let shared = match which {
            NatsVersion::Core => None,
            NatsVersion::Current => Some(Relay::open(which, "shared").await),
        };
        let piped = piped(&local.broker).await;
        Self { bare: Bare::open(which).await, direct: direct().await, local, shared, piped }
    }

    /// Which NATS server it is.
    pub(crate) fn version(&self) -> String {
        format!("nats-server {}", self.bare.version())
    }
}

/// A worker here, a broker, and a daemon behind it.
pub(crate) struct Relay {
    pub(crate) host: Host,
    pub(crate) daemon: Daemon,
    pub(crate) broker: NatsServer,
    _mirror: Mirror,
    _store: TempDir,
}

impl Relay {
    pub(crate) async fn open(which: NatsVersion, journal: &str) -> Self {
        let store = tempfile::tempdir().unwrap();
        let broker = NatsServer::start(setup(which, journal == "shared", &store)).await;
        let daemon = daemon::start(&broker.url(), journal).await;
        let options = NatsOptions {
            credentials: Credentials::Password {
                user: worker_user(&name(WORKERS[0])),
                password: PASSWORD.into(),
            },
            ..NatsOptions::new(vec![broker.url()])
        };
        let options = (options, WorkerOptions::new(name("default"), name(ROLE), name(WORKERS[0])));
        let worker = Worker::start(Arc::new(NatsBroker::new(options.0)), options.1);
        // As `ostler worker` has it.
        let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
        let mirror = worker.mirror(host.clone());
        let relay = Self { host, daemon, broker, _mirror: mirror, _store: store };
        relay.ready().await;
        relay
    }

    /// Waits until calls come through.
    pub(crate) async fn ready(&self) {
        answers(&self.host, "echo", "echo").await;
        answers(&self.host, "slow", "echo").await;
    }

    /// The processes: here, the broker, the host.
    pub(crate) fn pids(&self) -> [u32; 3] {
        [std::process::id(), self.broker.proc().pid, self.daemon.pid()]
    }
}

/// A broker as `ostler relay nats-config` sets it up.
fn setup(which: NatsVersion, has_kv: bool, store: &TempDir) -> NatsSetup {
    let worker = |text: &str| WorkerUser { name: name(text), role: name(ROLE), login: Login::Password };
    let config = nats_config(&Wanted {
        tenant: name("default"),
        hosts: vec![HostUser { name: name(daemon::NAME), login: Login::Password }],
        roles: vec![name(ROLE)],
        workers: WORKERS.map(worker).into(),
        max_call_time: Duration::from_secs(600),
        has_kv,
        store: Some(store.path().to_string_lossy().into_owned()),
    });
    let variable = |user: String| format!("OSTLER_{}_PASSWORD", user.to_ascii_uppercase().replace('-', "_"));
    let of_worker = |text: &str| (variable(worker_user(&name(text))), PASSWORD.to_owned());
    let of_host = (variable(host_user(&name(daemon::NAME))), daemon::PASSWORD.to_owned());
    let env = WORKERS.map(of_worker).into_iter().chain([of_host]).collect();
    NatsSetup { config, env, which, jetstream: false }
}

async fn direct() -> Host {
    let host =
        Host::new(HostOptions { guard: Some(ostler_testkit::guard_command()), ..HostOptions::default() });
    let mut echo = fake_spec("echo", &["--raw-echo"]);
    echo.max_in_flight = daemon::IN_FLIGHT;
    host.spawn(&Caller::local(), echo).await.expect("fake-mcp starts");
    let mut slow = fake_spec("slow", &[]);
    slow.max_line = 64 << 20;
    host.spawn(&Caller::local(), slow).await.expect("fake-mcp starts");
    host
}

/// `ostler worker` on its pipes.
async fn piped(broker: &NatsServer) -> Host {
    let host = Host::new(HostOptions { cache_bytes: 0, ..HostOptions::default() });
    let worker = WORKERS[1];
    let user = worker_user(&name(worker));
    let url = broker.url();
    let args = ["worker", "--nats", &url, "--role", ROLE, "--name", worker, "--user", &user];
    let server = ostler_host::ServerName::new("worker").unwrap();
    let mut spec =
        ostler_host::ServerSpec::stdio(server, ostler_testkit::ostler().to_string_lossy()).args(args);
    spec.max_in_flight = daemon::IN_FLIGHT;
    if let ostler_core::spec::Transport::Stdio(process) = &mut spec.transport {
        process.env.insert("OSTLER_NATS_PASSWORD".into(), PASSWORD.into());
    }
    host.spawn(&Caller::local(), spec).await.expect("ostler worker starts");
    answers(&host, "worker", "echo__echo").await;
    host
}

async fn answers(host: &Host, server: &str, tool: &str) {
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
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{server} does not answer"));
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
