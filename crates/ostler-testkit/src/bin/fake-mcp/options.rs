//! Options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::switches::SWITCHES;

/// The mode of the process.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    #[default]
    Serve,
    Help,
    PrintExact,
    /// Sleeps for ever in a session of its own: the far end of `--clear-env-child`.
    Linger,
}

/// The revisions that the server speaks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupportedEras {
    #[default]
    Both,
    Modern,
    Legacy,
    /// Legacy; a method that the server does not know gets no answer at all before `initialize`.
    SilentProbe,
}

/// The answer to `initialize` and `server/discover`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeBehaviour {
    #[default]
    Normal,
    Hang,
    Error,
    BadVersion,
}

/// A process left behind before serving starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrayKind {
    /// A child in a session of its own that ignores SIGTERM and SIGHUP.
    Setsid,
    /// The same, forked twice, so that its parent is gone at once.
    DoubleFork,
    /// A plain child that keeps stdin, stdout and stderr open.
    HoldingStdio,
    /// A child in a session of its own whose environment is empty.
    ClearEnv,
}

/// An exit before serving: its code, and the text on stderr before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EarlyExit {
    pub(crate) code: i32,
    pub(crate) stderr: String,
}

/// A caching hint. Without a scope the result has no such field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheHint {
    pub(crate) ttl_ms: i64,
    pub(crate) scope: Option<String>,
}

/// The cursors of `tools/list`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paging {
    #[default]
    Honest,
    /// The second page names the cursor of its own request.
    RepeatCursor,
    /// Every page names a new cursor.
    Endless,
}

/// The behaviour of `tools/list`.
#[derive(Debug, Default)]
pub(crate) struct ToolListOptions {
    pub(crate) ttl: Option<CacheHint>,
    pub(crate) extra_tools: usize,
    /// Lists the tools of `--executions`.
    pub(crate) has_recorded_tools: bool,
    /// Lists the tool `task` and answers the methods of tasks.
    pub(crate) has_tasks: bool,
    /// None means one page, unless `paging` needs several.
    pub(crate) page_size: Option<usize>,
    pub(crate) paging: Paging,
    pub(crate) has_bad_tool: bool,
    pub(crate) change_file: Option<PathBuf>,
    pub(crate) forges_origin: bool,
    pub(crate) slow: Option<Duration>,
    pub(crate) fails: bool,
    /// An undefined tool echoes instead of being refused.
    pub(crate) echoes_unknown: bool,
}

/// Everything that the command line decides.
#[derive(Debug, Default)]
pub(crate) struct FakeOptions {
    pub(crate) action: RunMode,
    pub(crate) speaks: SupportedEras,
    pub(crate) name: Option<String>,
    pub(crate) handshake: HandshakeBehaviour,
    pub(crate) ledger: Option<PathBuf>,
    pub(crate) executions: Option<PathBuf>,
    /// `sick` fails while this file exists; without a file it always does.
    pub(crate) sick_while: Option<PathBuf>,
    pub(crate) starts: Option<PathBuf>,
    pub(crate) requests: Option<PathBuf>,
    pub(crate) frames: Option<PathBuf>,
    pub(crate) exit_at_start: Option<EarlyExit>,
    /// Only this many starts fail, as counted by `starts`, which is then present.
    pub(crate) exit_at_start_times: Option<usize>,
    pub(crate) start_delay: Option<Duration>,
    /// Time spent computing before anything is read.
    pub(crate) start_work: Option<Duration>,
    pub(crate) start_cpu: Option<Duration>,
    pub(crate) ignores_sigterm: bool,
    pub(crate) ignores_stdin_close: bool,
    pub(crate) no_read_after: Option<u64>,
    /// Each stray and the file to which its pid is appended.
    pub(crate) strays: Vec<(StrayKind, PathBuf)>,
    pub(crate) listing: ToolListOptions,
    pub(crate) read_ttl: Option<CacheHint>,
    pub(crate) slow: Option<Duration>,
    pub(crate) is_shuffled: bool,
    pub(crate) is_raw_echo: bool,
    /// A modern client may listen for changes.
    pub(crate) listens: bool,
    /// The number of additional prompts, resources and templates, each list with a malformed one.
    pub(crate) extra_items: usize,
    /// The file with lists and instructions that replace the built-in ones.
    pub(crate) catalog: Option<PathBuf>,
}

/// The reason why a command line is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum UsageError {
    #[error("unknown argument `{0}`; --help lists the switches")]
    Unknown(String),
    #[error("`{0}` needs a value")]
    MissingValue(&'static str),
    #[error("`{0}` is not {1}")]
    BadValue(String, &'static str),
    #[error("--exit-at-start-times needs --starts to count by")]
    MissingStartsFile,
}

impl FakeOptions {
    /// Parses a command line without the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(switch) = SWITCHES.iter().find(|switch| switch.name == argument) else {
                return Err(UsageError::Unknown(argument));
            };
            let value = match switch.value {
                None => String::new(),
                Some(_) => arguments.next().ok_or(UsageError::MissingValue(switch.name))?,
            };
            (switch.set)(&mut options, &value)?;
        }
        if options.exit_at_start_times.is_some() {
            if options.starts.is_none() {
                return Err(UsageError::MissingStartsFile);
            }
            options.exit_at_start.get_or_insert(EarlyExit { code: 1, stderr: String::new() });
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FakeOptions, UsageError> {
        FakeOptions::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn an_unknown_argument_is_refused_by_name() {
        assert_eq!(parse("--name x --nope").unwrap_err(), UsageError::Unknown("--nope".into()));
    }

    #[test]
    fn a_switch_without_its_value_is_refused() {
        assert_eq!(parse("--era").unwrap_err(), UsageError::MissingValue("--era"));
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused() {
        assert_eq!(parse("--slow soon").unwrap_err(), UsageError::BadValue("soon".into(), "a number"));
        assert_eq!(
            parse("--era stone").unwrap_err(),
            UsageError::BadValue("stone".into(), "both, modern, legacy or silent-probe")
        );
    }

    #[test]
    fn failing_the_first_starts_needs_a_file_to_count_by() {
        assert_eq!(parse("--exit-at-start-times 2").unwrap_err(), UsageError::MissingStartsFile);
        let options = parse("--exit-at-start-times 2 --starts f").unwrap();
        assert_eq!(options.exit_at_start, Some(EarlyExit { code: 1, stderr: String::new() }));
    }

    #[test]
    fn an_early_exit_carries_its_text_and_a_hint_its_scope() {
        let options = parse("--exit-at-start 3:no:token --list-ttl 50:public --read-ttl 7").unwrap();
        assert_eq!(options.exit_at_start, Some(EarlyExit { code: 3, stderr: "no:token".into() }));
        assert_eq!(options.listing.ttl, Some(CacheHint { ttl_ms: 50, scope: Some("public".into()) }));
        assert_eq!(options.read_ttl, Some(CacheHint { ttl_ms: 7, scope: Some("private".into()) }));
    }
}
