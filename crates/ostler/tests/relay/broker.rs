//! NATS server of a test, with the config of `ostler relay nats-config`.

use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};
use tokio::runtime::{Builder, Runtime};

use crate::home::Home;

/// Workers that the broker knows, each with its role.
pub(crate) const WORKERS: [(&str, &str); 3] = [("w1", "crew"), ("w2", "crew"), ("w3", "other")];

/// Directory of the streams in the printed config.
const STORE: &str = "/var/lib/nats";

/// Running NATS server. It belongs to the thread that has started it.
pub(crate) struct Broker {
    server: NatsServer,
    runtime: Runtime,
}

impl Broker {
    /// Starts a broker for the hosts of these names; `home` has the config of one of them.
    pub(crate) fn start(home: &Home, hosts: &[&str], which: NatsVersion) -> Self {
        let mut args: Vec<String> = vec!["relay".into(), "nats-config".into()];
        args.extend(hosts.iter().flat_map(|host| ["--host".to_owned(), (*host).to_owned()]));
        args.extend(
            WORKERS.iter().flat_map(|(name, role)| ["--worker".to_owned(), format!("{name}={role}")]),
        );
        let run = home.run_wide(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(run.code, Some(0), "{run}");
        let config = run.stdout.replace(STORE, home.path("store").to_str().unwrap());
        let hosts = hosts.iter().map(|host| format!("host-{host}"));
        let users = hosts.chain(WORKERS.iter().map(|(name, _)| format!("worker-{name}")));
        let env = users.map(|user| (variable(&user), password(&user))).collect();
        // A role without a worker of the test has one of its own in the config.
        let env = [env, vec![(variable("worker-local"), password("worker-local"))]].concat();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let setup = NatsSetup { config, env, version: which, ..NatsSetup::default() };
        let server = runtime.block_on(NatsServer::start(setup));
        Self { server, runtime }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Suspends the broker: its connections stay open, and nothing moves on them.
    pub(crate) fn freeze(&self) {
        self.runtime.block_on(self.server.freeze());
    }

    /// Ends [`Self::freeze`].
    pub(crate) fn thaw(&self) {
        self.server.thaw();
    }

    /// Kills the broker with `SIGKILL` and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts the broker again with the same port and store.
    pub(crate) fn restart(&mut self) {
        self.runtime.block_on(self.server.restart());
    }
}

/// Returns the variable of a user's password in the printed config.
fn variable(user: &str) -> String {
    format!("OSTLER_{}_PASSWORD", user.to_ascii_uppercase().replace('-', "_"))
}

pub(crate) fn password(user: &str) -> String {
    format!("secret-of-{user}")
}
