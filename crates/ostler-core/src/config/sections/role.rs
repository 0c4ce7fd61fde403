//! `[roles.NAME]`: rules and limits of the callers of one role.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tools;
use crate::caller::OPERATOR;
use crate::catalog::nearest;
use crate::config::keys::Settings as _;
use crate::config::keys::section::section;
use crate::config::read::{ConfigNode, SectionReader};
use crate::config::values::glob;
use crate::config::values::secret_literals::quote;
use crate::server_name::ServerName;

section! {
    /// Rules and limits of the callers of a role.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Role("role") {
        /// Rules over server/tool, server/prompt:name, server/resource:uri and server/method:name of which at
        /// least one must match; an empty list denies everything.
        allow: Vec<String> = texts(required "write allow = [\"*\"] for everything, or allow = [] for nothing") => rules;
        /// Rules of the same form of which none may match; deny wins.
        deny: Vec<String> = texts([]) => rules;
        /// Calls of all its callers together per sliding window.
        budget: Option<RoleBudget> = section(RoleBudget);
        /// Calls of one of its callers at once, over all servers.
        max_in_flight: Option<usize> = count(1..);
    }
}

section! {
    /// A number of calls in any window of that length.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RoleBudget("budget", optional) {
        /// Calls in the window.
        calls: u64 = count(0.., required "write it like { calls = 1000, per = \"1h\" }");
        /// The length of the sliding window.
        per: Duration = duration(1.., required "write it like { calls = 1000, per = \"1h\" }");
    }
}

impl Role {
    /// Returns whether a caller of this role may use everything, without limit.
    pub fn is_unrestricted(&self) -> bool {
        self.allow.iter().any(|rule| rule == "*")
            && self.deny.is_empty()
            && self.budget.is_none()
            && self.max_in_flight.is_none()
    }
}

/// Reads the roles; the servers must be known by then.
pub(crate) fn read(reader: &SectionReader<'_>, key: &'static str) -> Option<BTreeMap<String, Role>> {
    let (mut roles, context) = (BTreeMap::new(), reader.context);
    for entry in reader.named_entries(key) {
        let path = format!("{key}.{}", entry.key);
        if let Err(error) = check_name(&entry.key) {
            context.error(entry.key_span, &path, format!("{}: {error}", quote(&entry.key)), None);
            continue;
        }
        if let Some(found) = SectionReader::from_entry(context, Role::SECTION, &path, entry) {
            roles.insert(entry.key.clone(), Role::preset().filled(found));
        }
    }
    Some(roles)
}

fn rules(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    let texts = reader.texts(key)?;
    for (index, (text, node)) in texts.iter().enumerate() {
        reader.context.record_rule_location(&format!("{}.{index}", reader.key_path(key)), node.span);
        let checked = glob::check_rule(text);
        if checked.is_ok() {
            warn_of_unknown_server(reader, key, text, node);
        }
        tools::report_bad_pattern(reader, key, text, node, checked);
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// Warns of a rule about a server that does not exist, since it protects nothing.
fn warn_of_unknown_server(reader: &SectionReader<'_>, key: &str, rule: &str, node: &ConfigNode) {
    let servers = reader.context.servers.borrow();
    let is_stranger = |server: &&str| servers.iter().all(|known| known.as_str() != *server);
    let Some(server) = glob::server_of_rule(rule).filter(is_stranger) else { return };
    let path = reader.key_path(key);
    let message = format!("a rule in `{path}` names the server `{server}`, which does not exist");
    let hint =
        nearest(server, servers.iter().map(ServerName::as_str)).map(|near| format!("did you mean `{near}`?"));
    reader.context.warn(node.span, &path, message, hint);
}

/// Reason why a text is not a role's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoleNameError {
    /// The characters or the length do not fit the grammar.
    #[error("a role's name is made of letters, digits, `-` and `_`, at most 64 of them")]
    Grammar,
    /// The name of the operator, to whom no rule applies.
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
        let budget = Some(RoleBudget { calls: 1, per: Duration::from_secs(1) });
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
