//! Everything a caller can use, over all servers.

use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::host::Host;
use crate::lists::Kind;
use crate::server::Server;
use crate::tally::Errand;
use crate::tools::ListedTool;

/// The time that one server has to list its tools, its start not counted; the others don't wait for it longer.
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
    /// sleeping server is not woken if its tools are known. One that has to be
    /// started is waited for. A sick one is told of in its place and spoils nothing.
    pub async fn discover(&self, caller: &Caller) -> Vec<Discovered> {
        let mut sweep = JoinSet::new();
        for server in self.visible_servers(caller) {
            let (host, caller) = (self.clone(), caller.clone());
            sweep.spawn(async move {
                let tools = host.tools_of(&caller, &server).await;
                Discovered { server: server.spec.name.clone(), tools }
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
        let listing = async {
            tokio::select! {
                biased;
                listed = self.current_list(&slot, caller, Kind::Tools) => listed,
                error = slot.until_start_failed() => Err(error),
            }
        };
        tokio::pin!(listing);
        loop {
            match timeout(PATIENCE, &mut listing).await {
                Ok(listed) => return listed.map(|known| self.show(caller, server, &known)),
                // A start has a limit of its own.
                Err(_) if slot.is_coming_up() => {}
                Err(_) => return Err(slot.list_timed_out(PATIENCE)),
            }
        }
    }
}
