//! The folder of a run, and who is where.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::config::{self, ConfigVariant};
use super::users::{ABUSER, TOKEN_USERS};

/// How long a command of the product may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Fixed for a run once everything has come up.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) programs: Programs,
    pub(crate) ports: Ports,
    /// By the name of their person.
    pub(crate) tokens: HashMap<&'static str, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) ostler: PathBuf,
    pub(crate) fake: PathBuf,
}

impl Programs {
    /// The daemon's program if it is named, and what stands beside this one.
    pub(crate) fn find(ostler: Option<&Path>) -> anyhow::Result<Self> {
        let ostler = match ostler {
            Some(named) => std::path::absolute(named)?,
            None => find_sibling("ostler")?,
        };
        ensure!(ostler.is_file(), "--ostler: there is no program {}", ostler.display());
        Ok(Self { ostler, fake: find_sibling("fake-mcp")? })
    }
}

fn find_sibling(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own.with_file_name(name);
    ensure!(
        found.is_file(),
        "there is no {}: run `cargo build -p ostler -p ostler-testkit -p ostler-chaos --bins` first",
        found.display()
    );
    Ok(found)
}

/// All on the loopback.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) daemon: u16,
    /// The daemon behind something that can be cut.
    pub(crate) cuttable: u16,
    /// The server behind a URL.
    pub(crate) web: u16,
    /// The broker, behind something that can be cut.
    pub(crate) broker: Option<u16>,
}

impl Testbed {
    pub(crate) fn new(folder: &Path, programs: Programs) -> anyhow::Result<Self> {
        for name in ["host", "far", "ledgers"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        Ok(Self { folder: folder.to_owned(), programs, ports: Ports::default(), tokens: HashMap::new() })
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder.join("host/ostler.toml")
    }

    /// One for each server, shared by all its processes.
    pub(crate) fn ledger(&self, server: &str) -> PathBuf {
        self.folder.join("ledgers").join(format!("{server}.jsonl"))
    }

    /// While it is there, the server `sick` is.
    pub(crate) fn sick_file(&self) -> PathBuf {
        self.folder.join("sick")
    }

    /// Writes the config as an editor does that saves in place.
    pub(crate) fn write_config(&self, shape: ConfigVariant) -> std::io::Result<()> {
        std::fs::write(self.config_file(), config::render(self, shape))
    }

    /// A command of the product on the daemon's machine, in nobody's environment.
    pub(crate) fn host_command(&self, args: &[&str]) -> Command {
        self.command("host", args)
    }

    /// The same on a machine that has nothing of the daemon's.
    pub(crate) fn worker_command(&self, args: &[&str]) -> Command {
        self.command("far", args)
    }

    fn command(&self, machine: &str, args: &[&str]) -> Command {
        let home = self.folder.join(machine);
        let mut command = Command::new(&self.programs.ostler);
        command.args(args).current_dir(&home).env_clear().env("HOME", &home);
        for (variable, folder) in [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")] {
            command.env(variable, home.join(folder));
        }
        // A build that is broken on purpose is told so by its environment.
        for variable in ["PATH", "OSTLER_SABOTAGE", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        command.env("NO_COLOR", "1").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end; what it prints.
    pub(crate) async fn run_command(&self, args: &[&str]) -> anyhow::Result<String> {
        let running = tokio::time::timeout(COMMAND_TIMEOUT, self.host_command(args).output());
        let output = running.await.with_context(|| format!("ostler {} does not end", args.join(" ")))??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ostler {}: {said}", args.join(" "));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    pub(crate) async fn create_tokens(&mut self) -> anyhow::Result<()> {
        for person in TOKEN_USERS.iter().chain([&ABUSER]) {
            let args = ["token", "create", "--name", person.name, "--role", person.role];
            let token = self.run_command(&args).await?;
            self.tokens.insert(person.name, token);
        }
        Ok(())
    }
}
