//! User who has just installed Ostler: an own home, an own config, a short `PATH`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::home::Home;

/// Far above the duration of any mistake, and below every timeout of Ostler: a start may take 60 s.
const FAR_ABOVE: Duration = Duration::from_secs(30);

/// Directories of the machine's programs.
const SYSTEM: &str = "/usr/bin:/bin";

pub(crate) struct NewUser {
    pub(crate) home: Home,
    path: String,
    variables: Vec<(String, String)>,
}

impl NewUser {
    /// Returns a user with this config.
    pub(crate) fn with_config(text: &str) -> Self {
        let newcomer = Self::without_config();
        newcomer.home.write(".config/ostler/ostler.toml", text);
        newcomer
    }

    pub(crate) fn without_config() -> Self {
        Self { home: Home::new(), path: SYSTEM.into(), variables: Vec::new() }
    }

    /// Sets the only directories for programs.
    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// Exports a variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
        command.args(line).current_dir(self.home.path("")).env_clear();
        command.env("HOME", self.home.path("")).env("PATH", &self.path);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Types commands, one after the other; returns all output.
    pub(crate) fn types(&self, lines: &[&str]) -> String {
        let shown: Vec<String> = lines.iter().map(|line| self.types_one(line)).collect();
        shown.join("\n\n")
    }

    #[allow(clippy::print_stderr, reason = "times are shown with --nocapture")]
    fn types_one(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let began = Instant::now();
        let run = self.home.finish(self.command(&words).spawn().unwrap());
        let took = began.elapsed();
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("took {:>5} ms  {test}: ostler {line}", took.as_millis());
        assert!(took < FAR_ABOVE, "it waited for a time limit: {run}");
        let text = run.without_times();
        let text = text.strip_prefix("$ ostler …").unwrap();
        // Printed only after a wait, and tables show values that the system has chosen.
        let mut is_waiting = false;
        let is_lasting = |line: &&str| {
            is_waiting = line.starts_with("waiting: ") || (is_waiting && line.starts_with("  hint: "));
            !is_waiting
        };
        let lines = text.lines().filter(is_lasting).map(without_pid);
        format!("$ ostler {line}{}", lines.collect::<Vec<_>>().join("\n"))
    }
}

/// Returns a line of a table of servers without the pid, which also decides the width of its column.
fn without_pid(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    match words.get_mut(1..3) {
        Some(["ready", pid]) => *pid = "[PID]",
        Some(["STATE", _] | ["ejected" | "failed", "-"]) => {}
        _ => return line.to_owned(),
    }
    words.join("  ")
}
