//! What the roles of a config allow: pure lookups over globs.

use std::collections::BTreeMap;
use std::fmt;

use super::uri_patterns::UriPatterns;
use super::{Filter, Rule, Subject};
use crate::caller::Caller;
use crate::config::Role;

/// The role that may do everything as long as the config does not name it.
const LOCAL: &str = "local";

/// What roles may use. A value: a changed config makes another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// `None` where roles mean nothing.
    roles: Option<BTreeMap<String, RoleRules>>,
}

/// The rules of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRules {
    filter: Filter,
    /// The resource patterns of `filter`, as they match forms of a URI.
    uris: UriPatterns,
}

/// How a caller stands before the rules, whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// There are no rules.
    Open,
    /// Rules are for others.
    Operator,
    /// A caller on this machine, and no rule about such.
    LocalDefault,
    /// Its role is not in the config.
    UnknownRole,
    /// What its role may use.
    Role(&'a RoleRules),
}

/// What the rules say, and which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling<'a> {
    /// There are no rules.
    Open,
    /// Rules are for others.
    Operator,
    /// A caller on this machine, and no rule about such.
    LocalDefault,
    /// Its role is not in the config, and so may use nothing.
    UnknownRole,
    /// A rule of its role, or that there is none that fits.
    Role(Rule<'a>),
}

impl Rules {
    /// No rules: roles mean nothing, and the embedder's hook alone decides.
    pub fn open() -> Self {
        Self { roles: None }
    }

    /// The rules of a config. A role that is not among them may use nothing,
    /// except `local`, which then may use everything.
    pub fn of(roles: &BTreeMap<String, Role>) -> Self {
        let rules = |role: &Role| {
            let filter = Filter { allow: role.allow.clone(), deny: role.deny.clone() };
            RoleRules { uris: UriPatterns::of(&filter), filter }
        };
        Self { roles: Some(roles.iter().map(|(name, role)| (name.clone(), rules(role))).collect()) }
    }

    /// Whether any role may use less than everything, so that what one caller
    /// sees is not what everybody may see.
    pub fn are_restrictive(&self) -> bool {
        self.roles.as_ref().is_some_and(|roles| roles.values().any(|rules| !rules.filter.is_everything()))
    }

    /// How a caller stands before the rules.
    pub fn standing(&self, caller: &Caller) -> Standing<'_> {
        let Some(roles) = &self.roles else { return Standing::Open };
        if caller.is_operator() {
            return Standing::Operator;
        }
        match roles.get(caller.role()) {
            Some(rules) => Standing::Role(rules),
            None if caller.role() == LOCAL => Standing::LocalDefault,
            None => Standing::UnknownRole,
        }
    }

    /// What the rules say about a use of a server.
    pub fn of_use(&self, caller: &Caller, server: &str, subject: Subject<'_>) -> Ruling<'_> {
        self.standing(caller).of_use(server, subject)
    }

    /// Whether a caller may know of a server at all: it may use something that
    /// the server could offer.
    pub fn of_server(&self, caller: &Caller, server: &str) -> Ruling<'_> {
        self.standing(caller).of_server(server)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::open()
    }
}

impl<'a> Standing<'a> {
    /// The answer, where it is the same whatever the question.
    pub fn always(&self) -> Option<bool> {
        match self {
            Self::Open | Self::Operator | Self::LocalDefault => Some(true),
            Self::UnknownRole => Some(false),
            Self::Role(rules) if rules.filter.is_everything() => Some(true),
            Self::Role(_) => None,
        }
    }

    /// Whether the caller may use all that a server could ever offer.
    pub fn allows_all_of(&self, server: &str) -> bool {
        match self {
            Self::Open | Self::Operator | Self::LocalDefault => true,
            Self::UnknownRole => false,
            Self::Role(rules) => rules.filter.allows_all_within(&format!("{server}/")),
        }
    }

    /// What the rules say about a use of a server.
    pub fn of_use(&self, server: &str, subject: Subject<'_>) -> Ruling<'a> {
        self.ruling(|rules| match subject {
            Subject::Resource(uri) => rules.of_resource(server, uri),
            _ => rules.filter.rule(&format!("{server}/{subject}")),
        })
    }

    /// What the rules say about a server as a whole.
    pub fn of_server(&self, server: &str) -> Ruling<'a> {
        self.ruling(|rules| rules.filter.rule_within(&format!("{server}/")))
    }

    /// Whether the rules could let a caller read a URI that begins like this.
    pub fn reaches_resource(&self, server: &str, beginning: &str) -> bool {
        let subject = Subject::Resource(beginning);
        self.ruling(|rules| rules.filter.rule_within(&format!("{server}/{subject}"))).is_allowed()
    }

    fn ruling(&self, ask: impl FnOnce(&'a RoleRules) -> Rule<'a>) -> Ruling<'a> {
        match self {
            Self::Open => Ruling::Open,
            Self::Operator => Ruling::Operator,
            Self::LocalDefault => Ruling::LocalDefault,
            Self::UnknownRole => Ruling::UnknownRole,
            Self::Role(rules) => Ruling::Role(ask(rules)),
        }
    }
}

impl RoleRules {
    /// Decides about a resource: every form of its URI must be allowed, and one denied form is enough. A role
    /// that may read every resource of the server is not asked about forms.
    fn of_resource(&self, server: &str, uri: &str) -> Rule<'_> {
        let prefix = format!("{server}/{}", Subject::Resource(""));
        let rule = self.filter.rule(&format!("{prefix}{uri}"));
        if !rule.is_allowed() || self.filter.allows_all_within(&prefix) {
            return rule;
        }
        self.uris.rule(&self.filter, &prefix, uri).unwrap_or(rule)
    }
}

impl Ruling<'_> {
    /// Whether the caller may.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Open | Self::Operator | Self::LocalDefault => true,
            Self::UnknownRole => false,
            Self::Role(rule) => rule.is_allowed(),
        }
    }
}

impl fmt::Display for Ruling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("there are no rules"),
            Self::Operator => f.write_str("rules are not for the operator"),
            Self::LocalDefault => f.write_str("`local` may use everything unless the config says otherwise"),
            Self::UnknownRole => f.write_str("the role is not in the config"),
            Self::Role(rule) => rule.fmt(f),
        }
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
