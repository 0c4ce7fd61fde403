//! Request to the fixture, and the way to ask its client for input before answering.
//!
//! A tool states its input requests once. In a session the fixture sends them as requests of its
//! own while the client waits. A stateless request is answered with them, and the client repeats it
//! with the answers.

use rmcp::model::{ClientCapabilities, InputRequest, InputRequests, InputRequiredResult, InputResponses};
use rmcp::model::{SealOptions, ServerRequest};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServiceError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::era;
use crate::shared_state::FixtureState;

pub(crate) struct FixtureRequest<'a> {
    pub(crate) shared: &'a FixtureState,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// The tool or prompt of the request. A state sealed for one subject is refused for another.
    pub(crate) subject: &'a str,
    pub(crate) responses: Option<&'a InputResponses>,
    pub(crate) state: Option<&'a str>,
}

pub(crate) enum GatheredInput {
    Answers(InputResponses),
    /// The client has to repeat the request with the answers to these input requests.
    InputRequired(InputRequiredResult),
}

impl FixtureRequest<'_> {
    pub(crate) fn client(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }

    /// Asks without a state: a client that has the answers may send them at once.
    pub(crate) async fn request_input(&self, inputs: &[(&str, Value)]) -> Result<GatheredInput, ErrorData> {
        let inputs = parse_inputs(inputs)?;
        if !self.is_stateless() {
            return self.ask_in_session(inputs).await.map(GatheredInput::Answers);
        }
        match self.match_answers(&inputs)? {
            Some(answers) => Ok(GatheredInput::Answers(answers)),
            None => Ok(GatheredInput::InputRequired(InputRequiredResult::from_input_requests(inputs))),
        }
    }

    /// Asks with a state; answers without it do not count.
    pub(crate) async fn request_input_with_state(
        &self,
        inputs: &[(&str, Value)],
        state: &impl Serialize,
    ) -> Result<GatheredInput, ErrorData> {
        let inputs = parse_inputs(inputs)?;
        if !self.is_stateless() {
            return self.ask_in_session(inputs).await.map(GatheredInput::Answers);
        }
        let has_state = self.state::<Value>()?.is_some();
        if has_state && let Some(answers) = self.match_answers(&inputs)? {
            return Ok(GatheredInput::Answers(answers));
        }
        let options = SealOptions::new().associated_data(self.subject.as_bytes());
        let sealed = self.shared.states.seal_json_with(state, &options).map_err(internal_error)?;
        Ok(GatheredInput::InputRequired(InputRequiredResult::new(Some(inputs), Some(sealed))))
    }

    /// Returns the state that came back, if the request has one. Refuses a state that was changed.
    pub(crate) fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, ErrorData> {
        let Some(sealed) = self.state else { return Ok(None) };
        let opened = self.shared.states.open_json_with(sealed, self.subject.as_bytes());
        let refused =
            |error| ErrorData::invalid_params(format!("requestState can't be trusted: {error}"), None);
        opened.map(Some).map_err(refused)
    }

    fn is_stateless(&self) -> bool {
        era::is_stateless(self.context.protocol_version().as_ref())
    }

    /// Returns the answers if every input request has one; other keys are ignored.
    fn match_answers(&self, inputs: &InputRequests) -> Result<Option<InputResponses>, ErrorData> {
        let Some(responses) = self.responses else { return Ok(None) };
        let mut answers = InputResponses::new();
        for key in inputs.keys() {
            match responses.get(key) {
                Some(answer) if answer.is_object() => answers.insert(key.clone(), answer.clone()),
                Some(_) => {
                    return Err(ErrorData::invalid_params(
                        format!("inputResponses.{key} is no object"),
                        None,
                    ));
                }
                None => return Ok(None),
            };
        }
        Ok(Some(answers))
    }

    async fn ask_in_session(&self, inputs: InputRequests) -> Result<InputResponses, ErrorData> {
        let mut answers = InputResponses::new();
        for (key, input) in inputs {
            let request = match input {
                InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
                InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
                InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
                _ => return Err(ErrorData::internal_error("a input of an unknown kind", None)),
            };
            let answer = self.context.peer.send_request(request).await.map_err(|error| match error {
                // The caller gets the client's own error.
                ServiceError::McpError(refusal) => refusal,
                other => internal_error(other),
            })?;
            answers.insert(key, serde_json::to_value(answer).map_err(internal_error)?);
        }
        Ok(answers)
    }
}

fn parse_inputs(inputs: &[(&str, Value)]) -> Result<InputRequests, ErrorData> {
    let read = |(key, input): &(&str, Value)| Ok((key.to_string(), serde_json::from_value(input.clone())?));
    inputs.iter().map(read).collect::<Result<_, serde_json::Error>>().map_err(internal_error)
}

pub(crate) fn internal_error(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
