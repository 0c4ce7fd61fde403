//! Tools whose every execution is recorded.

use std::time::Duration;

use crate::call_tool::AdmittedCall;
use crate::executions::ExecutionStart;
use crate::options::CacheHint;
use crate::response::FakeToolResult;
use crate::server::FakeServer;

/// A tool that takes time and names its execution in the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecordedTool {
    pub(crate) kind: RecordedKind,
    /// The caller's number of the call; the answer repeats it.
    pub(crate) nonce: Option<u64>,
    pub(crate) duration: Duration,
}

/// The end of a recorded tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordedKind {
    Plain,
    /// No answer, while the file of `--sick-while` exists.
    Sick,
    /// A result that may be cached for its caller, this long.
    Secret {
        ttl_ms: i64,
    },
}

/// Starts a recorded tool; its end record and its answer follow after its duration.
pub(crate) fn run(server: &mut FakeServer, call: &AdmittedCall<'_>, tool: &RecordedTool) {
    let hint = match tool.kind {
        RecordedKind::Secret { ttl_ms } => Some(CacheHint { ttl_ms, scope: Some("private".into()) }),
        RecordedKind::Plain | RecordedKind::Sick => None,
    };
    let ttl_ms = hint.as_ref().map(|hint| hint.ttl_ms);
    let start = ExecutionStart { tool: call.params.subject(), nonce: tool.nonce, ttl_ms };
    let stamp = server.executions.begin(&start);
    let fails = tool.kind == RecordedKind::Sick && is_sick(server);
    let nonce = tool.nonce.map_or(String::new(), |nonce| format!(r#""nonce":{nonce},"#));
    let content = format!(r#"{{{nonce}"stamp":"{stamp}"}}"#);
    let line = match fails {
        true => Vec::new(),
        false => {
            FakeToolResult { hint: hint.as_ref(), ..FakeToolResult::object(&content) }.line(call.id, call.era)
        }
    };
    let end_record = server.executions.end_record(&stamp, fails);
    server.output.send_recorded(tool.duration, call.id, line, end_record);
}

fn is_sick(server: &FakeServer) -> bool {
    server.options.sick_while.as_ref().is_none_or(|file| file.exists())
}
