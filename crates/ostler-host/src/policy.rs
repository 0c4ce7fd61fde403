//! The one gate: what a caller may see and use, for every method.

use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::name::ServerName;
use ostler_core::policy::{Hook, Verdict};

use crate::host::Host;
use crate::lists::Kind;
use crate::server::Server;

impl Host {
    /// A rule of the embedding program, asked for every server and tool beside
    /// the configured ones; `None` takes it away.
    pub fn set_policy_hook(&self, hook: Option<Box<Hook>>) {
        self.shared().hook.store(hook.map(Arc::new));
    }

    /// Whether the caller may use it: a tool or prompt by name, a resource by
    /// its URI, by the same rules as [`send`](Self::send).
    pub fn may_use(&self, caller: &Caller, server: &str, kind: Kind, name: &str) -> bool {
        self.visible_server(caller, server)
            .is_ok_and(|server| self.may_use_item(caller, &server, kind, name).is_allowed())
    }

    /// Whether the caller may see a server at all.
    pub(crate) fn may_see(&self, caller: &Caller, server: &Server) -> Verdict {
        self.ask_hook(caller, &server.spec.name, None)
    }

    /// What the rules say about an item. A server's own filter of tools comes
    /// first: it says which tools exist here at all.
    pub(crate) fn may_use_item(&self, caller: &Caller, server: &Server, kind: Kind, name: &str) -> Verdict {
        let subject = match kind {
            Kind::Tools => {
                return match server.spec.tools.decide(name) {
                    Verdict::Allow => self.ask_hook(caller, &server.spec.name, Some(name)),
                    deny => deny,
                };
            }
            Kind::Prompts => format!("prompt:{name}"),
            Kind::Resources | Kind::Templates => format!("resource:{name}"),
        };
        self.ask_hook(caller, &server.spec.name, Some(&subject))
    }

    /// Why the caller sees nothing under that name; `None` if there is nothing.
    pub(crate) fn why_hidden(
        &self,
        caller: &Caller,
        server: &str,
        item: Option<(Kind, &str)>,
    ) -> Option<String> {
        let registry = self.shared().registry.load();
        let server = registry.get(server)?;
        let verdict = match (self.may_see(caller, server), item) {
            (Verdict::Allow, Some((kind, name))) => self.may_use_item(caller, server, kind, name),
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Allow => None,
            Verdict::Deny { reason } => Some(reason),
        }
    }

    pub(crate) fn ask_hook(&self, caller: &Caller, server: &ServerName, tool: Option<&str>) -> Verdict {
        match self.shared().hook.load().as_deref() {
            Some(hook) => hook(caller, server.as_str(), tool),
            None => Verdict::Allow,
        }
    }
}
