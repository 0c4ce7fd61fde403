//! One request of the command line to one server: done by a host in this process, or sent to the daemon.

use std::time::Duration;

use ostler_core::error::CallError;
use ostler_host::{Arguments, Caller, Request};
use ostler_wire::{Change, Params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The body of `POST /api/v1/call`. It names one tool, prompt or resource.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wish {
    pub(crate) server: String,
    /// The server's own name of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The server's own name of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// The URI of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<String>,
    /// Sent as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Box<RawValue>>,
    /// The answers to what the server asked in the round before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input_responses: Option<Box<RawValue>>,
    /// What the server wants back with the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_state: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// Whether the caller can be asked while the call is under way; for a connection that is upgraded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) elicitation: bool,
}

impl Wish {
    /// Makes the request of a caller.
    pub(crate) fn request<'a>(&'a self, caller: &'a Caller) -> Result<Request<'a>, CallError> {
        let invalid = |what: &str| CallError::Invalid {
            what: what.into(),
            hint: r#"name one of "tool", "prompt" and "uri""#.into(),
        };
        let (method, params) = match (&self.tool, &self.prompt, &self.uri) {
            (Some(tool), None, None) => {
                // The text of the arguments is passed on as it came.
                let arguments = self
                    .arguments
                    .as_ref()
                    .map_or_else(Arguments::none, |raw| Arguments::raw(raw.get().to_owned()));
                let request = Request::tool(caller, tool, arguments)?;
                if self.input_responses.is_none() && self.request_state.is_none() {
                    return Ok(self.limited(request));
                }
                let arguments = self.arguments.as_deref();
                (
                    "tools/call",
                    Params::tool_call(tool, arguments).map_err(|error| invalid(&error.to_string()))?,
                )
            }
            (None, Some(prompt), None) => {
                let arguments = self.arguments.as_deref();
                let params = Params::prompt_get(prompt, arguments);
                ("prompts/get", params.map_err(|error| invalid(&error.to_string()))?)
            }
            (None, None, Some(uri)) => ("resources/read", Params::resource_read(uri)),
            _ => return Err(invalid("the body names no item, or more than one")),
        };
        let changes: Vec<(&str, Change<'_>)> =
            [("inputResponses", &self.input_responses), ("requestState", &self.request_state)]
                .into_iter()
                .filter_map(|(key, raw)| Some((key, Change::Set(raw.as_deref()?.get().as_bytes()))))
                .collect();
        let params = match changes.is_empty() {
            true => params,
            false => ostler_wire::edit(params.raw(), &changes)
                .and_then(|text| Params::parse(text.into()).ok())
                .ok_or_else(|| invalid("the answers can't be read"))?,
        };
        Ok(self.limited(Request::new(caller, method, params)))
    }

    fn limited<'a>(&self, request: Request<'a>) -> Request<'a> {
        match self.timeout_ms {
            Some(ms) => request.within(Duration::from_millis(ms)),
            None => request,
        }
    }
}
