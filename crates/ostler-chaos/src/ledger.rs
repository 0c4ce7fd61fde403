//! Ledgers: the executions of servers, written by the servers themselves.
//!
//! A ledger is a file of JSON lines, written by `fake-mcp --executions`: one when an execution
//! begins and one when it ends, joined by a stamp. Several processes may write into one file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::history::{CallNumber, Micros};

/// An execution of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    pub server: String,
    pub pid: u32,
    pub tool: String,
    /// Missing where the arguments held no number, as they do where equal calls may share an
    /// answer.
    pub call: Option<CallNumber>,
    pub began: Micros,
    /// Missing if the server ended first, or if the call was cancelled.
    pub ended: Option<Micros>,
    /// True if it ended with an error that counts against the server.
    pub has_failed: bool,
    /// Names this execution in its answer.
    pub stamp: String,
    /// The TTL of its answer, if the answer may be cached.
    pub ttl_ms: Option<i64>,
}

/// The reason why a ledger can't be read.
#[derive(Debug, Error)]
pub enum LedgerError {
    #[error("can't read the ledger {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("line {number} of the ledger is not one of fake-mcp's: {source}")]
    BadLine { number: usize, source: serde_json::Error },
    #[error("line {number} of the ledger ends {stamp}, which never began")]
    EndWithoutBegin { number: usize, stamp: String },
    #[error("line {number} of the ledger uses the stamp {stamp} a second time")]
    DuplicateStamp { number: usize, stamp: String },
}

#[derive(Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum LedgerLine {
    Begin {
        stamp: String,
        server: String,
        pid: u32,
        tool: String,
        call: Option<CallNumber>,
        at: Micros,
        ttl_ms: Option<i64>,
    },
    End {
        stamp: String,
        at: Micros,
        has_failed: bool,
    },
}

/// Reads a ledger from its file. A file that does not exist is empty.
pub fn load(path: &Path) -> Result<Vec<Execution>, LedgerError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LedgerError::Unreadable { path: path.into(), source }),
    }
}

/// Parses a ledger; executions are in the order in which they began.
pub fn parse(text: &str) -> Result<Vec<Execution>, LedgerError> {
    let mut executions: Vec<Execution> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    // Bytes after the last newline were being written when the server was killed.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in whole.lines().enumerate() {
        let number = index + 1;
        let line = serde_json::from_str(line).map_err(|source| LedgerError::BadLine { number, source })?;
        match line {
            LedgerLine::Begin { stamp, server, pid, tool, call, at, ttl_ms } => {
                if positions.insert(stamp.clone(), executions.len()).is_some() {
                    return Err(LedgerError::DuplicateStamp { number, stamp });
                }
                let (ended, has_failed) = (None, false);
                let began = at;
                executions.push(Execution {
                    server,
                    pid,
                    tool,
                    call,
                    began,
                    ended,
                    has_failed,
                    stamp,
                    ttl_ms,
                });
            }
            LedgerLine::End { stamp, at, has_failed } => {
                let Some(execution) =
                    positions.get(&stamp).and_then(|position| executions.get_mut(*position))
                else {
                    return Err(LedgerError::EndWithoutBegin { number, stamp });
                };
                execution.ended = Some(at);
                execution.has_failed = has_failed;
            }
        }
    }
    executions.sort_by_key(|execution| execution.began);
    Ok(executions)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]
mod tests {
    use super::*;

    const BEGUN: &str = r#"{"what":"begin","stamp":"7-1-100","server":"a","pid":7,"tool":"deed","call":3,"at":100,"ttl_ms":null}"#;
    const ENDED: &str = r#"{"what":"end","stamp":"7-1-100","at":250,"has_failed":true}"#;

    #[test]
    fn a_begin_and_its_end_are_one_execution() {
        let read = parse(&format!("{BEGUN}\n{ENDED}\n")).unwrap();
        assert_eq!(read.len(), 1);
        let only = &read[0];
        assert_eq!((only.call, only.began, only.ended), (Some(CallNumber(3)), 100, Some(250)));
        assert!(only.has_failed);
    }

    #[test]
    fn a_server_that_was_killed_leaves_an_execution_without_end() {
        for text in [format!("{BEGUN}\n"), format!("{BEGUN}\n{}", &ENDED[..20])] {
            let read = parse(&text).unwrap();
            assert_eq!((read[0].ended, read[0].has_failed), (None, false), "{text}");
        }
    }

    #[test]
    fn executions_come_in_the_order_in_which_they_began() {
        let earlier = BEGUN.replace("100", "90").replace("7-1", "8-1");
        let read = parse(&format!("{BEGUN}\n{earlier}\n{ENDED}\n")).unwrap();
        assert_eq!(read.iter().map(|execution| execution.began).collect::<Vec<_>>(), [90, 100]);
        assert_eq!(read[1].ended, Some(250));
    }

    #[test]
    fn a_ledger_that_contradicts_itself_is_refused_by_line() {
        let refusal = |text: String| parse(&text).unwrap_err().to_string();
        assert!(refusal(format!("{BEGUN}\nnonsense\n")).starts_with("line 2 of the ledger is not"));
        assert_eq!(refusal(format!("{ENDED}\n")), "line 1 of the ledger ends 7-1-100, which never began");
        assert!(refusal(format!("{BEGUN}\n{BEGUN}\n")).ends_with("a second time"));
    }
}
