//! Catalog: maps exposed names and URIs to servers. Its tables are rebuilt after a list has changed, and read without a
//! lock.

mod refresh;
mod resolve;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use ostler_core::caller::Caller;
use ostler_core::catalog::{ResourceTable, ShadowedUri, ToolNameTable, exposed_name};
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_wire::headers::{self, ParamHeader};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use self::refresh::RefreshCoalescer;
use crate::blocking::run_blocking_if_large;
use crate::host::Host;
use crate::lists::Kind;
use crate::server::server_list::ServerItem;

pub use self::resolve::{Scope, Target};

/// Tables of exposed names and URIs, which follow the host's lists.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    current: ArcSwap<Tables>,
    /// Held while tables are built. Holds the servers reported for claiming another server's resource, each with the
    /// owner. Each pair is reported once, so that no server can flood the audit by listing and unlisting.
    build_lock: Arc<AsyncMutex<ReportedShadows>>,
    refreshes: RefreshCoalescer,
    /// Servers that were asked once for resources that they had not listed. At most as many as there are servers.
    queried_servers: Mutex<HashSet<ServerName>>,
}

/// Servers that were reported, each with the owner of the resource it claims.
type ReportedShadows = HashSet<(ServerName, ServerName)>;

/// Exposed names and URIs at one version of the lists.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// `None` before the first build.
    version: Option<u64>,
    tools: ToolNameTable,
    prompts: ToolNameTable,
    /// Every known tool of every server, with its arguments that are repeated in headers.
    param_headers: HashMap<ServerName, HashMap<Arc<str>, Vec<ParamHeader>>>,
    pub(crate) resources: ResourceTable,
}

impl Catalog {
    /// Returns current tables. A call of a known tool costs two loads here.
    pub(crate) async fn tables(&self, host: &Host) -> Arc<Tables> {
        if let Some(tables) = self.current_tables(host) {
            return tables;
        }
        // Boxed: most calls find the tables built.
        Box::pin(async {
            let reported = Arc::clone(&self.build_lock).lock_owned().await;
            if let Some(tables) = self.current_tables(host) {
                return tables;
            }
            let host = host.clone();
            run_blocking_if_large(host.known_definition_bytes(), move || {
                host.catalog().build(&host, reported)
            })
            .await
        })
        .await
    }

    /// Returns the latest built tables, which may be stale.
    pub(crate) fn latest(&self) -> Arc<Tables> {
        self.current.load_full()
    }

    fn current_tables(&self, host: &Host) -> Option<Arc<Tables>> {
        let current = self.current.load_full();
        (current.version == Some(host.lists_version())).then_some(current)
    }

    /// Builds the tables. Other callers wait for the build, which goes on when this caller leaves.
    fn build(&self, host: &Host, mut reported: OwnedMutexGuard<ReportedShadows>) -> Arc<Tables> {
        let current = self.current.load_full();
        // Read before building: a change during the build makes the next caller build again.
        let version = host.lists_version();
        let tables = Arc::new(Tables::build(host, version, &current));
        self.current.store(Arc::clone(&tables));
        for ShadowedUri { uri, server, owner } in tables.resources.shadowed() {
            if reported.insert((server.clone(), owner.clone())) {
                host.report_shadowed(server, uri, owner);
            }
        }
        tables
    }

    /// Asks each server that the caller may see, once, for resources and templates that it has not listed yet: until
    /// then another server would own its URIs. A server that does not answer is not waited for again.
    async fn query_unlisted_resources(&self, host: &Host, caller: &Caller, patience: Duration) {
        let tables = self.tables(host).await;
        let current = Arc::clone(&host.current());
        let completed = || self.queried_servers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |server: &ServerName| {
            !tables.resources.has_listed(server)
                && !completed().contains(server)
                && current.may_see(caller, server)
        };
        let servers: Vec<ServerName> =
            current.servers.keys().filter(|server| is_missing(server)).cloned().collect();
        if servers.is_empty() {
            return;
        }
        // Other callers wait for the same lists.
        for kind in [Kind::Resources, Kind::Templates] {
            self.refresh(host, caller, kind, patience).await;
        }
        let all = host.servers(&Caller::operator());
        let mut completed = completed();
        completed.retain(|server| all.contains(server));
        completed.extend(servers);
    }

    /// Refreshes the lists of every server that the caller may see because a URI is not known, unless that was just
    /// done.
    async fn refresh(&self, host: &Host, caller: &Caller, kind: Kind, patience: Duration) {
        self.refreshes.refresh(host, caller, (kind, &host.servers(caller)), patience).await;
    }

    /// Refreshes the servers that an exposed name may belong to. Returns whether another lookup may succeed, and the
    /// error of one server that can't list.
    async fn refresh_candidates(
        &self,
        host: &Host,
        caller: &Caller,
        (kind, exposed): (Kind, &str),
        patience: Duration,
    ) -> (bool, Option<CallError>) {
        let (mut is_news, mut error) = (false, None);
        for server in host.servers(caller).iter().filter(|server| may_belong_to(server, exposed)) {
            let asked = (kind, std::slice::from_ref(server));
            let refreshed = self.refreshes.refresh(host, caller, asked, patience).await;
            is_news |= refreshed.may_have_changed;
            error = error.or(refreshed.error);
        }
        let current = host.current();
        let mut unusable =
            current.unusable_visible_to(caller).filter(|it| may_belong_to(&it.spec().name, exposed));
        (is_news, error.or_else(|| Some(current.unusable_error(Some(caller), unusable.next()?))))
    }
}

impl Tables {
    /// Returns the exposed name of an item among those of all servers. An unlisted item is named as if no other item
    /// had its name.
    pub(crate) fn exposed_name(&self, server: &ServerName, kind: Kind, name: &str) -> Arc<str> {
        let Some(table) = self.name_table(kind) else { return name.into() };
        table.exposed_name(server, name).cloned().unwrap_or_else(|| exposed_name(server, name).into())
    }

    fn build(host: &Host, version: u64, before: &Self) -> Self {
        let named = |kind| {
            let known = host.known_items(kind).into_iter();
            ToolNameTable::new(known.map(|(server, items)| {
                (server, items.into_iter().map(|item| item.name.to_string()).collect())
            }))
        };
        let tools = host.known_items(Kind::Tools).into_iter();
        let marks = tools.map(|(server, items)| {
            (
                server,
                items.into_iter().map(|item| (Arc::clone(&item.name), parse_param_headers(&item))).collect(),
            )
        });
        Self {
            version: Some(version),
            param_headers: marks.collect(),
            tools: named(Kind::Tools),
            prompts: named(Kind::Prompts),
            resources: ResourceTable::new(
                &before.resources,
                host.claimed_resources(Kind::Resources),
                host.claimed_resources(Kind::Templates),
            ),
        }
    }

    /// Returns the name table of a kind; `None` for kinds without exposed names.
    pub(crate) fn name_table(&self, kind: Kind) -> Option<&ToolNameTable> {
        match kind {
            Kind::Tools => Some(&self.tools),
            Kind::Prompts => Some(&self.prompts),
            Kind::Resources | Kind::Templates => None,
        }
    }

    /// Returns the arguments of a tool that are repeated in headers; `None` if the tool is not known.
    pub(crate) fn param_headers(&self, server: &ServerName, tool: &str) -> Option<&[ParamHeader]> {
        self.param_headers.get(server)?.get(tool).map(Vec::as_slice)
    }
}

/// Returns whether an exposed name begins with the server's name, as far as exposed names hold it.
fn may_belong_to(server: &ServerName, exposed: &str) -> bool {
    const KEPT: usize = 31;
    let server = server.as_str().as_bytes();
    let kept = &server[..server.len().min(KEPT)];
    exposed.as_bytes().starts_with(kept)
}

/// Returns the marked arguments of a tool. A schema with invalid marks has none; the server decides about the call.
fn parse_param_headers(item: &ServerItem) -> Vec<ParamHeader> {
    let schema = ostler_wire::member(&item.definition, "inputSchema");
    schema.and_then(|schema| headers::param_headers(schema).ok()).unwrap_or_default()
}
