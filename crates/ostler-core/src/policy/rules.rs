//! What the roles of a config allow: pure lookups over globs.

use std::collections::BTreeMap;
use std::fmt;

use super::{Filter, Rule, Subject, spelling};
use crate::caller::Caller;
use crate::config::Role;

/// The role that may do everything as long as the config does not name it.
const LOCAL: &str = "local";

/// What roles may use. A value: a changed config makes another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// `None` where roles mean nothing.
    roles: Option<BTreeMap<String, Filter>>,
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
    Role(&'a Filter),
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
        let filter = |role: &Role| Filter { allow: role.allow.clone(), deny: role.deny.clone() };
        Self { roles: Some(roles.iter().map(|(name, role)| (name.clone(), filter(role))).collect()) }
    }

    /// Whether any role may use less than everything, so that what one caller
    /// sees is not what everybody may see.
    pub fn are_restrictive(&self) -> bool {
        self.roles.as_ref().is_some_and(|roles| roles.values().any(|filter| !filter.is_everything()))
    }

    /// How a caller stands before the rules.
    pub fn standing(&self, caller: &Caller) -> Standing<'_> {
        let Some(roles) = &self.roles else { return Standing::Open };
        if caller.is_operator() {
            return Standing::Operator;
        }
        match roles.get(caller.role()) {
            Some(filter) => Standing::Role(filter),
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
            Self::Role(filter) if filter.is_everything() => Some(true),
            Self::Role(_) => None,
        }
    }

    /// Whether the caller may use all that a server could ever offer.
    pub fn allows_all_of(&self, server: &str) -> bool {
        match self {
            Self::Open | Self::Operator | Self::LocalDefault => true,
            Self::UnknownRole => false,
            Self::Role(filter) => filter.allows_all_within(&format!("{server}/")),
        }
    }

    /// What the rules say about a use of a server.
    pub fn of_use(&self, server: &str, subject: Subject<'_>) -> Ruling<'a> {
        self.ruling(|filter| {
            let rule = filter.rule(&format!("{server}/{subject}"));
            let Subject::Resource(uri) = subject else { return rule };
            let plain = spelling::plain(uri).into_iter();
            let mut others = plain.map(|uri| filter.rule(&format!("{server}/{}", Subject::Resource(&uri))));
            others.find(|other| rule.is_allowed() && !other.is_allowed()).unwrap_or(rule)
        })
    }

    /// What the rules say about a server as a whole.
    pub fn of_server(&self, server: &str) -> Ruling<'a> {
        self.ruling(|filter| filter.rule_within(&format!("{server}/")))
    }

    fn ruling(&self, ask: impl FnOnce(&'a Filter) -> Rule<'a>) -> Ruling<'a> {
        match self {
            Self::Open => Ruling::Open,
            Self::Operator => Ruling::Operator,
            Self::LocalDefault => Ruling::LocalDefault,
            Self::UnknownRole => Ruling::UnknownRole,
            Self::Role(filter) => Ruling::Role(ask(filter)),
        }
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
