//! What can be called.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Caller, Discovered, off_thread};

use super::query::Query;
use super::{fail, reply};
use crate::api::{ErrorBody, ServerError, Tool, Tools};
use crate::command::tools::name;
use crate::daemon::Daemon;
use crate::workspace;

pub(super) async fn list(
    State(daemon): State<Arc<Daemon>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let caller = workspace::caller_of(&headers, daemon.local.clone()).await;
    let query = Query(query.as_deref().unwrap_or_default());
    let found = match query.get("server").filter(|server| !server.is_empty()) {
        Some(server) => daemon.tools_of(&caller, server).await.map(|one| vec![one]),
        None => Ok(daemon.discover(&caller).await),
    };
    match found {
        Ok(found) => {
            let tools = found.iter().filter_map(|one| one.tools.as_ref().ok()).flatten();
            let size = tools.map(|tool| tool.tool.definition.len()).sum();
            let is_full = query.is_set("full");
            off_thread(size, move || reply(StatusCode::OK, &describe(&found, is_full))).await
        }
        Err(error) => fail(&error),
    }
}

impl Daemon {
    /// The tools of one server, asked for now.
    async fn tools_of(&self, caller: &Caller, server: &str) -> Result<Discovered, CallError> {
        let server = self.visible_name(caller, server)?;
        let tools = match self.roster.refusal(server.as_str()) {
            Some(error) => Err(error),
            None => self.host.tools(caller, server.as_str()).await,
        };
        Ok(Discovered { server, tools })
    }

    /// Returns the name of a server that the caller may see, disabled ones included.
    pub(super) fn visible_name(&self, caller: &Caller, server: &str) -> Result<ServerName, CallError> {
        let mut names = self.roster.names();
        names.extend(self.roster.disabled().into_iter().map(|server| server.spec.name));
        names.retain(|name| {
            self.host.sees(caller, name.as_str()) || self.roster.refusal(name.as_str()).is_some()
        });
        let found = names.iter().find(|name| name.as_str() == server).cloned();
        found.ok_or_else(|| CallError::unknown_server(server, names.iter().map(ServerName::as_str)))
    }

    /// The tools of all servers, by name; those of a sleeping one as far as they are known.
    async fn discover(&self, caller: &Caller) -> Vec<Discovered> {
        let mut found = self.host.discover(caller).await;
        found.extend(self.roster.names().into_iter().filter_map(|server| {
            let error = self.roster.refusal(server.as_str())?;
            Some(Discovered { server, tools: Err(error) })
        }));
        found.sort_by(|a, b| a.server.cmp(&b.server));
        found.dedup_by(|a, b| a.server == b.server);
        found
    }
}

fn describe(found: &[Discovered], is_full: bool) -> Tools {
    let entries = name(found).into_iter().map(|(name, tool)| Tool {
        name,
        server: tool.server.clone(),
        tool: tool.tool.name.clone(),
        definition: is_full.then(|| serde_json::from_slice(&tool.tool.definition).ok()).flatten(),
    });
    let broken = found.iter().filter_map(|one| {
        let error = ErrorBody::from(one.tools.as_ref().err()?);
        Some(ServerError { server: one.server.clone(), error })
    });
    Tools {
        servers: found.iter().map(|one| one.server.clone()).collect(),
        tools: entries.collect(),
        errors: broken.collect(),
    }
}
