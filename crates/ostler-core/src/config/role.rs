//! `[roles.NAME]`: what a caller of that role may use, and how often.

use std::time::Duration;

use super::field::{Field, Kind, Preset, Section};
use super::node::Node;
use super::reader::Reader;
use super::{glob, tools};
use crate::caller::OPERATOR;
use crate::catalog::nearest;

/// What a caller of a role may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Rules over `server/tool` of which at least one must match; empty is a lockout.
    pub allow: Vec<String>,
    /// Rules of which none may match; deny wins.
    pub deny: Vec<String>,
    /// Calls per window; unlimited when absent.
    pub budget: Option<Budget>,
    /// Calls of one caller at once, above zero; unlimited when absent.
    pub max_in_flight: Option<usize>,
}

impl Role {
    /// Whether a caller of this role may use everything, without limit.
    pub fn is_unrestricted(&self) -> bool {
        self.allow.iter().any(|rule| rule == "*")
            && self.deny.is_empty()
            && self.budget.is_none()
            && self.max_in_flight.is_none()
    }
}

/// So many calls in any window of that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Calls in the window; 0 forbids all.
    pub calls: u64,
    /// The length of the sliding window, above zero.
    pub per: Duration,
}

pub(crate) static SECTION: Section = Section {
    name: "role",
    doc: "What callers of a role may use.",
    fields: &[
        Field {
            key: "allow",
            kind: Kind::Texts,
            preset: Preset::Nothing,
            doc: "Rules over server/tool, server/prompt:name, server/resource:uri and server/method:name of which at least one must match; an empty list is a lockout.",
        },
        Field {
            key: "deny",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "The same of which none may match; deny wins.",
        },
        Field {
            key: "budget",
            kind: Kind::Section(&BUDGET),
            preset: Preset::Nothing,
            doc: "Calls of all its callers together per sliding window.",
        },
        Field {
            key: "max_in_flight",
            kind: Kind::Count(1, u64::MAX),
            preset: Preset::Nothing,
            doc: "Calls of one of its callers at once, over all servers.",
        },
    ],
};

static BUDGET: Section = Section {
    name: "budget",
    doc: "So many calls in any window of that length.",
    fields: &[
        Field {
            key: "calls",
            kind: Kind::Count(0, u64::MAX),
            preset: Preset::Nothing,
            doc: "Calls in the window.",
        },
        Field {
            key: "per",
            kind: Kind::Duration(1),
            preset: Preset::Nothing,
            doc: "The length of the sliding window.",
        },
    ],
};

/// Reads a role; `servers` are the names that its rules can mean.
pub(crate) fn read(reader: Reader<'_>, servers: &[&str]) -> Role {
    if !reader.has("allow") {
        let message = format!("`{}` has no `allow`", reader.path);
        let hint = "write allow = [\"*\"] for everything, or allow = [] for nothing";
        reader.scope.error(reader.at, &reader.path, message, hint);
    }
    let role = Role {
        allow: rules(&reader, "allow", servers).unwrap_or_default(),
        deny: rules(&reader, "deny", servers).unwrap_or_default(),
        budget: reader.section("budget").and_then(read_budget),
        max_in_flight: reader.size_count("max_in_flight"),
    };
    reader.finish();
    role
}

fn rules(reader: &Reader<'_>, key: &'static str, servers: &[&str]) -> Option<Vec<String>> {
    let texts = reader.texts(key)?;
    for (index, (text, node)) in texts.iter().enumerate() {
        reader.scope.note_rule(&format!("{}.{index}", reader.path_of(key)), node.at);
        let checked = glob::check_rule(text);
        if checked.is_ok() {
            warn_of_stranger(reader, key, (text, node), servers);
        }
        tools::report(reader, key, text, node, checked);
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// A rule about a server that does not exist protects nothing.
fn warn_of_stranger(reader: &Reader<'_>, key: &str, (rule, node): (&str, &Node), servers: &[&str]) {
    let Some(server) = glob::server_of(rule).filter(|server| !servers.contains(server)) else { return };
    let path = reader.path_of(key);
    let message = format!("a rule in `{path}` names the server `{server}`, which does not exist");
    let hint = nearest(server, servers.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    reader.scope.warn(node.at, &path, message, hint);
}

fn read_budget(reader: Reader<'_>) -> Option<Budget> {
    let (calls, per) = (reader.count("calls"), reader.duration("per"));
    for key in ["calls", "per"] {
        if !reader.has(key) {
            let message = format!("`{}` has no `{key}`", reader.path);
            let hint = "write it like { calls = 1000, per = \"1h\" }";
            reader.scope.error(reader.at, &reader.path, message, hint);
        }
    }
    reader.finish();
    Some(Budget { calls: calls?, per: per? })
}

/// Why a text is not a role's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoleNameError {
    /// A character, or a length, that no name of a role has.
    #[error("a role's name is made of letters, digits, `-` and `_`, at most 64 of them")]
    Grammar,
    /// The name of whoever runs the host, whom no rule holds back.
    #[error("this name is reserved for whoever runs the daemon, whom no rule holds back")]
    Reserved,
}

/// Checks the grammar of role names.
pub(crate) fn check_name(name: &str) -> Result<(), RoleNameError> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_word) {
        return Err(RoleNameError::Grammar);
    }
    if name.eq_ignore_ascii_case(OPERATOR) { Err(RoleNameError::Reserved) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_everything_without_limit_is_unrestricted() {
        let role = Role { allow: vec!["*".into()], deny: vec![], budget: None, max_in_flight: None };
        assert!(role.is_unrestricted());
        assert!(!Role { allow: vec![], ..role.clone() }.is_unrestricted());
        assert!(!Role { deny: vec!["a/*".into()], ..role.clone() }.is_unrestricted());
        let budget = Some(Budget { calls: 1, per: Duration::from_secs(1) });
        assert!(!Role { budget, ..role.clone() }.is_unrestricted());
        assert!(!Role { max_in_flight: Some(1), ..role }.is_unrestricted());
    }

    #[test]
    fn role_names_are_safe_everywhere() {
        for good in ["local", "Researcher-2", "a_b", &"x".repeat(64)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "a.b", "a/b", "é", &"x".repeat(65)] {
            assert_eq!(check_name(bad), Err(RoleNameError::Grammar), "{bad}");
        }
        assert_eq!(check_name("operator"), Err(RoleNameError::Reserved));
    }
}
