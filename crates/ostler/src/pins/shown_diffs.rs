//! Differences that `ostler diff` has shown, kept in the state directory. `ostler approve` accepts no others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ostler_core::pins::Difference;
use ostler_core::server_name::ServerName;
use ostler_store::private_file;
use serde::{Deserialize, Serialize};

use super::diff_output::item_name;
use crate::config_file::read_at_most;
use crate::instance::DaemonInstance;

/// Fits the differences of a config whose servers are all new to the lock.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Shown differences by server. Showing a server again replaces its entry.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShownDiffs {
    #[serde(skip)]
    file: PathBuf,
    servers: BTreeMap<ServerName, ShownServer>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ShownServer {
    /// Transport of the server when it was shown.
    transport: String,
    /// Hashes of differences, by the names under which they are approved.
    items: BTreeMap<String, String>,
}

impl ShownDiffs {
    /// Reads the shown differences of a config. An unreadable file counts as empty.
    pub(crate) fn open(spot: &DaemonInstance) -> Self {
        let file = spot.reviewed_file();
        let text = read_at_most(&file, MAX_FILE_BYTES).unwrap_or_default();
        Self { file, ..serde_json::from_str(&text).unwrap_or_default() }
    }

    /// Records all differences of a server.
    pub(crate) fn record(&mut self, server: &ServerName, transport: &str, found: &[Difference]) {
        let item = |it: &Difference| (item_name(server, it.section, &it.name), it.hash().to_string());
        let entry = ShownServer { transport: transport.to_owned(), items: found.iter().map(item).collect() };
        self.servers.insert(server.clone(), entry);
    }

    /// Returns whether the differences of a server were shown, even if there were none.
    pub(crate) fn has_server(&self, server: &ServerName) -> bool {
        self.servers.contains_key(server)
    }

    /// Returns whether this difference was shown, with the same hash.
    pub(crate) fn has_difference(&self, server: &ServerName, difference: &Difference) -> bool {
        let items = self.servers.get(server).map(|entry| &entry.items);
        let shown =
            items.and_then(|items| items.get(&item_name(server, difference.section, &difference.name)));
        shown == Some(&difference.hash().to_string())
    }

    /// Returns whether the server was shown with this transport.
    pub(crate) fn has_transport(&self, server: &ServerName, transport: &str) -> bool {
        self.servers.get(server).is_some_and(|entry| entry.transport == transport)
    }

    pub(crate) fn write(&self) -> std::io::Result<()> {
        private_file::create_parent_dir(&self.file)?;
        private_file::replace_file(&self.file, &serde_json::to_vec(self)?)
    }
}
