//! Real NATS servers for tests of the relay.
//!
//! A server has a free port on the loopback address, a folder of its own and nothing in common with
//! another server. It ends when it is dropped, and also when the test's process is killed.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::procs::{Proc, eventually};

/// Longer than any start or reload of the config takes on a busy machine.
const NATS_TIMEOUT: Duration = Duration::from_secs(20);

/// The log line after a reload of the config.
const RELOADED: &str = "Reloaded server configuration";

/// A version of the NATS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NatsVersion {
    /// The old version of Debian. Its JetStream lacks what key-value buckets of the current client
    /// need.
    #[default]
    Core,
    /// A recent version.
    Current,
}

/// The setup of a NATS server.
#[derive(Debug, Clone, Default)]
pub struct NatsSetup {
    /// The config file's content beside the address: accounts, users, limits.
    pub config: String,
    /// The environment, to which the config may refer.
    pub env: Vec<(String, String)>,
    /// Turns JetStream on, for streams and buckets.
    pub jetstream: bool,
    /// The version to start.
    pub version: NatsVersion,
}

/// A running NATS server.
#[derive(Debug)]
pub struct NatsServer {
    setup: NatsSetup,
    folder: TempDir,
    child: Option<Child>,
    port: Option<u16>,
}

impl NatsServer {
    /// Starts a server and waits until it accepts connections.
    pub async fn start(setup: NatsSetup) -> Self {
        let folder = tempfile::Builder::new().prefix("nats-").tempdir().expect("a temporary folder");
        let mut server = Self { setup, folder, child: None, port: None };
        server.restart().await;
        server
    }

    /// Starts a server of a version without any config.
    pub async fn start_default(version: NatsVersion) -> Self {
        Self::start(NatsSetup { version, ..NatsSetup::default() }).await
    }

    /// Returns the address, `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.expect("a server that was started has a port")
    }

    /// Returns the server's folder, for files that its config names.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Kills the server with SIGKILL and waits until it is reaped.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("one's own child can be killed");
            child.wait().expect("one's own child can be waited for");
        }
    }

    /// Starts the server again on the same port, after [`Self::kill`] or in place of it.
    pub async fn restart(&mut self) {
        self.kill();
        self.write_config();
        self.child = Some(self.spawn());
        let pid = self.proc().pid;
        // The server writes the file only once it listens.
        let ports = self.folder().join(format!("nats-server_{pid}.ports"));
        let mut port = None;
        eventually("the NATS server listens", NATS_TIMEOUT, || {
            self.assert_alive();
            port = std::fs::read_to_string(&ports).ok().and_then(|text| port_in(&text));
            port.is_some()
        })
        .await;
        self.port = port;
    }

    /// Replaces the config and waits until the server has reloaded it. Panics if the server refuses
    /// it.
    pub async fn reload(&mut self, config: &str) {
        self.setup.config = config.to_owned();
        self.write_config();
        let count = |log: &str| log.matches(RELOADED).count();
        let before = count(&self.log());
        self.proc().signal(Signal::SIGHUP);
        eventually("the NATS server has read its config again", NATS_TIMEOUT, || {
            let log = self.log();
            assert!(!log.contains("Failed to reload"), "{log}");
            count(&log) > before
        })
        .await;
    }

    /// Freezes the server with SIGSTOP: its connections stay open, and nothing moves on them.
    pub async fn freeze(&self) {
        let proc = self.proc();
        proc.signal(Signal::SIGSTOP);
        eventually("the NATS server is frozen", NATS_TIMEOUT, || proc.is_frozen()).await;
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&self) {
        self.proc().signal(Signal::SIGCONT);
    }

    /// Returns the server's process.
    pub fn proc(&self) -> Proc {
        let child = self.child.as_ref().expect("the server was not killed");
        Proc::find(child.id()).unwrap_or_else(|| panic!("the NATS server has ended:\n{}", self.log()))
    }

    fn assert_alive(&mut self) {
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = status {
            let (code, signal) = (status.code(), status.signal());
            panic!("the NATS server ended, code {code:?}, signal {signal:?}:\n{}", self.log());
        }
    }

    fn write_config(&self) {
        let folder = self.folder().display();
        let port = self.port.map_or(-1, i32::from);
        let mut config = format!("host: 127.0.0.1\nport: {port}\nports_file_dir: \"{folder}\"\n");
        if self.setup.jetstream {
            config.push_str(&format!("jetstream {{ store_dir: \"{folder}/store\" }}\n"));
        }
        config.push_str(&self.setup.config);
        std::fs::write(self.folder().join("nats.conf"), config).expect("the config can be written");
    }

    /// Starts the server under `setpriv`, which makes the kernel kill it with the thread that
    /// started it. `setpriv` executes the server in its own process, so the pid stays.
    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.folder().join("log"));
        let log = log.expect("the log can be written");
        let config = self.folder().join("nats.conf");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program(self.setup.version));
        command.arg("--config").arg(config).envs(self.setup.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().expect("setpriv of util-linux can be started")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the port in `{"nats":["nats://127.0.0.1:4222"]}`, if the file is complete.
fn port_in(ports: &str) -> Option<u16> {
    let ports: serde_json::Value = serde_json::from_str(ports).ok()?;
    // With TLS the scheme differs, and the address is the same.
    ports["nats"].as_array()?.first()?.as_str()?.rsplit(':').next()?.parse().ok()
}

/// Returns the path of the program of a version.
fn program(version: NatsVersion) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let (variable, places): (_, Vec<PathBuf>) = match version {
        NatsVersion::Core => {
            let folders = std::env::split_paths(&on_path).chain(["/usr/sbin".into()]);
            let prepared = tools.join("nats-core/usr/sbin");
            let places = folders.chain([prepared]).map(|folder| folder.join("nats-server"));
            ("OSTLER_NATS_CORE", places.collect())
        }
        NatsVersion::Current => ("OSTLER_NATS_SERVER", vec![tools.join("nats/bin/nats-server")]),
    };
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = named.into_iter().chain(places).find(|place| place.is_file());
    found.unwrap_or_else(|| {
        panic!("no NATS server ({version:?}) is here: run ./scripts/prepare, or name one in {variable}")
    })
}
