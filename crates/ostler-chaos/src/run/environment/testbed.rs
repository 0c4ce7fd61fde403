//! Testbed: the folder, programs, ports and tokens of a run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::config::{self, ConfigVariant};
use super::users::{ABUSER, TOKEN_USERS};

/// Upper bound of a command of the product.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The testbed of a run, fixed once everything is up.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) programs: Programs,
    pub(crate) ports: Ports,
    /// Tokens by the name of their user.
    pub(crate) tokens: HashMap<&'static str, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) ostler: PathBuf,
    pub(crate) fake: PathBuf,
}

impl Programs {
    /// Returns the daemon's program, named or beside this one, and `fake-mcp` beside this one.
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

/// Ports on the loopback address.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) daemon: u16,
    /// The proxy in front of the daemon.
    pub(crate) cuttable: u16,
    /// The server behind a URL.
    pub(crate) web: u16,
    /// The proxy in front of the broker.
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

    /// Returns the ledger of a server, shared by all its processes.
    pub(crate) fn ledger(&self, server: &str) -> PathBuf {
        self.folder.join("ledgers").join(format!("{server}.jsonl"))
    }

    /// Returns the file that makes the server `sick` fail while it exists.
    pub(crate) fn sick_file(&self) -> PathBuf {
        self.folder.join("sick")
    }

    /// Writes the config in place, as many editors do.
    pub(crate) fn write_config(&self, variant: ConfigVariant) -> std::io::Result<()> {
        std::fs::write(self.config_file(), config::render(self, variant))
    }

    /// Returns a command of the product on the daemon's machine, with an empty environment.
    pub(crate) fn host_command(&self, args: &[&str]) -> Command {
        self.command("host", args)
    }

    /// Returns a command on a machine without the daemon's files.
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
        // A sabotaged build reads its fault from the environment.
        for variable in ["PATH", "OSTLER_SABOTAGE", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        command.env("NO_COLOR", "1").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end and returns its output.
    pub(crate) async fn run_command(&self, args: &[&str]) -> anyhow::Result<String> {
        let running = tokio::time::timeout(COMMAND_TIMEOUT, self.host_command(args).output());
        let output = running.await.with_context(|| format!("ostler {} does not end", args.join(" ")))??;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ostler {}: {stderr}", args.join(" "));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    pub(crate) async fn create_tokens(&mut self) -> anyhow::Result<()> {
        for user in TOKEN_USERS.iter().chain([&ABUSER]) {
            let args = ["token", "create", "--name", user.name, "--role", user.role];
            let token = self.run_command(&args).await?;
            self.tokens.insert(user.name, token);
        }
        Ok(())
    }
}
