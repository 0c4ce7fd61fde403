//! Fixture of the HTTP tests: one host and its remote servers.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::error::{CallError, Unavailable, UnavailableState};
use ostler_core::spec::{EndpointSpec, ServerTransport};
use ostler_core::status::ServerStatus;
use ostler_host::{Answer, Caller, Host, HostOptions, Request, ServerName, ServerSpec};
use serde_json::{Value, json};

use crate::scripted_endpoint::ScriptedEndpoint;

/// Timeout of any wait, long enough for a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct HttpFixture {
    pub(crate) host: Host,
    pub(crate) me: Caller,
}

pub(crate) fn spec(url: &str) -> ServerSpec {
    spec_with(url, &[])
}

pub(crate) fn spec_with(url: &str, headers: &[(&str, &str)]) -> ServerSpec {
    let headers: BTreeMap<_, _> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let endpoint = EndpointSpec { url: url.to_owned(), headers };
    ServerSpec::with_transport(ServerName::new("remote").unwrap(), ServerTransport::Http(endpoint)).lazy()
}

impl HttpFixture {
    /// Makes a host with one server, which is not started yet.
    pub(crate) async fn with_server(spec: ServerSpec) -> Self {
        let stage = Self { host: Host::new(HostOptions::default()), me: Caller::local() };
        stage.host.spawn(&stage.me, spec).await.unwrap();
        stage
    }

    pub(crate) async fn connected_to(remote: &ScriptedEndpoint) -> Self {
        Self::with_server(spec(&remote.url())).await
    }

    pub(crate) async fn call(&self, tool: &str) -> Result<Answer, CallError> {
        self.call_with(tool, json!({})).await
    }

    pub(crate) async fn call_with(&self, tool: &str, arguments: Value) -> Result<Answer, CallError> {
        tokio::time::timeout(LONG, self.host.call(&self.me, "remote", tool, arguments)).await.unwrap()
    }

    /// Returns the text of a call that must succeed.
    pub(crate) async fn text(&self, tool: &str) -> String {
        match self.call(tool).await {
            Ok(answer) => answer.text(),
            Err(error) => panic!("{}", error.render()),
        }
    }

    pub(crate) fn request(&self, tool: &str) -> Request<'_> {
        Request::tool_call(&self.me, tool, json!({}).into()).unwrap()
    }

    pub(crate) fn status(&self) -> ServerStatus {
        self.host.status_of("remote").unwrap()
    }
}

/// Returns the state and the retry delay of a `server-unavailable` error.
pub(crate) fn unavailable(outcome: Result<Answer, CallError>) -> (UnavailableState, Option<Duration>) {
    match outcome {
        Err(CallError::Unavailable(Unavailable { state, retry_after, .. })) => (state, retry_after),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn code(outcome: &Result<Answer, CallError>) -> &'static str {
    outcome.as_ref().map_or_else(CallError::code, |_| "ok")
}
