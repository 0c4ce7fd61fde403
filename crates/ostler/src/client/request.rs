//! Request to one server: executed by a host in a command's process, or by a daemon.

use std::time::Duration;

use ostler_core::error::CallError;
use ostler_host::{Caller, Request};
use ostler_wire::{MemberEdit, Params};
use serde_json::value::RawValue;

use crate::output::escape_line;

/// Call of a tool, prompt or resource; exactly one of them is named.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallRequest {
    pub(crate) server: String,
    /// The server's own name of a tool.
    pub(crate) tool: Option<String>,
    /// The server's own name of a prompt.
    pub(crate) prompt: Option<String>,
    /// URI of a resource.
    pub(crate) uri: Option<String>,
    /// Sent byte for byte.
    pub(crate) arguments: Option<Box<RawValue>>,
    /// Responses to the server's questions of the round before.
    pub(crate) input_responses: Option<Box<RawValue>>,
    /// State that the server wants back with the responses.
    pub(crate) request_state: Option<Box<RawValue>>,
    pub(crate) timeout_ms: Option<u64>,
}

impl CallRequest {
    /// Describes the tool, prompt or resource.
    pub(crate) fn describe(&self) -> String {
        match &self.tool {
            Some(tool) => format!("the tool `{}`", escape_line(&format!("{}__{tool}", self.server))),
            None if self.prompt.is_some() => "the prompt".into(),
            None => "the resource".into(),
        }
    }

    /// Returns the host's request of a caller.
    pub(crate) fn to_request<'a>(&'a self, caller: &'a Caller) -> Result<Request<'a>, CallError> {
        let (method, params) = self.method_and_params()?;
        let request = Request::new(caller, method, params);
        Ok(match self.timeout_ms {
            Some(ms) => request.with_timeout(Duration::from_millis(ms)),
            None => request,
        })
    }

    /// Returns method and parameters of MCP. The text of arguments is passed on byte for byte.
    pub(crate) fn method_and_params(&self) -> Result<(&'static str, Params), CallError> {
        let invalid = |what: String| CallError::Invalid {
            what,
            hint: r#"name one of "tool", "prompt" and "uri""#.into(),
        };
        let arguments = self.arguments.as_deref();
        let (method, params) = match (&self.tool, &self.prompt, &self.uri) {
            (Some(tool), None, None) => ("tools/call", Params::tool_call(tool, arguments)),
            (None, Some(prompt), None) => ("prompts/get", Params::prompt_get(prompt, arguments)),
            (None, None, Some(uri)) => ("resources/read", Ok(Params::resource_read(uri))),
            _ => return Err(invalid("the request names no item, or more than one".into())),
        };
        let params = params.map_err(|error| CallError::Invalid {
            what: format!("the arguments are not a JSON object: {error}"),
            hint: r#"pass an object such as {"key": "value"}"#.into(),
        })?;
        let changes: Vec<(&str, MemberEdit<'_>)> =
            [("inputResponses", &self.input_responses), ("requestState", &self.request_state)]
                .into_iter()
                .filter_map(|(key, raw)| Some((key, MemberEdit::Set(raw.as_deref()?.get().as_bytes()))))
                .collect();
        let params = match changes.is_empty() {
            true => params,
            false => ostler_wire::edit(params.raw(), &changes)
                .and_then(|text| Params::parse(text.into()).ok())
                .ok_or_else(|| invalid("the answers can't be read".into()))?,
        };
        Ok((method, params))
    }
}
