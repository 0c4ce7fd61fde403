//! Which exposed name, and which URI, means which server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use ostler_core::caller::Caller;
use ostler_core::catalog::Table;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Host, Item, Kind};
use ostler_wire::headers::{self, ParamHeader};

use super::sweep::Sweeps;
use ostler_core::catalog::template;

/// Resolves names by a table that follows the host's lists.
#[derive(Debug)]
pub(crate) struct Names {
    current: ArcSwap<Tables>,
    building: Mutex<()>,
    sweeps: Sweeps,
}

/// What the host knew at one moment.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// `None` before the first look.
    version: Option<u64>,
    pub(crate) tools: Table,
    pub(crate) prompts: Table,
    /// Every known tool of every server, with its arguments that are repeated in headers.
    marks: HashMap<ServerName, HashMap<Arc<str>, Vec<ParamHeader>>>,
    /// Who lists a resource, in the order of servers: the first that a caller may ask has it.
    resources: HashMap<Arc<str>, Vec<ServerName>>,
    templates: Vec<(Arc<str>, ServerName)>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { current: ArcSwap::default(), building: Mutex::default(), sweeps: Sweeps::default() }
    }

    /// The tables as of now. A call to a known tool costs two loads here.
    pub(crate) fn tables(&self, host: &Host) -> Arc<Tables> {
        let current = self.current.load_full();
        if current.version == Some(host.lists_version()) {
            return current;
        }
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current.load_full();
        // Asked before building: a change meanwhile makes the next caller build again.
        let version = host.lists_version();
        if current.version == Some(version) {
            return current;
        }
        let tables = Arc::new(Tables::of(host, version));
        self.current.store(Arc::clone(&tables));
        tables
    }

    /// Asks every server that the caller may see for its list because a name is not known, unless that
    /// was just done. Whether another sweep might bring more.
    pub(crate) async fn sweep(&self, host: &Host, caller: &Caller, kind: Kind, patience: Duration) -> bool {
        self.sweeps.sweep(host, caller, (kind, &host.servers(caller)), patience).await.is_news
    }

    /// Asks the servers that an exposed name may belong to. Whether it is worth
    /// looking again, and why one of them can't say what it has.
    pub(crate) async fn sweep_for(
        &self,
        host: &Host,
        caller: &Caller,
        (kind, exposed): (Kind, &str),
        patience: Duration,
    ) -> (bool, Option<CallError>) {
        let (mut is_news, mut error) = (false, None);
        for server in host.servers(caller).iter().filter(|server| may_be_of(server, exposed)) {
            let swept = self.sweeps.sweep(host, caller, (kind, std::slice::from_ref(server)), patience).await;
            is_news |= swept.is_news;
            error = error.or(swept.error);
        }
        (is_news, error)
    }
}

impl Tables {
    fn of(host: &Host, version: u64) -> Self {
        let named = |kind| {
            let known = host.known_items(kind).into_iter();
            Table::new(known.map(|(server, items)| {
                (server, items.into_iter().map(|item| item.name.to_string()).collect())
            }))
        };
        let mut resources: HashMap<_, Vec<_>> = HashMap::new();
        for (server, items) in host.known_items(Kind::Resources) {
            for item in items {
                resources.entry(item.name).or_default().push(server.clone());
            }
        }
        let templates = host.known_items(Kind::Templates).into_iter();
        let templates = templates
            .flat_map(|(server, items)| items.into_iter().map(move |item| (item.name, server.clone())))
            .collect();
        let tools = host.known_items(Kind::Tools).into_iter();
        let marks = tools.map(|(server, items)| {
            (server, items.into_iter().map(|item| (Arc::clone(&item.name), marks_of(&item))).collect())
        });
        Self {
            version: Some(version),
            marks: marks.collect(),
            tools: named(Kind::Tools),
            prompts: named(Kind::Prompts),
            resources,
            templates,
        }
    }

    /// The arguments of a tool that are repeated in headers; `None` if the tool is not known.
    pub(crate) fn marks(&self, server: &ServerName, tool: &str) -> Option<&[ParamHeader]> {
        self.marks.get(server)?.get(tool).map(Vec::as_slice)
    }

    /// The servers that may have a resource and that may be asked for it, the
    /// likeliest first: those that list it, those with a template that fits,
    /// those with others of its scheme.
    pub(crate) fn servers_of(&self, uri: &str, may: impl Fn(&ServerName) -> bool) -> Vec<ServerName> {
        let mut seen = HashSet::new();
        self.offerers_of(uri).filter(|server| may(server) && seen.insert(*server)).cloned().collect()
    }

    /// The servers that list anything with the same scheme, sorted.
    pub(crate) fn servers_alike(&self, uri: &str, sees: impl Fn(&ServerName) -> bool) -> Vec<ServerName> {
        let listed = self.resources.iter().flat_map(|(uri, all)| all.iter().map(move |one| (uri, one)));
        let all = listed.chain(self.templates.iter().map(|(uri, server)| (uri, server)));
        let alike = all.filter(|(known, _)| scheme(known) == scheme(uri)).map(|(_, server)| server);
        let found: BTreeSet<&ServerName> = alike.filter(|server| sees(server)).collect();
        found.into_iter().cloned().collect()
    }

    /// The servers that list a resource, or a template that fits it.
    pub(crate) fn offerers_of(&self, uri: &str) -> impl Iterator<Item = &ServerName> {
        let fitting = self.templates.iter().filter(move |(template, _)| template::fits(template, uri));
        self.resources.get(uri).into_iter().flatten().chain(fitting.map(|(_, server)| server))
    }

    /// The servers that have a template, as it is written.
    pub(crate) fn servers_of_template(&self, template: &str) -> impl Iterator<Item = &ServerName> {
        self.templates.iter().filter(move |(known, _)| **known == *template).map(|(_, server)| server)
    }
}

/// Exposed names begin with the name of their server, as far as they hold it.
fn may_be_of(server: &ServerName, exposed: &str) -> bool {
    const KEPT: usize = 31;
    let server = server.as_str().as_bytes();
    let kept = &server[..server.len().min(KEPT)];
    exposed.as_bytes().starts_with(kept)
}

/// A schema whose marks can't be used has none: the server will say what it thinks of a call.
fn marks_of(item: &Item) -> Vec<ParamHeader> {
    let schema = ostler_wire::member(&item.definition, "inputSchema");
    schema.and_then(|schema| headers::param_headers(schema).ok()).unwrap_or_default()
}

fn scheme(uri: &str) -> &str {
    uri.split_once(':').map_or("", |(scheme, _)| scheme)
}
