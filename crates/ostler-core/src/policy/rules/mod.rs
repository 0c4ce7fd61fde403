//! Rules of the roles of a config: pure lookups over globs.

use std::collections::BTreeMap;
use std::fmt;

use super::uri_patterns::UriPatterns;
use super::{Rule, Subject, ToolFilter};
use crate::caller::Caller;
use crate::config::Role;

/// The role that may do everything as long as the config does not define it.
const LOCAL: &str = "local";

/// Rules of all roles. An immutable value: a changed config makes another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// `None` if roles have no meaning.
    roles: Option<BTreeMap<String, RoleRules>>,
}

/// The rules of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRules {
    filter: ToolFilter,
    /// The resource patterns of `filter`, normalized for matching forms of a URI.
    uris: UriPatterns,
}

/// Rules that apply to a caller, whatever it requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectiveRules<'a> {
    /// There are no rules.
    NoRules,
    /// The caller is the operator, to whom no rule applies.
    Operator,
    /// A caller on this machine, and no rule about `local`.
    LocalDefault,
    /// Its role is not in the config.
    UnknownRole,
    /// The rules of its role.
    Role(&'a RoleRules),
}

/// Decision of the rules, and the deciding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleDecision<'a> {
    /// There are no rules.
    NoRules,
    /// The caller is the operator, to whom no rule applies.
    Operator,
    /// A caller on this machine, and no rule about `local`.
    LocalDefault,
    /// Its role is not in the config, so it may use nothing.
    UnknownRole,
    /// The deciding rule of its role, or that no rule matches.
    Role(Rule<'a>),
}

impl Rules {
    /// Returns empty rules: roles have no meaning, and only the embedder's hook decides.
    pub fn unrestricted() -> Self {
        Self { roles: None }
    }

    /// Creates the rules of a config. A role that is not defined may use nothing, except `local`, which then
    /// may use everything.
    pub fn from_roles(roles: &BTreeMap<String, Role>) -> Self {
        let rules = |role: &Role| {
            let filter = ToolFilter { allow: role.allow.clone(), deny: role.deny.clone() };
            RoleRules { uris: UriPatterns::from_filter(&filter), filter }
        };
        Self { roles: Some(roles.iter().map(|(name, role)| (name.clone(), rules(role))).collect()) }
    }

    /// Returns whether any role may use less than everything, so that callers may see different items.
    pub fn are_restrictive(&self) -> bool {
        self.roles.as_ref().is_some_and(|roles| roles.values().any(|rules| !rules.filter.is_everything()))
    }

    /// Returns the rules that apply to a caller.
    pub fn rules_for(&self, caller: &Caller) -> EffectiveRules<'_> {
        let Some(roles) = &self.roles else { return EffectiveRules::NoRules };
        if caller.is_operator() {
            return EffectiveRules::Operator;
        }
        match roles.get(caller.role()) {
            Some(rules) => EffectiveRules::Role(rules),
            None if caller.role() == LOCAL => EffectiveRules::LocalDefault,
            None => EffectiveRules::UnknownRole,
        }
    }

    /// Decides about a use of a server.
    pub fn decide(&self, caller: &Caller, server: &str, subject: Subject<'_>) -> RuleDecision<'_> {
        self.rules_for(caller).decide(server, subject)
    }

    /// Decides whether a caller may see a server at all: it must be allowed to use some item that the server
    /// could offer.
    pub fn decide_server(&self, caller: &Caller, server: &str) -> RuleDecision<'_> {
        self.rules_for(caller).decide_server(server)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::unrestricted()
    }
}

impl<'a> EffectiveRules<'a> {
    /// Returns the answer, if it is the same for every request.
    pub fn unconditional_answer(&self) -> Option<bool> {
        match self {
            Self::NoRules | Self::Operator | Self::LocalDefault => Some(true),
            Self::UnknownRole => Some(false),
            Self::Role(rules) if rules.filter.is_everything() => Some(true),
            Self::Role(_) => None,
        }
    }

    /// Returns whether the caller may use every item that a server could ever offer.
    pub fn allows_all_of(&self, server: &str) -> bool {
        match self {
            Self::NoRules | Self::Operator | Self::LocalDefault => true,
            Self::UnknownRole => false,
            Self::Role(rules) => rules.filter.allows_all_with_prefix(&format!("{server}/")),
        }
    }

    /// Decides about a use of a server.
    pub fn decide(&self, server: &str, subject: Subject<'_>) -> RuleDecision<'a> {
        self.decide_with(|rules| match subject {
            Subject::Resource(uri) => rules.decide_resource(server, uri),
            _ => rules.filter.rule(&format!("{server}/{subject}")),
        })
    }

    /// Decides about a server as a whole.
    pub fn decide_server(&self, server: &str) -> RuleDecision<'a> {
        self.decide_with(|rules| rules.filter.rule_for_prefix(&format!("{server}/")))
    }

    /// Returns whether the rules could allow a URI with this beginning.
    pub fn may_allow_resource_prefix(&self, server: &str, beginning: &str) -> bool {
        let subject = Subject::Resource(beginning);
        self.decide_with(|rules| rules.filter.rule_for_prefix(&format!("{server}/{subject}"))).is_allowed()
    }

    fn decide_with(&self, ask: impl FnOnce(&'a RoleRules) -> Rule<'a>) -> RuleDecision<'a> {
        match self {
            Self::NoRules => RuleDecision::NoRules,
            Self::Operator => RuleDecision::Operator,
            Self::LocalDefault => RuleDecision::LocalDefault,
            Self::UnknownRole => RuleDecision::UnknownRole,
            Self::Role(rules) => RuleDecision::Role(ask(rules)),
        }
    }
}

impl RoleRules {
    /// Decides about a resource: every form of its URI must be allowed, and one denied form is enough to deny
    /// it. For a role that may read every resource of the server the forms are not computed.
    fn decide_resource(&self, server: &str, uri: &str) -> Rule<'_> {
        let prefix = format!("{server}/{}", Subject::Resource(""));
        let rule = self.filter.rule(&format!("{prefix}{uri}"));
        if !rule.is_allowed() || self.filter.allows_all_with_prefix(&prefix) {
            return rule;
        }
        self.uris.rule(&self.filter, &prefix, uri).unwrap_or(rule)
    }
}

impl RuleDecision<'_> {
    /// Returns whether the caller may use the item.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::NoRules | Self::Operator | Self::LocalDefault => true,
            Self::UnknownRole => false,
            Self::Role(rule) => rule.is_allowed(),
        }
    }
}

impl fmt::Display for RuleDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRules => f.write_str("there are no rules"),
            Self::Operator => f.write_str("rules are not for the operator"),
            Self::LocalDefault => f.write_str("`local` may use everything unless the config says otherwise"),
            Self::UnknownRole => f.write_str("the role is not in the config"),
            Self::Role(rule) => rule.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
