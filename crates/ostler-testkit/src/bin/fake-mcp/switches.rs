//! Table of all switches: name, help line and effect. It is parser and documentation at once.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::options::{
    CacheHint, EarlyExit, FakeOptions, HandshakeBehaviour, Paging, RunMode, StrayKind, SupportedEras,
    UsageError,
};

type SwitchResult = Result<(), UsageError>;

/// A switch of the command line.
pub(crate) struct Switch {
    pub(crate) name: &'static str,
    /// The placeholder of its value in the help; None for a switch without a value.
    pub(crate) value: Option<&'static str>,
    help: &'static str,
    pub(crate) set: fn(&mut FakeOptions, &str) -> SwitchResult,
}

macro_rules! switches {
    ($($name:literal $(= $value:literal)?: $help:literal, |$options:ident, $given:pat_param| $body:expr;)*) => {
        /// All switches, in the order of the help text.
        pub(crate) const SWITCHES: &[Switch] = &[$(Switch {
            name: $name,
            value: [$(Some($value),)? None][0],
            help: $help,
            set: |$options, $given| {
                $body;
                Ok(())
            },
        }),*];
    };
}

switches! {
    "--help": "print this text",
        |s, _| s.action = RunMode::Help;
    "--print-exact": "print the result of the tool `exact`, byte for byte, and end",
        |s, _| s.action = RunMode::PrintExact;
    "--linger": "detach and sleep for ever; what --clear-env-child starts",
        |s, _| s.action = RunMode::Linger;
    "--era" = "ERA": "both (default), modern, legacy (-32601 to the probe) or silent-probe",
        |s, v| s.speaks = era(v)?;
    "--name" = "NAME": "serverInfo.name (default fake-mcp)",
        |s, v| s.name = Some(v.into());
    "--ledger" = "FILE": "append pid, tool, idempotency key, arguments (tab-separated) per executed call",
        |s, v| s.ledger = path(v);
    "--executions" = "FILE": "list deed, misdeed, sick and secret; append a JSON line when one begins and when it ends",
        |s, v| set_executions(s, v);
    "--sick-while" = "FILE": "sick is not answered while FILE is there (default: always)",
        |s, v| s.sick_while = path(v);
    "--starts" = "FILE": "append the pid at process start",
        |s, v| s.starts = path(v);
    "--requests" = "FILE": "append method, tab, name or uri per received request",
        |s, v| s.requests = path(v);
    "--frames" = "FILE": "append every line that is received",
        |s, v| s.frames = path(v);
    "--exit-at-start" = "CODE[:TEXT]": "exit at once, with TEXT on stderr",
        |s, v| s.exit_at_start = Some(early_exit(v)?);
    "--exit-at-start-times" = "N": "fail only the first N starts (counted by --starts; code 1 by default)",
        |s, v| s.exit_at_start_times = Some(number(v)?);
    "--start-delay" = "MS": "sleep before reading or exiting",
        |s, v| s.start_delay = millis(v)?;
    "--start-work" = "MS": "compute before reading, as a slow import does",
        |s, v| s.start_work = millis(v)?;
    "--start-cpu" = "MS": "the same until so much processor time is used, which a busy machine makes longer",
        |s, v| s.start_cpu = millis(v)?;
    "--hang-at-start": "never answer initialize and server/discover",
        |s, _| s.handshake = HandshakeBehaviour::Hang;
    "--handshake-error": "answer initialize and server/discover with -32603",
        |s, _| s.handshake = HandshakeBehaviour::Error;
    "--bad-version": "offer only the protocol version 1999-01-01",
        |s, _| s.handshake = HandshakeBehaviour::BadVersion;
    "--ignore-sigterm": "ignore SIGTERM",
        |s, _| s.ignores_sigterm = true;
    "--ignore-stdin-close": "live on after stdin closed",
        |s, _| s.ignores_stdin_close = true;
    "--no-read-after" = "N": "stop reading stdin after N requests, handshake included",
        |s, v| s.no_read_after = Some(number(v)?);
    "--fork-setsid" = "FILE": "leave a child in its own session, deaf to SIGTERM and SIGHUP; pid to FILE",
        |s, v| stray(s, StrayKind::Setsid, v);
    "--double-fork" = "FILE": "leave such a child forked twice, as daemons do; pid to FILE",
        |s, v| stray(s, StrayKind::DoubleFork, v);
    "--fork-holding-stdio" = "FILE": "leave a child that keeps stdin, stdout and stderr open; pid to FILE",
        |s, v| stray(s, StrayKind::HoldingStdio, v);
    "--clear-env-child" = "FILE": "leave a child in its own session with no environment; pid to FILE",
        |s, v| stray(s, StrayKind::ClearEnv, v);
    "--list-ttl" = "MS[:SCOPE]": "caching hint on tools/list (scope private by default)",
        |s, v| s.listing.ttl = Some(hint(v)?);
    "--read-ttl" = "MS[:SCOPE]": "caching hint on resources/read (scope private by default)",
        |s, v| s.read_ttl = Some(hint(v)?);
    "--tools" = "N": "N extra tools tool_0001, tool_0002, ... that echo",
        |s, v| s.listing.extra_tools = number(v)?;
    "--page-size" = "K": "split tools/list into pages of K",
        |s, v| s.listing.page_size = Some(page_size(v)?);
    "--repeat-cursor": "the second page of tools/list names the first cursor again",
        |s, _| s.listing.paging = Paging::RepeatCursor;
    "--endless-pages": "every page of tools/list names a new cursor",
        |s, _| s.listing.paging = Paging::Endless;
    "--bad-tool": "one malformed tool among the good ones",
        |s, _| s.listing.has_bad_tool = true;
    "--change-tools" = "FILE": "echo's description holds FILE's text; list_changed is sent when it differs",
        |s, v| s.listing.change_file = path(v);
    "--forge-origin": "tools claim to be of another server and to be the host's",
        |s, _| s.listing.forges_origin = true;
    "--slow-list" = "MS": "answer tools/list after MS",
        |s, v| s.listing.slow = millis(v)?;
    "--list-error": "answer tools/list with -32603",
        |s, _| s.listing.fails = true;
    "--slow" = "MS": "answer every tools/call after MS",
        |s, v| s.slow = millis(v)?;
    "--shuffle": "answer tools/call in reversed groups of 8, or what came within 20 ms",
        |s, _| s.is_shuffled = true;
    "--listen": "modern: acknowledge subscriptions/listen instead of refusing it",
        |s, _| s.listens = true;
    "--shelf" = "N": "list N more prompts, resources and templates, 2 per page, with a bad one in each list",
        |s, v| s.extra_items = number(v)?;
    "--catalog" = "FILE": "lists and instructions from a JSON file, read again at each request; any URI can be read",
        |s, v| catalog(s, v);
    "--tasks": "list the tool `task`, and answer tasks/list, get, result, update and cancel",
        |s, _| s.listing.has_tasks = true;
    "--raw-echo": "benchmark: answer every tools/call at once; no ledger, no checks",
        |s, _| s.is_raw_echo = true;
}

fn catalog(options: &mut FakeOptions, file: &str) {
    options.catalog = path(file);
    options.listing.echoes_unknown = true;
}

/// Returns the text of `--help`.
pub(crate) fn help() -> String {
    let mut text =
        String::from("A scripted MCP server on stdio, for tests.\n\nusage: fake-mcp [SWITCH]...\n\n");
    for switch in SWITCHES {
        let usage = format!("{} {}", switch.name, switch.value.unwrap_or_default());
        // Writing into a string can't fail.
        let _ = writeln!(text, "  {usage:<34}{}", switch.help);
    }
    text
}

fn era(value: &str) -> Result<SupportedEras, UsageError> {
    match value {
        "both" => Ok(SupportedEras::Both),
        "modern" => Ok(SupportedEras::Modern),
        "legacy" => Ok(SupportedEras::Legacy),
        "silent-probe" => Ok(SupportedEras::SilentProbe),
        other => Err(UsageError::BadValue(other.into(), "both, modern, legacy or silent-probe")),
    }
}

fn number<N: FromStr>(value: &str) -> Result<N, UsageError> {
    value.parse().map_err(|_| UsageError::BadValue(value.into(), "a number"))
}

fn page_size(value: &str) -> Result<usize, UsageError> {
    match number(value)? {
        0 => Err(UsageError::BadValue(value.into(), "a page size of at least 1")),
        size => Ok(size),
    }
}

fn millis(value: &str) -> Result<Option<Duration>, UsageError> {
    number(value).map(Duration::from_millis).map(Some)
}

fn path(value: &str) -> Option<PathBuf> {
    Some(PathBuf::from(value))
}

fn set_executions(options: &mut FakeOptions, file: &str) {
    options.executions = path(file);
    options.listing.has_recorded_tools = true;
}

fn stray(options: &mut FakeOptions, kind: StrayKind, file: &str) {
    options.strays.push((kind, PathBuf::from(file)));
}

fn early_exit(value: &str) -> Result<EarlyExit, UsageError> {
    let (code, stderr) = value.split_once(':').unwrap_or((value, ""));
    Ok(EarlyExit { code: number(code)?, stderr: stderr.into() })
}

fn hint(value: &str) -> Result<CacheHint, UsageError> {
    let (ttl, scope) = value.split_once(':').unwrap_or((value, "private"));
    Ok(CacheHint { ttl_ms: number(ttl)?, scope: Some(scope.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_has_a_help_line_and_its_own_name() {
        let help = help();
        for (index, switch) in SWITCHES.iter().enumerate() {
            assert!(help.contains(&format!("  {} ", switch.name)), "{}", switch.name);
            assert!(!switch.help.is_empty(), "{}", switch.name);
            assert!(SWITCHES[index + 1..].iter().all(|other| other.name != switch.name), "{}", switch.name);
        }
    }

    #[test]
    fn a_page_holds_at_least_one_tool() {
        assert!(page_size("0").is_err());
        assert_eq!(page_size("3"), Ok(3));
    }
}
