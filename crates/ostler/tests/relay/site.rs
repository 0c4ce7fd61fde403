//! Site: a machine of a test, with a host or with a worker.

use std::fs::File;
use std::process::Command;

use ostler_testkit::{NatsVersion, fake_mcp};

use crate::broker::{Broker, password};
use crate::daemon::Daemon;
use crate::home::Home;

/// Setup of the hosts of a test.
pub(crate) struct Setup<'a> {
    /// Names of the hosts.
    pub(crate) hosts: &'a [&'a str],
    /// Switches of their server `fake`, beside its ledger.
    pub(crate) args: &'a [&'a str],
    /// Call timeout, as the config spells it.
    pub(crate) call_timeout: &'a str,
    /// Further lines of their configs.
    pub(crate) more: &'a str,
    /// They keep their journal at the broker.
    pub(crate) is_shared: bool,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { hosts: &["mill"], args: &[], call_timeout: "3s", more: "", is_shared: false }
    }
}

/// Machine of a host.
pub(crate) struct Site {
    pub(crate) home: Home,
    name: String,
}

impl Setup<'_> {
    /// Starts the broker and creates the hosts' machines; no host runs yet.
    pub(crate) fn build(&self) -> (Broker, Vec<Site>) {
        let site = |name: &&str| Site { home: Home::new(), name: (*name).to_owned() };
        let sites: Vec<Site> = self.hosts.iter().map(site).collect();
        // The broker's address is known once it runs, and its settings come from the config: so the config is written
        // twice.
        sites.iter().for_each(|site| self.configure(site, "nats://127.0.0.1:4222"));
        let which = if self.is_shared { NatsVersion::Current } else { NatsVersion::Core };
        let broker = Broker::start(&sites[0].home, self.hosts, which);
        sites.iter().for_each(|site| self.configure(site, &broker.url()));
        (broker, sites)
    }

    fn configure(&self, site: &Site, url: &str) {
        let (name, Self { call_timeout, more, .. }) = (&site.name, self);
        let journal = if self.is_shared { "shared" } else { "local" };
        let args = [&["--ledger", "ledger"], self.args].concat();
        let fake = fake_mcp();
        let config = format!(
            r#"
[servers.fake]
command = {fake:?}
args = {args:?}
lazy = false
call_timeout = "{call_timeout}"
max_in_flight = 256
max_line = "64MiB"
[roles.local]
allow = ["*"]
[roles.crew]
allow = ["*"]
[roles.other]
allow = ["*"]
{more}
[relay]
nats = "{url}"
host = "{name}"
user = "host-{name}"
password = "${{env:RELAY_PASSWORD}}"
journal = "{journal}"
"#
        );
        site.home.write("ostler.toml", &config);
    }
}

impl Site {
    /// Starts the host. Its stderr goes into the file `said`.
    pub(crate) fn start(&self) -> Daemon<'_> {
        let said = File::options().create(true).append(true).open(self.home.path("said")).unwrap();
        Daemon::start_as(&self.home, |command| {
            command.env("RELAY_PASSWORD", password(&format!("host-{}", self.name)));
            command.stderr(said);
        })
    }

    /// Returns a line for each call that was executed here.
    pub(crate) fn ledger(&self) -> Vec<String> {
        self.home.lines("ledger")
    }

    /// Returns the stderr of all processes of its host.
    pub(crate) fn said(&self) -> String {
        self.home.lines("said").join("\n")
    }
}

/// Returns the command of a worker in the role `crew`.
pub(crate) fn worker(home: &Home, broker: &Broker, name: &str) -> Command {
    worker_in_role(home, broker, name, "crew")
}

/// Returns the command of a worker that asks for this role.
pub(crate) fn worker_in_role(home: &Home, broker: &Broker, name: &str, role: &str) -> Command {
    let user = format!("worker-{name}");
    let url = broker.url();
    let mut command =
        home.command(&["worker", "--nats", &url, "--role", role, "--name", name, "--user", &user]);
    command.env("OSTLER_NATS_PASSWORD", password(&user));
    command
}
