//! One request, and how to ask its client something before answering.
//!
//! A tool states its questions once. In a session they are asked as requests
//! of the server's own while the client waits; a request that stands alone is
//! answered with them instead, and comes again with the answers.

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
    pub(crate) world: &'a FixtureState,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// The tool or prompt that is asked for. A state sealed for one is no use to another.
    pub(crate) subject: &'a str,
    pub(crate) responses: Option<&'a InputResponses>,
    pub(crate) state: Option<&'a str>,
}

pub(crate) enum GatheredInput {
    Answers(InputResponses),
    /// The client has to come again with what this asks for.
    InputRequired(InputRequiredResult),
}

impl FixtureRequest<'_> {
    pub(crate) fn client(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }

    /// Asks without a state: whoever has the answers may come with them at once.
    pub(crate) async fn request_input(
        &self,
        questions: &[(&str, Value)],
    ) -> Result<GatheredInput, ErrorData> {
        let questions = parse_questions(questions)?;
        if !self.is_stateless() {
            return self.ask_in_session(questions).await.map(GatheredInput::Answers);
        }
        match self.match_answers(&questions)? {
            Some(answers) => Ok(GatheredInput::Answers(answers)),
            None => Ok(GatheredInput::InputRequired(InputRequiredResult::from_input_requests(questions))),
        }
    }

    /// Asks with a state, without which answers do not count.
    pub(crate) async fn request_input_with_state(
        &self,
        questions: &[(&str, Value)],
        state: &impl Serialize,
    ) -> Result<GatheredInput, ErrorData> {
        let questions = parse_questions(questions)?;
        if !self.is_stateless() {
            return self.ask_in_session(questions).await.map(GatheredInput::Answers);
        }
        let has_state = self.state::<Value>()?.is_some();
        if has_state && let Some(answers) = self.match_answers(&questions)? {
            return Ok(GatheredInput::Answers(answers));
        }
        let options = SealOptions::new().associated_data(self.subject.as_bytes());
        let sealed = self.world.states.seal_json_with(state, &options).map_err(internal_error)?;
        Ok(GatheredInput::InputRequired(InputRequiredResult::new(Some(questions), Some(sealed))))
    }

    /// The state that came back, if one did and nobody touched it.
    pub(crate) fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, ErrorData> {
        let Some(sealed) = self.state else { return Ok(None) };
        let opened = self.world.states.open_json_with(sealed, self.subject.as_bytes());
        let refused =
            |error| ErrorData::invalid_params(format!("requestState can't be trusted: {error}"), None);
        opened.map(Some).map_err(refused)
    }

    fn is_stateless(&self) -> bool {
        era::is_stateless(self.context.protocol_version().as_ref())
    }

    /// The answers, if every question has one; other keys are none of our business.
    fn match_answers(&self, questions: &InputRequests) -> Result<Option<InputResponses>, ErrorData> {
        let Some(responses) = self.responses else { return Ok(None) };
        let mut answers = InputResponses::new();
        for key in questions.keys() {
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

    async fn ask_in_session(&self, questions: InputRequests) -> Result<InputResponses, ErrorData> {
        let mut answers = InputResponses::new();
        for (key, question) in questions {
            let request = match question {
                InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
                InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
                InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
                _ => return Err(ErrorData::internal_error("a question of an unknown kind", None)),
            };
            let answer = self.context.peer.send_request(request).await.map_err(|error| match error {
                // What the client says to that is what its caller hears.
                ServiceError::McpError(refusal) => refusal,
                other => internal_error(other),
            })?;
            answers.insert(key, serde_json::to_value(answer).map_err(internal_error)?);
        }
        Ok(answers)
    }
}

fn parse_questions(questions: &[(&str, Value)]) -> Result<InputRequests, ErrorData> {
    let read =
        |(key, question): &(&str, Value)| Ok((key.to_string(), serde_json::from_value(question.clone())?));
    questions.iter().map(read).collect::<Result<_, serde_json::Error>>().map_err(internal_error)
}

pub(crate) fn internal_error(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
