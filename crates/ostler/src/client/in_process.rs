//! Host in the command's process, with the lifetime of the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ostler_core::card::CardReport;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_core::status::ServerStatus;
use ostler_host::process::GuardCommand;
use ostler_host::{
    Caller, Host, HostOptions, Kind, ListedTool, Scope, ServerListing, ServerTools, Snapshot, StartRetry,
};
use tokio::task::JoinSet;

use super::wait_messages::with_slow_message;
use super::{CallRequest, DefinitionsResult, InProcessOptions, ProbeResult};
use crate::audit::{AuditLog, CLOSE_TIMEOUT, ProcessLifetime};
use crate::call_events::CallEventSender;
use crate::failure::CommandFailure;
use crate::output::print_stderr;
use crate::workspace;
use crate::xdg;

/// Timeout of one server's lists.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Servers of a config, ready for use. Clones share them.
#[derive(Clone)]
pub(crate) struct InProcessBackend {
    host: Host,
    /// Caller of calls and lists: a caller on this machine like any other.
    caller: Caller,
    /// Caller that registers and probes servers: no rule of a role applies to it.
    operator: Caller,
    /// Servers in the order of the config, disabled ones at the end.
    specs: Vec<ServerSpec>,
    /// True while a call is in flight.
    is_calling: Arc<AtomicBool>,
    /// Audit of the command's calls.
    audit: Option<Arc<AuditLog>>,
}

impl InProcessBackend {
    pub(super) async fn open(setting: InProcessOptions) -> Result<Self, CommandFailure> {
        let InProcessOptions { config, pins, instance: spot, .. } = setting;
        let guard = cfg!(target_os = "linux").then(GuardCommand::this_program);
        let state_dir = xdg::state_dir();
        let start_patience = StartRetry::Once;
        let options = HostOptions {
            guard,
            state_dir,
            pins,
            start_retry: start_patience,
            ..HostOptions::from_config(&config)
        };
        let host = Host::try_new(options)?;
        // Without a home directory there is no place for an audit file.
        let audit = spot.and_then(|spot| AuditLog::start(&spot, &config.audit, ProcessLifetime::Command));
        if let Some(audit) = &audit {
            audit.observe(&host);
        }
        let operator = workspace::caller_in_current_dir(Caller::operator());
        // An eager server would be started by every command, used or not. A command starts it on first use.
        let servers = config.servers.iter().map(|spec| spec.clone().lazy()).collect();
        host.apply(Snapshot { servers, disabled: config.disabled.clone(), ..host.snapshot() }).await;
        let disabled = config.disabled.into_iter().map(|disabled| disabled.spec);
        let specs = config.servers.into_iter().chain(disabled).collect();
        let (caller, is_calling) = (workspace::caller_in_current_dir(Caller::local()), Arc::default());
        Ok(Self { host, caller, operator, specs, is_calling, audit })
    }

    /// Stops every server. Prints the servers that are slow to stop.
    pub(super) async fn close(&self) -> Result<(), CommandFailure> {
        let say = || print_stderr("waiting for the servers to end; Ctrl-C leaves that to their guard");
        with_slow_message(self.host.shutdown(), say).await;
        if let Some(audit) = &self.audit {
            audit.close(CLOSE_TIMEOUT);
        }
        Ok(())
    }

    /// Returns whether a call is in flight.
    pub(super) fn is_calling(&self) -> bool {
        self.is_calling.load(Ordering::Relaxed)
    }

    /// Fetches the tools of one server.
    pub(super) async fn list_tools(&self, server: &str) -> Result<Vec<ListedTool>, CallError> {
        self.host.tools(&self.caller, server).await
    }

    /// Returns the tools of all servers by name; those of a sleeping server from its cached list.
    pub(super) async fn list_all_tools(&self) -> Vec<ServerTools> {
        self.host.discover(&self.caller).await
    }

    /// Fetches every tool of these servers.
    pub(super) async fn definitions(&self, servers: &[ServerName]) -> Vec<DefinitionsResult> {
        let mut asking = JoinSet::new();
        for server in servers.iter().cloned() {
            let here = self.clone();
            asking.spawn(async move {
                let definitions = here.host.definitions(server.as_str()).await;
                (server, definitions)
            });
        }
        asking.join_all().await
    }

    /// Returns the items of a kind by server; of all servers, or of one.
    pub(super) async fn list_items(&self, kind: Kind, server: Option<&ServerName>) -> Vec<ServerListing> {
        let scope = server.cloned().map_or(Scope::All, Scope::Server);
        let mut listings = self.host.list(&self.caller, &scope, kind, LIST_TIMEOUT).await;
        self.host.assign_exposed_names(kind, &mut listings).await;
        listings
    }

    /// Returns the server that owns a URI.
    pub(super) async fn resource_owner(&self, uri: &str) -> Result<ServerName, CallError> {
        let owner = self.host.find_resource_owner(&self.caller, "resources/read", uri, LIST_TIMEOUT).await;
        owner.ok_or_else(|| CallError::UnknownResource { uri: uri.to_owned() })
    }

    /// Calls a tool, gets a prompt or reads a resource.
    pub(super) async fn request(
        &self,
        wish: &CallRequest,
        observer: &CallEventSender,
    ) -> Result<Bytes, CallError> {
        let request = observer.observe(wish.to_request(&self.caller)?);
        self.is_calling.store(wish.tool.is_some(), Ordering::Relaxed);
        let answer = self.host.send_to(wish.server.as_str(), request).await;
        self.is_calling.store(false, Ordering::Relaxed);
        answer.map(|answer| answer.body)
    }

    /// Reads the card of a server without starting the server.
    pub(super) async fn card(&self, server: &str) -> Result<CardReport, CallError> {
        self.host.card(server).await
    }

    /// Returns the kept stderr output of a server's last process.
    pub(super) fn last_stderr(&self, server: &ServerName) -> Vec<String> {
        let status = self.host.status_of(server.as_str()).ok();
        status.and_then(|status| status.last_error).map(|error| error.stderr).unwrap_or_default()
    }

    /// Returns the statuses of servers in the order of the config, disabled ones at the end.
    pub(super) fn statuses(&self) -> Vec<ServerStatus> {
        self.specs.iter().map(|spec| self.status(spec)).collect()
    }

    fn status(&self, spec: &ServerSpec) -> ServerStatus {
        let status = self.host.status_of(spec.name.as_str());
        // The config's `lazy` counts, not the one that the server is registered with.
        let status = status.map(|status| ServerStatus { lazy: spec.lazy, ..status });
        status.unwrap_or_else(|_| ServerStatus::registered(spec))
    }

    /// Starts servers and lists their tools; returns the results in the same order. Each server stops after its probe,
    /// unless `is_kept`: then it runs as long as its result lives.
    pub(super) async fn probe(&self, servers: &[ServerName], is_kept: bool) -> Vec<ProbeResult> {
        let mut probes = JoinSet::new();
        let specs = servers.iter().filter_map(|name| self.specs.iter().find(|spec| spec.name == *name));
        for (index, spec) in specs.enumerate() {
            let (reach, spec) = (self.clone(), spec.clone());
            probes.spawn(async move { (index, reach.probe_one(&spec, is_kept).await) });
        }
        let mut probed = probes.join_all().await;
        probed.sort_by_key(|(index, _)| *index);
        probed.into_iter().map(|(_, probed)| probed).collect()
    }

    async fn probe_one(&self, spec: &ServerSpec, is_kept: bool) -> ProbeResult {
        let name = spec.name.as_str();
        let (binding, error) = match self.host.bind(&self.operator, name).await {
            Ok(binding) => {
                // A private list is cached for the caller that asks first, and commands list as `caller`.
                let _ = self.host.tools(&self.caller, name).await;
                (Some(binding), self.host.tools(&self.operator, name).await.err())
            }
            Err(error) => (None, Some(error)),
        };
        let lines = match error {
            Some(_) => self.host.logs(name).and_then(|mut log| log.read()).unwrap_or_default(),
            None => Vec::new(),
        };
        let last = lines.rsplit(|line| line.is_start).next().unwrap_or_default();
        let stderr = last.iter().map(|line| line.text.clone()).collect();
        ProbeResult { status: self.status(spec), error, stderr, _binding: binding.filter(|_| is_kept) }
    }
}
