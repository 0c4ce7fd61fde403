//! The tools whose every execution is accounted for.

use std::time::Duration;

use crate::call_tool::AdmittedCall;
use crate::executions::ExecutionStart;
use crate::options::CacheHint;
use crate::response::FakeToolResult;
use crate::server::FakeServer;

/// A tool that takes its time and names its execution in the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecordedTool {
    pub(crate) kind: RecordedKind,
    /// The caller's number of the call; it comes back in the answer.
    pub(crate) nonce: Option<u64>,
    pub(crate) duration: Duration,
}

/// How a deed ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordedKind {
    Plain,
    /// Without an answer, for as long as the file of `--sick-while` is there.
    Sick,
    /// With a result that may be remembered for its caller, so long.
    Secret {
        ttl_ms: i64,
    },
}

/// Begins a deed; its answer, and the line that says so, follow when it is done.
pub(crate) fn run(server: &mut FakeServer, call: &AdmittedCall<'_>, deed: &RecordedTool) {
    let hint = match deed.kind {
        RecordedKind::Secret { ttl_ms } => Some(CacheHint { ttl_ms, scope: Some("private".into()) }),
        RecordedKind::Plain | RecordedKind::Sick => None,
    };
    let ttl_ms = hint.as_ref().map(|hint| hint.ttl_ms);
    let beginning = ExecutionStart { tool: call.params.subject(), nonce: deed.nonce, ttl_ms };
    let stamp = server.executions.begin(&beginning);
    let fails = deed.kind == RecordedKind::Sick && is_sick(server);
    let nonce = deed.nonce.map_or(String::new(), |nonce| format!(r#""nonce":{nonce},"#));
    let proof = format!(r#"{{{nonce}"stamp":"{stamp}"}}"#);
    let line = match fails {
        true => Vec::new(),
        false => {
            FakeToolResult { hint: hint.as_ref(), ..FakeToolResult::object(&proof) }.line(call.id, call.era)
        }
    };
    let ending = server.executions.end_record(&stamp, fails);
    server.output.send_recorded(deed.duration, call.id, line, ending);
}

fn is_sick(server: &FakeServer) -> bool {
    server.script.sick_while.as_ref().is_none_or(|file| file.exists())
}
