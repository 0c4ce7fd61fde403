//! JSON-RPC error replies of `ostler stdio` when it can't reach or start a daemon. Clients show the error of a request,
//! and hide what a program has written to stderr before it ended.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::ErrorBody;
use crate::failure::CommandFailure;
use crate::output::Style;

/// JSON-RPC code of `server-unavailable`.
const UNAVAILABLE_CODE: i32 = -31002;
/// Limit of a line that is read. The first request of a client is far shorter.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Fields of a request that a reply needs. Notifications and answers lack one of them.
#[derive(Deserialize)]
struct RequestHead<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(rename = "method")]
    _method: IgnoredAny,
}

/// Reports a failure, and answers every request with it until the client closes its side. Ends at once at a terminal,
/// where a person has read it, and for a daemon that has started this program and would only wait for it.
pub(crate) fn report_and_answer(failure: &CommandFailure) -> ExitCode {
    let code = failure.report();
    if !matches!(failure, CommandFailure::Loop) && !io::stdin().is_terminal() {
        // A client that is gone needs no reply.
        let _ = answer_requests(io::stdin().lock(), io::stdout().lock(), failure);
    }
    code
}

/// Returns the JSON-RPC error object of a request that reached no daemon.
pub(crate) fn error_object(failure: &CommandFailure) -> String {
    let text = failure.render(Style::plain());
    let mut message = text.trim_start_matches("error: ").to_owned();
    // Clients don't show the printed problems of a config.
    if let CommandFailure::Config { first: Some(problem), .. } = failure {
        message.push_str(&format!("\n  {problem}"));
    }
    // Clients don't show their working directory, and paths are relative to it.
    if let Ok(directory) = std::env::current_dir() {
        message.push_str(&format!("\n  directory: {}", directory.display()));
    }
    json!({"code": UNAVAILABLE_CODE, "message": message, "data": ErrorBody::from(failure)}).to_string()
}

fn answer_requests(mut from: impl BufRead, mut to: impl Write, failure: &CommandFailure) -> io::Result<()> {
    let error = error_object(failure);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut from).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() || line.len() as u64 == MAX_LINE_BYTES {
            return Ok(());
        }
        if let Ok(request) = serde_json::from_slice::<RequestHead<'_>>(&line) {
            writeln!(to, r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id)?;
            to.flush()?;
        }
    }
}
