//! `PATH` of the user's login shell, for hosts started by a desktop program.
//!
//! Such a host has the directories of the system alone, and finds neither nvm's node nor Homebrew nor uv. The shell
//! is run once, before the first server; its directories that the host lacks are appended. Nothing else is taken from
//! it.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, User, getuid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Time for the shell and its start-up files. A shell that takes longer asks its user something.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of output that are read: start-up files may greet.
const MAX_OUTPUT: usize = 256 << 10;

/// Set for the shell, so that start-up files can tell that no user sits before it.
const NOTE: &str = "OSTLER_RESOLVING_PATH";

/// Directories that a system gives to every process. A `PATH` with any other was set up by its user.
const SYSTEM: [&str; 12] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/games",
    "/usr/local/games",
    "/snap/bin",
    "/var/lib/snapd/snap/bin",
    "/Library/Apple/usr/bin",
    "/System/Cryptexes/App/usr/bin",
];

/// `PATH` for the servers of one host.
#[derive(Debug)]
pub(crate) struct LoginPath {
    is_wanted: bool,
    /// The merged `PATH`; `None` is the host's own.
    merged: OnceCell<Option<String>>,
}

impl LoginPath {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, merged: OnceCell::new() }
    }

    /// Returns the `PATH` of the host and of the login shell, or `None` where that of the host is all there is.
    pub(crate) async fn get(&self) -> Option<&str> {
        self.merged.get_or_init(|| self.find()).await.as_deref()
    }

    async fn find(&self) -> Option<String> {
        let own = std::env::var("PATH").unwrap_or_default();
        if !self.is_wanted || has_terminal() || !is_system_only(&own) {
            return None;
        }
        let shell = tokio::task::spawn_blocking(login_shell).await.ok()??;
        match query_shell_path(&shell, PATIENCE).await {
            Ok(path) => {
                let merged = merge(&own, &path);
                tracing::info!(shell = %shell.display(), path = %merged, "servers get the PATH of the login shell too");
                Some(merged)
            }
            Err(why) => {
                tracing::warn!(shell = %shell.display(), why, "the login shell did not tell its PATH");
                None
            }
        }
    }
}

/// Returns whether the host belongs to a terminal: then its `PATH` is what the user wants.
fn has_terminal() -> bool {
    let is_open =
        std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
    is_open || std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

fn is_system_only(path: &str) -> bool {
    std::env::split_paths(path).all(|folder| SYSTEM.iter().any(|known| folder == Path::new(known)))
}

fn login_shell() -> Option<PathBuf> {
    let named = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let shell = named.or_else(|| Some(User::from_uid(getuid()).ok()??.shell))?;
    let is_login = !shell.ends_with("nologin") && !shell.ends_with("false");
    (shell.is_absolute() && is_login).then_some(shell)
}

/// Runs a shell with the user's start-up files and returns its `PATH`.
async fn query_shell_path(shell: &Path, patience: Duration) -> Result<String, &'static str> {
    let mark = format!("{:016x}", fastrand::u64(..));
    // Every shell understands a program with quoted arguments; few agree on more.
    let line = format!("/bin/sh -c 'printf \"{mark}%s{mark}\" \"$PATH\"'");
    let mut command = Command::new(shell);
    command.args(flags(shell)).arg(line).env(NOTE, "1").env("TERM", "dumb");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child =
        command.process_group(0).kill_on_drop(true).spawn().map_err(|_| "it could not be started")?;
    let output = child.stdout.take().ok_or("it has no output")?;
    let found = timeout(patience, read_between(output, mark.as_bytes())).await;
    // Also what its start-up files have left in the group.
    if let Some(pid) = child.id() {
        let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    let _ = timeout(patience, child.wait()).await;
    found.map_err(|_| "it took longer than 5 s")?.ok_or("its output has none")
}

fn flags(shell: &Path) -> &'static [&'static str] {
    match shell.file_name().and_then(OsStr::to_str).unwrap_or_default() {
        "csh" | "tcsh" => &["-ic"],
        "pwsh" => &["-Login", "-Command"],
        _ => &["-i", "-l", "-c"],
    }
}

/// Reads until the text between two marks is complete.
async fn read_between(mut output: impl AsyncRead + Unpin, mark: &[u8]) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let more = (&mut output).take(16 << 10).read_buf(&mut bytes).await.ok()?;
        let begin = memchr::memmem::find(&bytes, mark).map(|at| at + mark.len());
        let end = begin.and_then(|begin| Some((begin, begin + memchr::memmem::find(&bytes[begin..], mark)?)));
        if let Some((begin, end)) = end {
            return String::from_utf8(bytes[begin..end].to_vec()).ok();
        }
        if more == 0 || bytes.len() > MAX_OUTPUT {
            return None;
        }
    }
}

/// Appends directories that are missing; relative ones would mean another directory for each server.
fn merge(own: &str, login: &str) -> String {
    let mut folders: Vec<PathBuf> = std::env::split_paths(own).collect();
    for folder in std::env::split_paths(login) {
        if folder.is_absolute() && !folder.as_os_str().as_bytes().contains(&0) && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let joined = std::env::join_paths(folders).ok().and_then(|joined| joined.into_string().ok());
    joined.unwrap_or_else(|| own.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn shell(folder: &Path, script: &str) -> PathBuf {
        let file = folder.join("shell");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_path_with_a_directory_of_the_users_own_is_left_alone() {
        assert!(is_system_only("/usr/bin:/bin:/usr/sbin:/sbin") && is_system_only("/usr/local/bin:/usr/bin"));
        assert!(
            !is_system_only("/usr/bin:/home/ann/.nvm/bin") && !is_system_only("/opt/homebrew/bin:/usr/bin")
        );
    }

    #[test]
    fn missing_directories_come_last() {
        assert_eq!(
            merge("/usr/bin:/bin", "/home/ann/bin:/bin:relative:/opt/x"),
            "/usr/bin:/bin:/home/ann/bin:/opt/x"
        );
    }

    #[tokio::test]
    async fn only_the_path_is_taken_from_a_shell_that_greets() {
        let dir = tempfile::tempdir().unwrap();
        // The last argument is the line; start-up files write before and after it.
        let shell = shell(
            dir.path(),
            "echo welcome; echo PATH=/evil; PATH=/opt/own:/usr/bin:/bin; export PATH; [ \"$1 $2 $3\" = '-i -l -c' ] && eval \"$4\"; echo bye",
        );
        assert_eq!(query_shell_path(&shell, PATIENCE).await.unwrap(), "/opt/own:/usr/bin:/bin");
    }

    #[tokio::test]
    async fn a_shell_that_hangs_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let shell = shell(dir.path(), &format!("sleep 600 & echo $$ $! > {}; wait", pids.display()));
        let hung = query_shell_path(&shell, Duration::from_millis(300)).await;
        assert!(hung.is_err());
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        // A killed process takes a moment to end, and orphans are zombies until init reaps them.
        let has_ended = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z") || stat.contains(") X")
        };
        let all_ended = async {
            while !text.split_whitespace().all(has_ended) {
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_secs(60), all_ended).await.is_ok(), "{text}");
    }

    #[tokio::test]
    async fn the_shells_of_this_machine_tell_their_path() {
        for shell in ["/bin/sh", "/bin/bash", "/bin/dash"] {
            if Path::new(shell).exists() {
                let path = query_shell_path(Path::new(shell), Duration::from_secs(60)).await.unwrap();
                assert!(path.contains("/bin"), "{shell}: {path}");
            }
        }
    }
}
