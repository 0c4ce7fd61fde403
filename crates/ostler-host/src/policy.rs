//! Policy: decides which items a caller may see and use, for every method.
//!
//! Three filters decide, in this order: a server's own tool filter, which defines the tools that exist at all; the
//! rules of the caller's role; the embedding program's hook. Lists, calls and events ask the same functions.

mod memo;

use std::borrow::Cow;
use std::sync::Arc;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::policy::{Decider, EffectiveRules, Explanation, Hook, Rules, Subject, Verdict, uri_forms};
use ostler_core::server_name::ServerName;

use self::memo::{VerdictMemo, VerdictQuery};
use crate::host::Host;
use crate::lists::Kind;
use crate::registry::RegistrySnapshot;
use crate::server::Server;

/// Log target of the events that report each query of the rules.
const VERDICTS: &str = "ostler::policy";

/// Rules in force, with their cached verdicts.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    rules: Rules,
    memo: VerdictMemo,
}

impl Policy {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, memo: VerdictMemo::default() }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns whether the rules allow it, from a lookup that does not depend on their number.
    fn allows(&self, caller: &Caller, server: &str, subject: Option<Subject<'_>>) -> bool {
        tracing::trace!(target: VERDICTS, server, role = caller.role(), "verdict");
        let standing = self.rules.rules_for(caller);
        if let Some(answer) = standing.unconditional_answer() {
            return answer;
        }
        self.memo.get_or_decide(VerdictQuery { role: caller.role(), server, subject }, || match subject {
            Some(subject) => standing.decide(server, subject).is_allowed(),
            None => standing.decide_server(server).is_allowed(),
        })
    }

    /// Decides by the rules, with the reason of a denial.
    fn decide(&self, caller: &Caller, server: &str, subject: Option<Subject<'_>>) -> Verdict {
        if self.allows(caller, server, subject) {
            return Verdict::Allow;
        }
        let ruling = match subject {
            Some(subject) => self.rules.decide(caller, server, subject),
            None => self.rules.decide_server(caller, server),
        };
        Verdict::Deny { reason: format!("role `{}`: {ruling}", caller.role()) }
    }
}

/// Verdict of policy on a use of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Allowed,
    /// A rule hides the item, but not its server.
    ItemHidden(String),
    /// A rule hides the server and all its items.
    ServerHidden(String),
}

impl RegistrySnapshot {
    /// Returns whether anything might be hidden from a caller.
    pub(crate) fn is_restricted(&self, caller: &Caller) -> bool {
        self.hook.is_some() || self.policy.rules.rules_for(caller).unconditional_answer() != Some(true)
    }

    /// Returns whether anything of a server might be hidden from a caller. The server's own texts may then name it.
    pub(crate) fn is_restricted_at(&self, caller: &Caller, server: &str) -> bool {
        self.hook.is_some() || !self.policy.rules.rules_for(caller).allows_all_of(server)
    }

    /// Removes details for operators from an error: a cause quotes stderr and names paths and variables.
    pub(crate) fn without_details(&self, caller: &Caller, mut error: CallError) -> CallError {
        if let CallError::Unavailable(it) = &mut error
            && self.is_restricted_at(caller, it.server.as_str())
        {
            it.cause.clear();
            it.action = Box::default();
            it.remedy = None;
        }
        error
    }

    /// Returns whether a caller may see a server of that name at all.
    pub(crate) fn may_see(&self, caller: &Caller, server: &ServerName) -> bool {
        self.may_use(caller, server, None)
    }

    /// Returns whether a caller may use an item of a server that it may see.
    pub(crate) fn may_use_item(&self, caller: &Caller, server: &Server, kind: Kind, name: &str) -> bool {
        let exists = kind.is_valid_name(name) && (kind != Kind::Tools || server.spec.tools.allows(name));
        exists && self.may_use(caller, &server.spec.name, Some(kind.subject(name)))
    }

    /// Returns whether the rules and the hook let a caller use something, or see the server. Only a denial that is
    /// recorded needs its reason.
    pub(crate) fn may_use(&self, caller: &Caller, server: &ServerName, subject: Option<Subject<'_>>) -> bool {
        self.policy.allows(caller, server.as_str(), subject)
            && self.hook_verdict(caller, server, subject).is_allowed()
    }

    /// Returns whether a caller could be allowed a URI that comes from a template of a server, listed to it or not.
    pub(crate) fn may_reach(&self, caller: &Caller, server: &ServerName, template: &str) -> bool {
        let beginning = template.split('{').next().unwrap_or_default();
        self.may_see(caller, server)
            && self.policy.rules.rules_for(caller).may_allow_resource_prefix(server.as_str(), beginning)
            && self.hook_verdict(caller, server, Some(Subject::Resource(template))).is_allowed()
    }

    /// Decides whether a caller may use something of a server, or see the server. Every request is authorized here,
    /// once.
    pub(crate) fn access(&self, caller: &Caller, server: &Server, subject: Option<Subject<'_>>) -> Access {
        let name = &server.spec.name;
        // A rule that allows an item makes its server visible, so that one query is enough.
        if !self.policy.allows(caller, name.as_str(), subject) {
            let by_server = self.policy.decide(caller, name.as_str(), None);
            return match (by_server, subject) {
                (Verdict::Deny { reason }, _) => Access::ServerHidden(reason),
                (Verdict::Allow, Some(subject)) => self.item_access(caller, server, subject),
                (Verdict::Allow, None) => Access::Allowed,
            };
        }
        if let Verdict::Deny { reason } = self.hook_verdict(caller, name, None) {
            return Access::ServerHidden(reason);
        }
        let filtered = match subject {
            Some(Subject::Tool(tool)) => server.spec.tools.decide(tool),
            _ => Verdict::Allow,
        };
        match (filtered, subject) {
            (Verdict::Deny { reason }, _) => Access::ItemHidden(reason),
            (Verdict::Allow, None) => Access::Allowed,
            (Verdict::Allow, subject) => match self.hook_verdict(caller, name, subject) {
                Verdict::Allow => Access::Allowed,
                Verdict::Deny { reason } => Access::ItemHidden(reason),
            },
        }
    }

    /// Returns the server if policy allows a caller something of it.
    pub(crate) fn allowed_server(
        &self,
        caller: &Caller,
        server: &ServerName,
        subject: Subject<'_>,
    ) -> Option<&Arc<Server>> {
        let server = self.server(server.as_str())?;
        (self.access(caller, server, Some(subject)) == Access::Allowed).then_some(server)
    }

    /// Decides about an item that the rules hide and whose server they show, with the reason.
    fn item_access(&self, caller: &Caller, server: &Server, subject: Subject<'_>) -> Access {
        if let Verdict::Deny { reason } = self.hook_verdict(caller, &server.spec.name, None) {
            return Access::ServerHidden(reason);
        }
        match self.decide(caller, server, Some(subject)) {
            Verdict::Allow => Access::Allowed,
            Verdict::Deny { reason } => Access::ItemHidden(reason),
        }
    }

    /// Decides by the rules, the hook and a server's own filter, with the reason.
    pub(crate) fn decide(&self, caller: &Caller, server: &Server, subject: Option<Subject<'_>>) -> Verdict {
        if let Some(Subject::Tool(tool)) = subject
            && let deny @ Verdict::Deny { .. } = server.spec.tools.decide(tool)
        {
            return deny;
        }
        let name = &server.spec.name;
        match self.policy.decide(caller, name.as_str(), subject) {
            Verdict::Allow => self.hook_verdict(caller, name, subject),
            deny => deny,
        }
    }

    /// Returns the reason why policy denies a caller the server or the item; `None` if it denies neither, or the server
    /// is not registered.
    pub(crate) fn denial_reason(
        &self,
        caller: &Caller,
        server: &str,
        item: Option<(Kind, &str)>,
    ) -> Option<String> {
        let server = self.server(server)?;
        let verdict = match (self.decide(caller, server, None), item) {
            (Verdict::Allow, Some((kind, name))) => self.decide(caller, server, Some(kind.subject(name))),
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Allow => None,
            Verdict::Deny { reason } => Some(reason),
        }
    }

    fn explain(&self, caller: &Caller, server: &str, subject: Option<Subject<'_>>) -> Explanation {
        let spec = self.server(server).map(|server| &*server.spec);
        let explanation = Explanation::new(&self.policy.rules, caller, spec, subject);
        let Some(spec) = spec.filter(|_| explanation.is_allowed) else { return explanation };
        let asked = [None, subject].map(|subject| self.hook_verdict(caller, &spec.name, subject));
        match asked.into_iter().find(|verdict| !verdict.is_allowed()) {
            Some(Verdict::Deny { reason }) => {
                Explanation { is_allowed: false, decider: Decider::Hook { reason } }
            }
            _ => explanation,
        }
    }

    fn hook_verdict(&self, caller: &Caller, server: &ServerName, subject: Option<Subject<'_>>) -> Verdict {
        let Some(hook) = self.hook.as_deref() else { return Verdict::Allow };
        if let Some(Subject::Resource(uri)) = subject {
            let Some(forms) = uri_forms(uri) else {
                return Verdict::Deny { reason: "servers may read the URI differently".into() };
            };
            let mut verdicts = forms
                .iter()
                .map(|uri| hook(caller, server.as_str(), Some(&Subject::Resource(uri).to_string())));
            return verdicts.find(|verdict| !verdict.is_allowed()).unwrap_or(Verdict::Allow);
        }
        let spelled = subject.map(|subject| match subject.prefix() {
            "" => Cow::Borrowed(subject.name()),
            _ => Cow::Owned(subject.to_string()),
        });
        hook(caller, server.as_str(), spelled.as_deref())
    }
}

impl Host {
    /// Sets a policy hook of the embedding program, which is asked about every server and every subject beside the
    /// configured rules; `None` removes it. The hook is asked about every [form](uri_forms) of a resource's URI, and
    /// must allow all of them; a URI without forms is denied.
    pub fn set_policy_hook(&self, hook: Option<Box<Hook>>) {
        self.change(|current| current.hook = hook.map(Arc::from));
    }

    /// Returns whether rules for a role exist, or no rules at all.
    pub fn has_role(&self, role: &str) -> bool {
        let caller = Caller::new("", role);
        matches!(
            self.current().policy.rules.rules_for(&caller),
            EffectiveRules::Role(_) | EffectiveRules::NoRules
        )
    }

    /// Returns whether anything of a server might be hidden from the caller. The server's own texts may then name it.
    pub fn is_restricted_at(&self, caller: &Caller, server: &str) -> bool {
        self.current().is_restricted_at(caller, server)
    }

    /// Returns whether the caller may use an item: a tool or prompt by name, a resource by its URI, by the same rules
    /// as [`send`](Self::send).
    pub fn may_use(&self, caller: &Caller, server: &str, kind: Kind, name: &str) -> bool {
        let current = self.current();
        current.server(server).is_some_and(|server| {
            current.may_see(caller, &server.spec.name) && current.may_use_item(caller, server, kind, name)
        })
    }

    /// Explains the decision whether a caller may use something of a server, or see the server.
    pub fn explain(&self, caller: &Caller, server: &str, subject: Option<Subject<'_>>) -> Explanation {
        self.current().explain(caller, server, subject)
    }

    /// Returns the partition of a caller: callers of a server with the same partition share one process.
    pub(crate) fn partition(&self, caller: &Caller, server: &str) -> Box<str> {
        let current = self.current();
        current.server(server).map(|server| server.partition(caller).into()).unwrap_or_default()
    }
}

impl Kind {
    /// Returns the subject by which rules are asked about an item.
    pub(crate) fn subject(self, name: &str) -> Subject<'_> {
        match self {
            Self::Tools => Subject::Tool(name),
            Self::Prompts => Subject::Prompt(name),
            Self::Resources | Self::Templates => Subject::Resource(name),
        }
    }
}
