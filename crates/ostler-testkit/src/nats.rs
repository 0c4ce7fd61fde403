//! Real NATS servers, for tests of what goes through one.
//!
//! A server has a free port of the loopback, a folder of its own and nothing
//! in common with another. It goes with the test: when it is dropped, and also
//! when the test's process is killed.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::procs::{Proc, eventually};

/// A server that takes longer to come up, or to read its config again, never will.
const NATS_TIMEOUT: Duration = Duration::from_secs(20);

/// What it says once it has taken its config again.
const RELOADED: &str = "Reloaded server configuration";

/// Which NATS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NatsVersion {
    /// The old one that Debian has. Its JetStream is not enough for key-value
    /// buckets of the current client.
    #[default]
    Core,
    /// A recent one.
    Current,
}

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct NatsSetup {
    /// What its config file holds beside the address: accounts, users, limits.
    pub config: String,
    /// Its environment, which the config may refer to.
    pub env: Vec<(String, String)>,
    /// Whether it keeps streams and buckets.
    pub jetstream: bool,
    /// Which one.
    pub version: NatsVersion,
}

/// A running server.
#[derive(Debug)]
pub struct NatsServer {
    setup: NatsSetup,
    folder: TempDir,
    child: Option<Child>,
    port: Option<u16>,
}

impl NatsServer {
    /// Starts one and waits until it takes connections.
    pub async fn start(setup: NatsSetup) -> Self {
        let folder = tempfile::Builder::new().prefix("nats-").tempdir().expect("a temporary folder");
        let mut server = Self { setup, folder, child: None, port: None };
        server.restart().await;
        server
    }

    /// A server of that version without any config.
    pub async fn start_default(which: NatsVersion) -> Self {
        Self::start(NatsSetup { version: which, ..NatsSetup::default() }).await
    }

    /// Where it is: `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.expect("a server that was started has a port")
    }

    /// Its folder, for files that its config names.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Everything that it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("one's own child can be killed");
            child.wait().expect("one's own child can be waited for");
        }
    }

    /// Starts it again on the same port, after [`Self::kill`] or in place of it.
    pub async fn restart(&mut self) {
        self.kill();
        self.write_config();
        self.child = Some(self.spawn());
        let pid = self.proc().pid;
        // The server writes it when it listens, and not before.
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

    /// Gives it another config and waits until it has taken it. Panics if it does not.
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

    /// Freezes it: its connections stay open, and nothing moves on them.
    pub async fn freeze(&self) {
        let proc = self.proc();
        proc.signal(Signal::SIGSTOP);
        eventually("the NATS server is frozen", NATS_TIMEOUT, || proc.is_frozen()).await;
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&self) {
        self.proc().signal(Signal::SIGCONT);
    }

    /// Its process.
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

    /// `setpriv` has the kernel kill it with the thread that has started it,
    /// and becomes it: the number stays.
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

/// The port in `{"nats":["nats://127.0.0.1:4222"]}`, if it is written already.
fn port_in(ports: &str) -> Option<u16> {
    let ports: serde_json::Value = serde_json::from_str(ports).ok()?;
    // With TLS it is another scheme, and the same place.
    ports["nats"].as_array()?.first()?.as_str()?.rsplit(':').next()?.parse().ok()
}

/// Where the program of that version is.
fn program(which: NatsVersion) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let (variable, places): (_, Vec<PathBuf>) = match which {
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
        panic!("no NATS server ({which:?}) is here: run ./scripts/prepare, or name one in {variable}")
    })
}
