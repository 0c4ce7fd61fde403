//! Acts of the nemesis, with their weights.

use super::Nemesis;

macro_rules! acts {
    ($($variant:ident = $name:literal * $weight:literal: $help:literal;)*) => {
        /// A kind of fault that the nemesis injects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Act { $(#[doc = $help] $variant),* }

        impl Act {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the weight of the act among all that are drawn.
            pub(crate) fn weight(self) -> u32 {
                match self { $(Self::$variant => $weight),* }
            }
        }
    };
}

acts! {
    KillServer = "kill-server" * 40: "SIGKILL to a server's process.";
    FreezeServer = "freeze-server" * 8: "SIGSTOP, a while, SIGCONT.";
    KillGuard = "kill-guard" * 5: "SIGKILL to the guard of a server.";
    KillWeb = "kill-web" * 6: "SIGKILL to the server behind a URL, which then is away for a while.";
    Sicken = "sicken" * 6: "The tool of the server `sick` fails for a while.";
    Cut = "cut" * 8: "Connections between clients and the daemon end in the middle of things.";
    Stall = "stall" * 4: "Nothing moves between clients and the daemon.";
    HalfClose = "half-close" * 4: "Clients say nothing more, and still listen.";
    DeafClient = "deaf-client" * 4: "A client asks for much and reads nothing.";
    KillBridge = "kill-bridge" * 5: "SIGKILL to an `ostler stdio`.";
    KillWorker = "kill-worker" * 5: "SIGKILL to a worker.";
    EditServers = "edit-servers" * 6: "The config has a server more, or one less.";
    EditArgs = "edit-args" * 5: "A server of the config has other arguments.";
    EditRoles = "edit-roles" * 4: "The roles of the config have other rules.";
    Reload = "reload" * 6: "`ostler reload SERVER`.";
    StopStart = "stop-start" * 5: "`ostler stop SERVER`, a while, `ostler start SERVER`.";
    KillBroker = "kill-broker" * 4: "SIGKILL to the broker, which then is away for a while.";
    FreezeBroker = "freeze-broker" * 3: "SIGSTOP to the broker, a while, SIGCONT.";
    CutBroker = "cut-broker" * 4: "All connections with the broker end.";
    KillDaemon = "kill-daemon" * 3: "SIGKILL to the daemon, which is started again.";
    FreezeDaemon = "freeze-daemon" * 3: "SIGSTOP to the daemon, a while, SIGCONT.";
    KillSpawner = "kill-warden" * 2: "SIGKILL to the process that starts guards.";
    EndDaemon = "end-daemon" * 2: "SIGTERM to the daemon, which is started again.";
}

impl Act {
    /// Returns whether the act needs the broker.
    pub(crate) fn needs_broker(self) -> bool {
        matches!(self, Self::KillWorker | Self::KillBroker | Self::FreezeBroker | Self::CutBroker)
    }

    /// Parses the names of acts; without names, returns all acts.
    pub(crate) fn parse(names: &[String]) -> anyhow::Result<Vec<Self>> {
        if names.is_empty() {
            return Ok(Self::ALL.to_vec());
        }
        let known = || Self::ALL.iter().map(|act| act.name()).collect::<Vec<_>>().join(", ");
        let find = |name: &String| {
            let act = Self::ALL.iter().copied().find(|act| act.name() == name);
            act.ok_or_else(|| anyhow::anyhow!("there is no act `{name}`; there are {}", known()))
        };
        names.iter().filter(|name| *name != "none").map(find).collect()
    }
}

impl Nemesis {
    pub(super) async fn run_act(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            Act::KillServer => self.kill_server().await,
            Act::FreezeServer => self.freeze_server().await,
            Act::KillGuard => self.kill_guard().await,
            Act::KillWeb => self.kill_web().await,
            Act::Sicken => self.sicken().await,
            Act::Cut | Act::HalfClose | Act::Stall => self.disturb_clients(act).await,
            Act::DeafClient => self.deaf_client().await,
            Act::KillBridge | Act::KillWorker => self.kill_program(act).await,
            Act::EditServers | Act::EditArgs | Act::EditRoles => self.edit(act),
            Act::Reload => self.reload().await,
            Act::StopStart => self.stop_start().await,
            Act::KillBroker | Act::FreezeBroker | Act::CutBroker => self.hurt_broker(act).await,
            Act::KillDaemon => self.kill_daemon().await,
            Act::FreezeDaemon => self.freeze_daemon().await,
            Act::KillSpawner => self.kill_spawner(),
            Act::EndDaemon => self.end_daemon().await,
        }
    }
}
