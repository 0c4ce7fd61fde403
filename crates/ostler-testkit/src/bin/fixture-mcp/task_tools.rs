//! Tools that continue as tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult, InputRequest,
    JsonObject,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::Value;

use crate::client_requests::field;
use crate::content::text_result;
use crate::interactive_tools::greeting;
use crate::request::{FixtureRequest, GatheredInput, internal_error};

/// A client without tasks waits for the result at most this long.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Calls such a tool, if `request` is for one.
pub(crate) async fn call(
    request: &FixtureRequest<'_>,
    arguments: &JsonObject,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    let pause = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Some(match request.subject {
        "greet" => {
            let name = arguments.get("name").and_then(Value::as_str).unwrap_or("stranger");
            Ok(text_result(format!("Hello, {name}!")).into())
        }
        "slow_compute" if request.client().supports_tasks() => {
            start(request, |task| Box::pin(compute(task, pause)))
        }
        "slow_compute" => {
            tokio::time::sleep(pause.min(LONGEST_WAIT)).await;
            Ok(text_result("Computed").into())
        }
        "failing_job" => start(request, |_| Box::pin(fail())),
        "protocol_error_job" => {
            start(request, |_| Box::pin(async { Err(ErrorData::internal_error("broken", None).into()) }))
        }
        "confirm_delete" => start(request, |task| Box::pin(confirm(task))),
        "multi_input" => start(request, |task| Box::pin(ask_twice(task))),
        "test_tool_with_task" => ask_then_start(request).await,
        _ => return None,
    })
}

/// Starts a task; a client that does not support tasks is refused.
fn start(
    request: &FixtureRequest<'_>,
    work: impl FnOnce(TaskContext) -> TaskFuture,
) -> Result<CallToolResponse, ErrorData> {
    if !request.client().supports_tasks() {
        let required = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(required));
    }
    let task = request.shared.tasks.spawn(TaskOptions::new(), work);
    Ok(CreateTaskResult::new(task).into())
}

async fn compute(task: TaskContext, pause: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = tokio::time::sleep(pause) => Ok(text_result("Computed")),
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}

async fn fail() -> Result<CallToolResult, TaskExit> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(CallToolResult::error(vec![ContentBlock::text("The job failed, as it always does")]))
}

async fn confirm(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let answer =
        task.request_input("confirm", input_request("Really delete it?", "confirm", "boolean")?).await?;
    Ok(text_result(format!("Answered: {answer}")))
}

async fn ask_twice(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let (first, second) = tokio::try_join!(
        task.request_input("first", input_request("The first name?", "name", "string")?),
        task.request_input("second", input_request("The second name?", "name", "string")?),
    )?;
    Ok(text_result(format!("Answered: {first} and {second}")))
}

async fn ask_then_start(request: &FixtureRequest<'_>) -> Result<CallToolResponse, ErrorData> {
    let questions = [("user_name", field("What is your name?", "name", "string"))];
    match request.request_input(&questions).await? {
        GatheredInput::InputRequired(result) => Ok(result.into()),
        GatheredInput::Answers(answers) => {
            let greeting = greeting(&answers["user_name"]);
            start(request, |_| Box::pin(async move { Ok(text_result(greeting)) }))
        }
    }
}

fn input_request(message: &str, name: &str, kind: &str) -> Result<InputRequest, ErrorData> {
    serde_json::from_value(field(message, name, kind)).map_err(internal_error)
}
