//! Answers of `ostler stdio` when it can't reach or start a daemon. Clients show the error of a request, and hide what
//! a program has written to stderr before it ended.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::ErrorBody;
use crate::failure::Failure;
use crate::output::Style;

/// The JSON-RPC code of `server-unavailable`.
const UNAVAILABLE: i32 = -31002;
/// The longest line that is read. The first request of a client is far shorter.
const LONGEST_LINE: u64 = 1 << 20;

/// The part of a request that an answer needs. Notifications and answers lack one of them.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(rename = "method")]
    _method: IgnoredAny,
}

/// Reports a failure, and answers with it until the client closes its side. A person at a terminal has read it, and a
/// daemon that has started this program would only wait for it.
pub(crate) fn answer(failure: &Failure) -> ExitCode {
    let code = failure.report();
    if !matches!(failure, Failure::Circle) && !io::stdin().is_terminal() {
        // A client that is gone needs no answer.
        let _ = answer_all(io::stdin().lock(), io::stdout().lock(), failure);
    }
    code
}

/// Returns the JSON-RPC error object of a request that no daemon has got.
pub(crate) fn error_object(failure: &Failure) -> String {
    let text = failure.render(Style::plain());
    let mut message = text.trim_start_matches("error: ").to_owned();
    // Clients don't show what has been printed about a config.
    if let Failure::Config { first: Some(problem), .. } = failure {
        message.push_str(&format!("\n  {problem}"));
    }
    // Clients don't show where they have started the program, and paths are relative to that.
    if let Ok(directory) = std::env::current_dir() {
        message.push_str(&format!("\n  directory: {}", directory.display()));
    }
    json!({"code": UNAVAILABLE, "message": message, "data": ErrorBody::from(failure)}).to_string()
}

fn answer_all(mut from: impl BufRead, mut to: impl Write, failure: &Failure) -> io::Result<()> {
    let error = error_object(failure);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() || line.len() as u64 == LONGEST_LINE {
            return Ok(());
        }
        if let Ok(request) = serde_json::from_slice::<Request<'_>>(&line) {
            writeln!(to, r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id)?;
            to.flush()?;
        }
    }
}
