//! Tools that need input of the client before they can answer.
#![expect(deprecated, reason = "the suite asks for sampling, which newer revisions give up")]

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, ClientCapabilities, InputResponses, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_requests::{self, field, form, roots, sample};
use crate::content::text_result;
use crate::logging_tools;
use crate::request::{FixtureRequest, GatheredInput};

/// The state of the tool with two rounds.
#[derive(Default, Serialize, Deserialize)]
struct TwoRoundState {
    name: Option<String>,
}

/// Calls such a tool, if `request` is for one.
pub(crate) async fn call(
    request: &FixtureRequest<'_>,
    arguments: &JsonObject,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = || field("What is your name?", "name", "string");
    Some(match request.subject {
        "test_sampling" => {
            let questions = [("sampling", sample(argument("prompt")))];
            answer_with_input(request, &questions, |answers| {
                format!("LLM response: {}", sampled_text(&answers["sampling"]))
            })
            .await
        }
        "test_elicitation" => {
            let properties = json!({
                "username": { "type": "string", "description": "Your name" },
                "email": { "type": "string", "description": "Your address" },
            });
            let questions = [("elicitation", form(argument("message"), properties, &["username", "email"]))];
            answer_with_input(request, &questions, |answers| {
                format!("User response: {}", answers["elicitation"])
            })
            .await
        }
        "test_elicitation_sep1034_defaults" => {
            answer_with_input(request, &[("form", client_requests::defaults())], completed).await
        }
        "test_elicitation_sep1330_enums" => {
            answer_with_input(request, &[("form", client_requests::enumerations())], completed).await
        }
        "test_streaming_elicitation" => {
            logging_tools::progress(request.context, 50.0, "Asking").await;
            answer_with_input(request, &[("form", name())], completed).await
        }
        "test_input_required_result_elicitation" => {
            answer_with_input(request, &[("user_name", name())], |answers| greeting(&answers["user_name"]))
                .await
        }
        "test_input_required_result_sampling" => {
            let questions = [("capital_question", sample("What is the capital of France?"))];
            answer_with_input(request, &questions, |answers| sampled_text(&answers["capital_question"])).await
        }
        "test_input_required_result_list_roots" => {
            answer_with_input(request, &[("client_roots", roots())], |answers| {
                answers["client_roots"].to_string()
            })
            .await
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            let questions = [("confirm", field("Please confirm", "ok", "boolean"))];
            answer_with_input_and_state(request, &questions, |answers| {
                format!("state-ok: {}", answers["confirm"])
            })
            .await
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = [
                ("user_name", name()),
                ("greeting", sample("Generate a greeting")),
                ("client_roots", roots()),
            ];
            answer_with_input_and_state(request, &questions, |answers| json!(answers).to_string()).await
        }
        "test_input_required_result_multi_round" => two_rounds(request).await,
        "test_input_required_result_capabilities" => ask_supported_kinds(request).await,
        "test_missing_capability" => require_sampling(request),
        _ => return None,
    })
}

async fn answer_with_input(
    request: &FixtureRequest<'_>,
    questions: &[(&str, Value)],
    tell: impl FnOnce(InputResponses) -> String,
) -> Result<CallToolResponse, ErrorData> {
    Ok(match request.request_input(questions).await? {
        GatheredInput::Answers(answers) => text_result(tell(answers)).into(),
        GatheredInput::InputRequired(result) => result.into(),
    })
}

async fn answer_with_input_and_state(
    request: &FixtureRequest<'_>,
    questions: &[(&str, Value)],
    tell: impl FnOnce(InputResponses) -> String,
) -> Result<CallToolResponse, ErrorData> {
    Ok(match request.request_input_with_state(questions, &json!({ "asked": request.subject })).await? {
        GatheredInput::Answers(answers) => text_result(tell(answers)).into(),
        GatheredInput::InputRequired(result) => result.into(),
    })
}

async fn two_rounds(request: &FixtureRequest<'_>) -> Result<CallToolResponse, ErrorData> {
    let name = match request.state::<TwoRoundState>()?.unwrap_or_default().name {
        Some(name) => name,
        None => {
            let questions = [("step1", field("Step 1: What is your name?", "name", "string"))];
            match request.request_input_with_state(&questions, &TwoRoundState::default()).await? {
                GatheredInput::Answers(answers) => answer_field(&answers["step1"], "name"),
                GatheredInput::InputRequired(result) => return Ok(result.into()),
            }
        }
    };
    let questions = [("step2", field("Step 2: What is your favourite colour?", "color", "string"))];
    let progress = TwoRoundState { name: Some(name.clone()) };
    Ok(match request.request_input_with_state(&questions, &progress).await? {
        GatheredInput::Answers(answers) => {
            text_result(format!("{name} likes {}", answer_field(&answers["step2"], "color"))).into()
        }
        GatheredInput::InputRequired(result) => result.into(),
    })
}

async fn ask_supported_kinds(request: &FixtureRequest<'_>) -> Result<CallToolResponse, ErrorData> {
    let client = request.client();
    let mut questions = Vec::new();
    if client.elicitation.is_some() {
        questions.push(("user_name", field("What is your name?", "name", "string")));
    }
    if client.sampling.is_some() {
        questions.push(("greeting", sample("Generate a greeting")));
    }
    if questions.is_empty() {
        return Ok(text_result("Nothing can be asked of this client").into());
    }
    answer_with_input(request, &questions, |answers| json!(answers).to_string()).await
}

fn require_sampling(request: &FixtureRequest<'_>) -> Result<CallToolResponse, ErrorData> {
    if request.client().sampling.is_some() {
        return Ok(text_result("This client has a model").into());
    }
    let required = ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(required))
}

fn completed(answers: InputResponses) -> String {
    format!("Elicitation completed: {}", answers.values().next().unwrap_or(&Value::Null))
}

pub(crate) fn greeting(answer: &Value) -> String {
    format!("Hello, {}!", answer_field(answer, "name"))
}

fn answer_field(answer: &Value, key: &str) -> String {
    answer["content"][key].as_str().unwrap_or("stranger").to_owned()
}

/// Returns the text of a sampled message, whose content may be one block or a list.
fn sampled_text(answer: &Value) -> String {
    let content = &answer["content"];
    let text = content["text"].as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or("nothing").to_owned()
}
