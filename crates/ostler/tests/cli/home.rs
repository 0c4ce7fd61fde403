//! Isolated home of each test.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ostler_testkit::fake_mcp;
use tempfile::TempDir;

/// Longer than the stop sequence of a server that ignores every signal.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Directory in which `ostler` finds no files of the machine's user.
///
/// Its path is the `HOME` of every process that a test starts, directly or indirectly, and the working directory of
/// those that have no environment, so processes that are left over can be found. Dropping it asserts that there are
/// none.
pub(crate) struct Home {
    folder: TempDir,
}

/// Output and exit code of a command, with the parts replaced that differ between runs.
pub(crate) struct Run {
    line: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Returns a home whose config has these servers: a name and the switches of `fake-mcp`.
    pub(crate) fn with_servers(servers: &[(&str, &[&str])]) -> Self {
        let home = Self::new();
        let table = |(name, args): &(&str, &[&str])| {
            format!("[servers.{name}]\ncommand = {:?}\nargs = {args:?}\n", fake_mcp())
        };
        home.write("ostler.toml", &servers.iter().map(table).collect::<String>());
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Returns the command for this home, with no variable of the environment. It names the config of the home, which
    /// is consent to run its servers.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let config = ["ostler.toml", ".mcp.json"].into_iter().find(|name| self.path(name).exists());
        match config.filter(|_| args[0] != "guard" && !args.contains(&"--config")) {
            Some(config) => self.finding_command(&[&["--config", config], args].concat()),
            None => self.finding_command(args),
        }
    }

    /// Returns the same command without the config's name: it finds the config in the working directory.
    pub(crate) fn finding_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
        command.args(args).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).env("XDG_STATE_HOME", self.path("state"));
        command.env("NO_COLOR", "1").env("COLUMNS", "80");
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.shown(args, &self.command(args).output().unwrap())
    }

    /// Runs a command that finds the config by itself.
    pub(crate) fn run_finding(&self, args: &[&str]) -> Run {
        self.shown(args, &self.finding_command(args).output().unwrap())
    }

    /// Runs with lines of any length: paths are longer on some machines.
    pub(crate) fn run_wide(&self, args: &[&str]) -> Run {
        self.shown(args, &self.command(args).env("COLUMNS", "1000").output().unwrap())
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Run {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        self.shown(args, &child.wait_with_output().unwrap())
    }

    /// Returns the output of a child that has been started with [`Home::command`].
    pub(crate) fn finish(&self, child: Child) -> Run {
        self.shown(&["…"], &child.wait_with_output().unwrap())
    }

    fn shown(&self, args: &[&str], output: &Output) -> Run {
        let text = |bytes: &[u8]| self.neutral(std::str::from_utf8(bytes).unwrap());
        Run {
            line: args.iter().map(|arg| format!(" {}", self.neutral(arg))).collect(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            code: output.status.code(),
        }
    }

    /// Replaces paths that differ between machines and runs.
    fn neutral(&self, text: &str) -> String {
        let replace = |text: String, path: &Path, name: &str| text.replace(path.to_str().unwrap(), name);
        let text = replace(text.to_owned(), self.folder.path(), "[HOME]");
        let text = replace(text, &fake_mcp(), "[FAKE]");
        replace(text, Path::new(env!("CARGO_BIN_EXE_ostler")), "[OSTLER]")
    }

    /// Returns processes, other than the test itself, that were started for this home.
    pub(crate) fn left(&self) -> Vec<String> {
        let home = format!("HOME={}", self.folder.path().display());
        let at = self.folder.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let is_ours = |folder: &PathBuf| {
            let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
                || (is_guard(folder) && std::fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd == at))
        };
        let name = |folder: PathBuf| {
            let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            format!("{}: {}", folder.display(), String::from_utf8_lossy(&line).replace('\0', " "))
        };
        entries.map(|entry| entry.path()).filter(is_ours).map(name).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind: {left:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Run {
    /// Returns the whole text, with numbers of milliseconds replaced.
    pub(crate) fn without_times(&self) -> String {
        let text = self.to_string();
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, from) = rest.split_at(at);
            let digits = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
            out.push_str(before);
            out.push_str(if from[digits..].starts_with("ms") { "[N]" } else { &from[..digits] });
            rest = &from[digits..];
        }
        out + rest
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ ostler{}", self.line)?;
        write!(f, "{}", self.stdout)?;
        if !self.stderr.is_empty() {
            write!(f, "--- stderr\n{}", self.stderr)?;
        }
        match self.code {
            Some(code) => write!(f, "--- exit {code}"),
            None => write!(f, "--- ended by a signal"),
        }
    }
}

/// Returns whether a process is a guard or warden, which have no environment.
fn is_guard(folder: &Path) -> bool {
    let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
    ["ostler-guard\n", "ostler-warden\n"].contains(&name.as_str())
}

/// Waits until a condition holds, at most the timeout of all tests here.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_left_behind_is_found() {
    let home = Home::new();
    let mut sleeper = Command::new("sleep").arg("1000").env("HOME", home.folder.path()).spawn().unwrap();
    until("the process shows", || home.left().len() == 1);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(home.left().is_empty());

    let mut warden = home.command(&["guard", "--warden"]).env_clear().stdin(Stdio::piped()).spawn().unwrap();
    until("the warden shows", || home.left().len() == 1);
    warden.kill().unwrap();
    warden.wait().unwrap();
}
