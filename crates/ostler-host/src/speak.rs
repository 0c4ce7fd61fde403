//! What a host knows of its servers, and the log level that it wants of them.

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::spec::Isolation;
use ostler_wire::Hello;

use crate::host::Host;
use crate::level::LogLevel;
use crate::operate::settled;

impl Host {
    /// The servers that the caller may see, sorted.
    pub fn servers(&self, caller: &Caller) -> Vec<ServerName> {
        self.visible_servers(caller).iter().map(|server| server.spec.name.clone()).collect()
    }

    /// Whether the caller may see a server.
    pub fn sees(&self, caller: &Caller, server: &str) -> bool {
        self.visible_server(caller, server).is_ok()
    }

    /// Whether all callers share one session of a server, and so what it keeps
    /// for them.
    pub fn is_shared(&self, server: &str) -> bool {
        self.server(server).is_ok_and(|server| server.spec.isolation == Isolation::Shared)
    }

    /// What a server says of itself. It is started if needed, within its
    /// start timeout.
    pub async fn hello(&self, caller: &Caller, server: &str) -> Result<Hello, CallError> {
        let server = self.visible_server(caller, server)?;
        let slot = server.slot(caller)?;
        settled(&slot).await?;
        slot.hello().map(|hello| Hello::clone(&hello)).ok_or_else(|| slot.vanished())
    }

    /// What a server's last session said of itself. Nobody is asked.
    pub fn known_hello(&self, caller: &Caller, server: &str) -> Option<Hello> {
        let server = self.visible_server(caller, server).ok()?;
        let hello = server.existing_slot(caller)?.hello()?;
        Some(Hello::clone(&hello))
    }

    /// Wants log lines of a server from this level on. Of all levels that were
    /// ever wanted the most verbose one is asked for.
    pub fn want_log_level(&self, server: &str, level: LogLevel) {
        let Ok(server) = self.server(server) else { return };
        if !server.level.want(level) {
            return;
        }
        for slot in server.slots() {
            tokio::spawn(async move { slot.set_level().await });
        }
    }
}
