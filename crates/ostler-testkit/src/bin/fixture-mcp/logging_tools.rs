//! Tools that log or report progress while they run.
#![expect(deprecated, reason = "the suite asks for logging, which newer revisions give up")]

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam};
use rmcp::service::RequestContext;
use serde_json::json;

use crate::content::text_result;

/// Long enough for a client to see messages arrive one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// Calls such a tool, if `name` is one. `level` is the log level of the session or of the request,
/// whichever applies; without one nothing is logged.
pub(crate) async fn call(
    name: &str,
    context: &RequestContext<RoleServer>,
    level: Option<LoggingLevel>,
) -> Option<CallToolResult> {
    match name {
        "test_tool_with_logging" => {
            log(context, level, "Tool execution started").await;
            tokio::time::sleep(PAUSE).await;
            log(context, level, "Tool processing data").await;
            tokio::time::sleep(PAUSE).await;
            log(context, level, "Tool execution completed").await;
            Some(text_result("Said three things"))
        }
        "test_logging_tool" => {
            log(context, level, "Tool execution started").await;
            Some(text_result("Said one thing, to whoever wanted to hear it"))
        }
        "test_tool_with_progress" => {
            for (done, message) in [(0.0, "Starting"), (50.0, "Halfway"), (100.0, "Complete")] {
                progress(context, done, message).await;
                tokio::time::sleep(PAUSE).await;
            }
            Some(text_result("Went all the way"))
        }
        "test_reconnection" => {
            tokio::time::sleep(PAUSE * 2).await;
            Some(text_result("Took its time"))
        }
        _ => None,
    }
}

/// Reports progress of 100, if the caller has asked for it.
pub(crate) async fn progress(context: &RequestContext<RoleServer>, done: f64, message: &str) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let report = ProgressNotificationParam::new(token, done).with_total(100.0).with_message(message);
    // A caller that has left needs no progress.
    let _ = context.peer.notify_progress(report).await;
}

async fn log(context: &RequestContext<RoleServer>, level: Option<LoggingLevel>, message: &str) {
    if !matches!(level, Some(LoggingLevel::Debug | LoggingLevel::Info)) {
        return;
    }
    let message =
        LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message)).with_logger("fixture");
    let _ = context.peer.notify_logging_message(message).await;
}
