//! Tools that need something from the client before they can answer.
#![expect(deprecated, reason = "the suite asks for sampling, which newer revisions give up")]

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, ClientCapabilities, InputResponses, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::content::said;
use crate::narrate;
use crate::questions::{self, field, form, roots, sample};
use crate::visit::{Gathered, Visit};

/// How far the tool with two rounds has come.
#[derive(Default, Serialize, Deserialize)]
struct Progress {
    name: Option<String>,
}

/// The answer of such a tool, if `visit` is for one.
pub(crate) async fn call(
    visit: &Visit<'_>,
    arguments: &JsonObject,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = || field("What is your name?", "name", "string");
    Some(match visit.subject {
        "test_sampling" => {
            let questions = [("sampling", sample(argument("prompt")))];
            ask(visit, &questions, |answers| format!("LLM response: {}", spoken(&answers["sampling"]))).await
        }
        "test_elicitation" => {
            let properties = json!({
                "username": { "type": "string", "description": "Your name" },
                "email": { "type": "string", "description": "Your address" },
            });
            let questions = [("elicitation", form(argument("message"), properties, &["username", "email"]))];
            ask(visit, &questions, |answers| format!("User response: {}", answers["elicitation"])).await
        }
        "test_elicitation_sep1034_defaults" => {
            ask(visit, &[("form", questions::defaults())], completed).await
        }
        "test_elicitation_sep1330_enums" => {
            ask(visit, &[("form", questions::enumerations())], completed).await
        }
        "test_streaming_elicitation" => {
            narrate::progress(visit.context, 50.0, "Asking").await;
            ask(visit, &[("form", name())], completed).await
        }
        "test_input_required_result_elicitation" => {
            ask(visit, &[("user_name", name())], |answers| greeting(&answers["user_name"])).await
        }
        "test_input_required_result_sampling" => {
            let questions = [("capital_question", sample("What is the capital of France?"))];
            ask(visit, &questions, |answers| spoken(&answers["capital_question"])).await
        }
        "test_input_required_result_list_roots" => {
            ask(visit, &[("client_roots", roots())], |answers| answers["client_roots"].to_string()).await
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            let questions = [("confirm", field("Please confirm", "ok", "boolean"))];
            ask_with(visit, &questions, |answers| format!("state-ok: {}", answers["confirm"])).await
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = [
                ("user_name", name()),
                ("greeting", sample("Generate a greeting")),
                ("client_roots", roots()),
            ];
            ask_with(visit, &questions, |answers| json!(answers).to_string()).await
        }
        "test_input_required_result_multi_round" => two_rounds(visit).await,
        "test_input_required_result_capabilities" => what_the_client_can(visit).await,
        "test_missing_capability" => needs_sampling(visit),
        _ => return None,
    })
}

async fn ask(
    visit: &Visit<'_>,
    questions: &[(&str, Value)],
    tell: impl FnOnce(InputResponses) -> String,
) -> Result<CallToolResponse, ErrorData> {
    Ok(match visit.gather(questions).await? {
        Gathered::Answers(answers) => said(tell(answers)).into(),
        Gathered::Ask(result) => result.into(),
    })
}

async fn ask_with(
    visit: &Visit<'_>,
    questions: &[(&str, Value)],
    tell: impl FnOnce(InputResponses) -> String,
) -> Result<CallToolResponse, ErrorData> {
    Ok(match visit.gather_with(questions, &json!({ "asked": visit.subject })).await? {
        Gathered::Answers(answers) => said(tell(answers)).into(),
        Gathered::Ask(result) => result.into(),
    })
}

async fn two_rounds(visit: &Visit<'_>) -> Result<CallToolResponse, ErrorData> {
    let name = match visit.state::<Progress>()?.unwrap_or_default().name {
        Some(name) => name,
        None => {
            let questions = [("step1", field("Step 1: What is your name?", "name", "string"))];
            match visit.gather_with(&questions, &Progress::default()).await? {
                Gathered::Answers(answers) => entry(&answers["step1"], "name"),
                Gathered::Ask(result) => return Ok(result.into()),
            }
        }
    };
    let questions = [("step2", field("Step 2: What is your favourite colour?", "color", "string"))];
    let progress = Progress { name: Some(name.clone()) };
    Ok(match visit.gather_with(&questions, &progress).await? {
        Gathered::Answers(answers) => {
            said(format!("{name} likes {}", entry(&answers["step2"], "color"))).into()
        }
        Gathered::Ask(result) => result.into(),
    })
}

async fn what_the_client_can(visit: &Visit<'_>) -> Result<CallToolResponse, ErrorData> {
    let client = visit.client();
    let mut questions = Vec::new();
    if client.elicitation.is_some() {
        questions.push(("user_name", field("What is your name?", "name", "string")));
    }
    if client.sampling.is_some() {
        questions.push(("greeting", sample("Generate a greeting")));
    }
    if questions.is_empty() {
        return Ok(said("Nothing can be asked of this client").into());
    }
    ask(visit, &questions, |answers| json!(answers).to_string()).await
}

fn needs_sampling(visit: &Visit<'_>) -> Result<CallToolResponse, ErrorData> {
    if visit.client().sampling.is_some() {
        return Ok(said("This client has a model").into());
    }
    let required = ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(required))
}

fn completed(answers: InputResponses) -> String {
    format!("Elicitation completed: {}", answers.values().next().unwrap_or(&Value::Null))
}

pub(crate) fn greeting(answer: &Value) -> String {
    format!("Hello, {}!", entry(answer, "name"))
}

fn entry(answer: &Value, key: &str) -> String {
    answer["content"][key].as_str().unwrap_or("stranger").to_owned()
}

/// The text of a sampled message, whose content may be one block or a list.
fn spoken(answer: &Value) -> String {
    let content = &answer["content"];
    let text = content["text"].as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or("nothing").to_owned()
}
