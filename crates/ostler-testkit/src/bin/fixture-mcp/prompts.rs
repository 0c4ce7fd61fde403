//! Prompts of the fixture.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResponse, GetPromptResult, JsonObject, PromptMessage};
use serde_json::{Value, json};

use crate::client_requests::field;
use crate::content::{embedded, image, text};
use crate::request::{FixtureRequest, GatheredInput, internal_error};

pub(crate) async fn get(
    request: &FixtureRequest<'_>,
    arguments: &JsonObject,
) -> Result<GetPromptResponse, ErrorData> {
    let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let contents = match request.subject {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_extra_prompt" => vec![text("This prompt comes and goes.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => vec![
            embedded(argument("resourceUri"), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        "test_input_required_result_prompt" => {
            let questions =
                [("user_context", field("What context should the prompt use?", "context", "string"))];
            match request.request_input(&questions).await? {
                GatheredInput::InputRequired(result) => return Ok(result.into()),
                GatheredInput::Answers(answers) => {
                    vec![text(format!("The context is {}", answers["user_context"]))]
                }
            }
        }
        name => return Err(ErrorData::invalid_params(format!("Unknown prompt: {name}"), None)),
    };
    let read = |content| serde_json::from_value(json!({ "role": "user", "content": content }));
    let messages: Result<Vec<PromptMessage>, _> = contents.into_iter().map(read).collect();
    Ok(GetPromptResult::new(messages.map_err(internal_error)?).into())
}
