//! `ostler logs`: the stderr output of servers, and the log of the daemon itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use ostler_core::error::CallError;

use crate::api::ServerLogLine;
use crate::client::{self, Backend, BackendChoice, RequestFailure};
use crate::failure::CommandFailure;
use crate::instance::{DaemonInstance, DaemonKind};
use crate::invocation::command;
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::time_text::{TimeArg, Zone, rfc3339};
use crate::{cli, config_file};

/// Reason in the error without a daemon.
const DAEMON_REQUIRED: &str = "the daemon keeps what its servers write";

/// Polling interval of the daemon's log file.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Limit of the daemon's log that is shown, from its end.
const MAX_OWN_LOG_BYTES: u64 = 1 << 20;

pub(super) fn run(typed: &cli::LogsArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    if typed.own {
        return show_own(typed, shared);
    }
    let zone = shared.zone();
    let mut query = format!("follow={}&servers={}", typed.follow, typed.servers.join(","));
    if let Some(since) = typed.since {
        query.push_str(&format!("&since={}", rfc3339(since.to_system_time(zone))));
    }
    if let Some(lines) = typed.lines {
        query.push_str(&format!("&lines={lines}"));
    }
    let there = client::require_daemon(shared, DAEMON_REQUIRED)?;
    let mut printer = Printer { typed, zone, style: Style::stdout(), widest: 0, count: 0 };
    client::run_with_backend(BackendChoice::Daemon(there), async |reach| match reach {
        Backend::Daemon(there) => {
            match there.logs(&typed.servers, &query, |line| printer.print(line)).await {
                Err(RequestFailure::Call(CallError::UnknownServer { name, .. })) => {
                    Err(CommandFailure::unknown_server(&name, &reach.all_servers().await?))
                }
                shown => Ok(shown?),
            }
        }
        Backend::InProcess(_) => Err(CommandFailure::NoDaemon { why: DAEMON_REQUIRED }),
    })?;
    if printer.count == 0 {
        let (logs, own) = (command("logs --follow"), command("logs --self"));
        let fitting = if typed.since.is_some() { " in that time" } else { "" };
        let who = match typed.servers.as_slice() {
            [] => "no server has written to stderr".into(),
            [only] => format!("`{}` has not written to stderr", escape_line(only)),
            _ => "none of these servers has written to stderr".to_owned(),
        };
        print_stderr(&format!("{who}{fitting}; {logs} waits for lines, {own} shows the daemon's own log"));
    }
    Ok(())
}

/// Printer of log lines as they come.
struct Printer<'a> {
    typed: &'a cli::LogsArgs,
    zone: Zone,
    style: Style,
    /// Width of the longest name so far, so that most lines begin in the same column.
    widest: usize,
    /// Number of lines so far.
    count: usize,
}

impl Printer<'_> {
    fn print(&mut self, line: &ServerLogLine) -> Result<(), CommandFailure> {
        // With `--plain`, only lines of the server itself are printed.
        if line.start && self.typed.plain && !self.typed.json {
            return Ok(());
        }
        self.count += 1;
        if self.typed.json {
            let text = serde_json::to_string(line).map_err(|error| CommandFailure::Output(error.into()))?;
            return output::print(&(text + "\n"));
        }
        let text = escape_line(&line.line);
        if self.typed.plain {
            return output::print(&(text + "\n"));
        }
        let text = if line.start { self.style.paint(Tint::Faint, &text) } else { text };
        let at = line.at.as_deref().and_then(|at| TimeArg::parse(at).ok());
        let at = at.map_or_else(
            || format!("{:19}", "-"),
            |at| self.zone.format_second(at.to_system_time(self.zone)),
        );
        let server = match &line.server {
            Some(server) if self.typed.servers.len() != 1 => {
                self.widest = self.widest.max(server.len());
                let name = format!("{server:width$} | ", width = self.widest);
                self.style.paint(Tint::Label, &escape_line(&name))
            }
            _ => String::new(),
        };
        output::print(&format!("{} {server}{text}\n", self.style.paint(Tint::Faint, &at)))
    }
}

/// Prints the log file of a daemon without a terminal.
fn show_own(typed: &cli::LogsArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    if shared.daemon.is_some() {
        return Err(CommandFailure::Usage {
            what: "the log of a daemon is a file of its machine".into(),
            hint: Some("run the command there, without --daemon".into()),
        });
    }
    let found = config_file::find(shared.config.as_deref())?;
    let spot = DaemonInstance::for_config(found.file())?;
    let file = spot.log_file();
    if spot.running().is_some_and(|note| note.kind == DaemonKind::Served) {
        print_stderr(
            "the running daemon was started with `ostler serve` and writes to its own terminal or service log",
        );
    }
    let unreadable = |error: io::Error| CommandFailure::Unreadable {
        file: file.clone(),
        why: error.to_string(),
        hint: "the daemon opens it anew when it next starts",
    };
    let mut position = 0;
    let mut is_first = true;
    loop {
        let (mut lines, next) = read_from(&file, position).map_err(unreadable)?;
        if is_first && next == 0 {
            print_stderr("no daemon that `ostler stdio` started for this config has written a log");
        }
        if let Some(last) = typed.lines.filter(|_| is_first) {
            lines = lines.split_off(lines.len().saturating_sub(last));
        }
        (position, is_first) = (next, false);
        for line in lines {
            let line = match typed.json {
                true => serde_json::to_string(&ServerLogLine { server: None, at: None, line, start: false })
                    .unwrap_or_default(),
                false => escape_line(&line),
            };
            output::print(&(line + "\n"))?;
        }
        if !typed.follow {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the whole lines of a file from a position on, and the next position. A missing file counts as empty. A file
/// that has become shorter is read from its beginning.
fn read_from(file: &Path, position: u64) -> io::Result<(Vec<String>, u64)> {
    let mut open = match File::open(file) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error),
    };
    let length = open.metadata()?.len();
    let begin = if position > length { 0 } else { position }.max(length.saturating_sub(MAX_OWN_LOG_BYTES));
    open.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    open.take(MAX_OWN_LOG_BYTES).read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..end]);
    // The first line of a part is the end of one that is not shown.
    let is_cut = begin > position;
    Ok((text.lines().skip(usize::from(is_cut)).map(str::to_owned).collect(), begin + end as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_by_whole_lines_and_from_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        assert_eq!(read_from(&file, 0).unwrap(), (Vec::new(), 0));
        std::fs::write(&file, "one\ntwo\nthr").unwrap();
        assert_eq!(read_from(&file, 0).unwrap(), (vec!["one".into(), "two".into()], 8));
        assert_eq!(read_from(&file, 8).unwrap(), (Vec::new(), 8));
        std::fs::write(&file, "new\n").unwrap();
        assert_eq!(read_from(&file, 8).unwrap(), (vec!["new".into()], 4));
        std::fs::write(&file, "x".repeat(80).as_str().to_owned() + "\n" + &"y\n".repeat(1 << 19)).unwrap();
        let (lines, _) = read_from(&file, 0).unwrap();
        assert!(lines.len() < 1 << 19 && lines.iter().all(|line| line == "y"));
    }
}
