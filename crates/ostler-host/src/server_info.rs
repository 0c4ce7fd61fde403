//! Server information for callers, and the log level requested of servers.

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_wire::ServerInfo;

use crate::host::Host;
use crate::lifecycle::wait_until_started;
use crate::log_level::LogLevel;

impl Host {
    /// Returns the servers that the caller may see, sorted.
    pub fn servers(&self, caller: &Caller) -> Vec<ServerName> {
        self.visible_servers(caller).iter().map(|server| server.spec.name.clone()).collect()
    }

    /// Returns whether the caller may see a server.
    pub fn may_see(&self, caller: &Caller, server: &str) -> bool {
        self.visible_server(caller, server).is_ok()
    }

    /// Returns whether callers share the state that a server keeps for them.
    pub fn is_shared(&self, server: &str) -> bool {
        self.server(server).is_ok_and(|server| server.is_shared())
    }

    /// Returns the server's own description of itself. Starts the server if needed, within its start timeout.
    pub async fn server_info(&self, caller: &Caller, server: &str) -> Result<ServerInfo, CallError> {
        let server = self.visible_server(caller, server)?;
        let slot = server.slot(caller)?;
        wait_until_started(&slot).await?;
        let hello = slot.last_server_info().ok_or_else(|| slot.shutting_down_error())?;
        Ok(self.without_unapproved(slot.key.server.as_str(), &hello))
    }

    /// Returns the description that a server's last session gave. Asks no server.
    pub fn known_server_info(&self, caller: &Caller, server: &str) -> Option<ServerInfo> {
        let server = self.visible_server(caller, server).ok()?;
        let hello = server.existing_slot(caller)?.last_server_info()?;
        Some(self.without_unapproved(server.spec.name.as_str(), &hello))
    }

    /// Removes unapproved instructions.
    fn without_unapproved(&self, server: &str, hello: &ServerInfo) -> ServerInfo {
        let mut hello = hello.clone();
        hello.instructions =
            hello.instructions.filter(|advice| self.may_show_instructions(server, &advice.text()));
        hello
    }

    /// Requests log lines of a server from this level on. The server is asked for the most verbose level that any
    /// caller without restrictions has requested of it, and never for less than `info`, which is for callers without a
    /// level. Each caller gets the lines of its own level.
    pub fn request_log_level(&self, caller: &Caller, server: &str, level: LogLevel) {
        let Ok(server) = self.visible_server(caller, server) else { return };
        if self.is_restricted_at(caller, server.spec.name.as_str()) {
            return;
        }
        if !server.level.request(level.min(LogLevel::Info)) {
            return;
        }
        for slot in server.slots() {
            tokio::spawn(async move { slot.set_level().await });
        }
    }

    /// Returns the level that a server was asked for, if any caller has requested one.
    pub fn requested_log_level(&self, server: &str) -> Option<LogLevel> {
        self.server(server).ok()?.level.get()
    }
}
