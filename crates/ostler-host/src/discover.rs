//! Everything a caller can use, over all servers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::host::Host;
use crate::lists::{AT_ONCE, Kind};
use crate::server::Server;
use crate::tally::Errand;
use crate::tools::ListedTool;

/// The time one server has; the others don't wait for it longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one server offers, or why that is not known.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The server.
    pub server: ServerName,
    /// Its tools, as far as the caller may use them.
    pub tools: Result<Vec<ListedTool>, CallError>,
}

impl Host {
    /// The tools of all servers that the caller may see, sorted by server. A
    /// sleeping server is not woken if its tools are known. A sick one is told
    /// of in its place and spoils nothing.
    pub async fn discover(&self, caller: &Caller) -> Vec<Discovered> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut sweep = JoinSet::new();
        for server in self.visible_servers(caller) {
            let (host, caller, turns) = (self.clone(), caller.clone(), Arc::clone(&turns));
            sweep.spawn(async move {
                let _turn = turns.acquire().await;
                let name = server.spec.name.clone();
                let tools = match tokio::time::timeout(PATIENCE, host.tools_of(&caller, &server)).await {
                    Ok(tools) => tools,
                    Err(_) => Err(CallError::TimedOut {
                        server: name.clone(),
                        after: PATIENCE,
                        delivery: ostler_core::fault::Delivery::Unknown,
                    }),
                };
                Discovered { server: name, tools }
            });
        }
        let mut found = Vec::new();
        while let Some(joined) = sweep.join_next().await {
            found.extend(joined);
        }
        found.sort_by(|a, b| a.server.cmp(&b.server));
        found
    }

    async fn tools_of(&self, caller: &Caller, server: &Server) -> Result<Vec<ListedTool>, CallError> {
        let slot = server.slot(caller)?;
        if let Some(known) = self.list_of_sleeper(&slot, caller, Kind::Tools).await {
            return Ok(self.show(caller, server, &known));
        }
        let _in_flight = self.count_in(caller, Errand::Look)?;
        let known = self.current_list(&slot, caller, Kind::Tools).await?;
        Ok(self.show(caller, server, &known))
    }
}
