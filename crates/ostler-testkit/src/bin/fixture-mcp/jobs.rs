//! Tools that go on as tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult, InputRequest,
    JsonObject,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::Value;

use crate::content::said;
use crate::questions::field;
use crate::rounds::greeting;
use crate::visit::{Gathered, Visit, internal};

/// Who can't have a task has to wait for the result, and need not wait longer.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The answer of such a tool, if `visit` is for one.
pub(crate) async fn call(
    visit: &Visit<'_>,
    arguments: &JsonObject,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    let pause = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Some(match visit.subject {
        "greet" => {
            let name = arguments.get("name").and_then(Value::as_str).unwrap_or("stranger");
            Ok(said(format!("Hello, {name}!")).into())
        }
        "slow_compute" if visit.client().supports_tasks() => {
            start(visit, |task| Box::pin(compute(task, pause)))
        }
        "slow_compute" => {
            tokio::time::sleep(pause.min(LONGEST_WAIT)).await;
            Ok(said("Computed").into())
        }
        "failing_job" => start(visit, |_| Box::pin(fail())),
        "protocol_error_job" => {
            start(visit, |_| Box::pin(async { Err(ErrorData::internal_error("broken", None).into()) }))
        }
        "confirm_delete" => start(visit, |task| Box::pin(confirm(task))),
        "multi_input" => start(visit, |task| Box::pin(ask_twice(task))),
        "test_tool_with_task" => ask_then_start(visit).await,
        _ => return None,
    })
}

/// Begins a task, which a client that does not know tasks can't have.
fn start(
    visit: &Visit<'_>,
    work: impl FnOnce(TaskContext) -> TaskFuture,
) -> Result<CallToolResponse, ErrorData> {
    if !visit.client().supports_tasks() {
        let required = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(required));
    }
    let task = visit.world.tasks.spawn(TaskOptions::new(), work);
    Ok(CreateTaskResult::new(task).into())
}

async fn compute(task: TaskContext, pause: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = tokio::time::sleep(pause) => Ok(said("Computed")),
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}

async fn fail() -> Result<CallToolResult, TaskExit> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(CallToolResult::error(vec![ContentBlock::text("The job failed, as it always does")]))
}

async fn confirm(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let answer = task.request_input("confirm", question("Really delete it?", "confirm", "boolean")?).await?;
    Ok(said(format!("Answered: {answer}")))
}

async fn ask_twice(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let (first, second) = tokio::try_join!(
        task.request_input("first", question("The first name?", "name", "string")?),
        task.request_input("second", question("The second name?", "name", "string")?),
    )?;
    Ok(said(format!("Answered: {first} and {second}")))
}

async fn ask_then_start(visit: &Visit<'_>) -> Result<CallToolResponse, ErrorData> {
    let questions = [("user_name", field("What is your name?", "name", "string"))];
    match visit.gather(&questions).await? {
        Gathered::Ask(result) => Ok(result.into()),
        Gathered::Answers(answers) => {
            let greeting = greeting(&answers["user_name"]);
            start(visit, |_| Box::pin(async move { Ok(said(greeting)) }))
        }
    }
}

fn question(message: &str, name: &str, kind: &str) -> Result<InputRequest, ErrorData> {
    serde_json::from_value(field(message, name, kind)).map_err(internal)
}
