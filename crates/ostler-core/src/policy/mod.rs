//! Policy: verdicts, filters, rules of roles and the embedder's hook.

mod explain;
pub mod glob;
mod rules;
mod subject;
mod uri_normalize;
mod uri_patterns;

use std::fmt;

pub use self::explain::{Decider, DecidingPattern, Explanation};
pub use self::rules::{EffectiveRules, RoleRules, RuleDecision, Rules};
pub use self::subject::Subject;
pub use self::uri_patterns::uri_forms;
use crate::caller::Caller;
pub use crate::config::ToolFilter;

/// Answer of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The caller may use the item.
    Allow,
    /// The caller may not use the item. The reason is for the operator; the caller gets the same answer as
    /// for an item that does not exist.
    Deny {
        /// The deciding rule.
        reason: String,
    },
}

impl Verdict {
    /// Returns whether the caller may use the item.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Allow => true,
            Self::Deny { .. } => false,
        }
    }
}

/// A rule of the embedding program, evaluated beside the configured ones: caller, server, and the requested
/// item, if any, [spelled](Subject) as in the rules of roles.
pub type Hook = dyn Fn(&Caller, &str, Option<&str>) -> Verdict + Send + Sync;

/// The deciding rule about a name, for explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule<'a> {
    /// This allow pattern matches, and no deny pattern does.
    Allowed(&'a str),
    /// This deny pattern matches.
    Denied(&'a str),
    /// No allow pattern matches.
    Unmatched,
    /// There is no allow pattern at all.
    LockedOut,
    /// Servers would read the URI differently, so no pattern can decide about it.
    AmbiguousUri,
}

impl Rule<'_> {
    /// Returns whether the name is allowed.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Allowed(_) => true,
            Self::Denied(_) | Self::Unmatched | Self::LockedOut | Self::AmbiguousUri => false,
        }
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(pattern) => write!(f, "allow pattern `{pattern}` matches"),
            Self::Denied(pattern) => write!(f, "deny pattern `{pattern}` matches"),
            Self::Unmatched => f.write_str("no allow pattern matches"),
            Self::LockedOut => f.write_str("the allow list is empty"),
            Self::AmbiguousUri => f.write_str(
                "servers may read the URI differently (white space, control characters, backslashes, \
                 or more escapes than are followed)",
            ),
        }
    }
}

impl ToolFilter {
    /// Creates a filter that allows every name.
    pub fn everything() -> Self {
        Self::preset()
    }

    /// Returns whether the filter allows every name.
    pub fn is_everything(&self) -> bool {
        self.deny.is_empty() && self.allow.iter().any(|pattern| pattern == "*")
    }

    /// Returns whether the name is allowed. Allocates nothing.
    pub fn allows(&self, name: &str) -> bool {
        self.rule(name).is_allowed()
    }

    /// Returns the verdict, with the deciding pattern in the reason.
    pub fn decide(&self, name: &str) -> Verdict {
        let rule = self.rule(name);
        if rule.is_allowed() { Verdict::Allow } else { Verdict::Deny { reason: rule.to_string() } }
    }

    /// Returns the deciding rule: the first deny pattern that matches, else the first allow pattern that
    /// does.
    pub fn rule(&self, name: &str) -> Rule<'_> {
        if let Some(pattern) = first_match(&self.deny, name) {
            return Rule::Denied(pattern);
        }
        match first_match(&self.allow, name) {
            Some(pattern) => Rule::Allowed(pattern),
            None if self.allow.is_empty() => Rule::LockedOut,
            None => Rule::Unmatched,
        }
    }

    /// Returns whether every name with this beginning is allowed.
    pub fn allows_all_with_prefix(&self, beginning: &str) -> bool {
        let is_whole = self.allow.iter().any(|pattern| glob::matches_all_with_prefix(pattern, beginning));
        is_whole && !self.deny.iter().any(|pattern| glob::matches_some_with_prefix(pattern, beginning))
    }

    /// Returns the deciding rule about all names with this beginning: the first deny pattern that matches all
    /// of them, else the first allow pattern that matches any of them.
    pub fn rule_for_prefix(&self, beginning: &str) -> Rule<'_> {
        if let Some(pattern) =
            self.deny.iter().find(|pattern| glob::matches_all_with_prefix(pattern, beginning))
        {
            return Rule::Denied(pattern);
        }
        match self.allow.iter().find(|pattern| glob::matches_some_with_prefix(pattern, beginning)) {
            Some(pattern) => Rule::Allowed(pattern),
            None if self.allow.is_empty() => Rule::LockedOut,
            None => Rule::Unmatched,
        }
    }
}

fn first_match<'a>(patterns: &'a [String], name: &str) -> Option<&'a str> {
    patterns.iter().map(String::as_str).find(|pattern| glob::is_match(pattern, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: &[&str], deny: &[&str]) -> ToolFilter {
        let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        ToolFilter { allow: owned(allow), deny: owned(deny) }
    }

    #[test]
    fn the_verdict_names_the_pattern_that_decided() {
        let researcher = filter(&["time/*", "git/git_log", "*/delete_me"], &["*/delete_*"]);
        let table = [
            ("time/get", Rule::Allowed("time/*")),
            ("git/git_log", Rule::Allowed("git/git_log")),
            ("git/git_push", Rule::Unmatched),
            ("git/delete_me", Rule::Denied("*/delete_*")),
        ];
        for (name, rule) in table {
            assert_eq!(researcher.rule(name), rule, "{name}");
            assert_eq!(researcher.decide(name).is_allowed(), rule.is_allowed(), "{name}");
        }
        let reason = "deny pattern `*/delete_*` matches".to_owned();
        assert_eq!(researcher.decide("time/delete_all"), Verdict::Deny { reason });
    }

    #[test]
    fn an_empty_allow_list_is_a_lockout() {
        let reason = "the allow list is empty".to_owned();
        assert_eq!(filter(&[], &[]).decide("time/get"), Verdict::Deny { reason });
    }

    #[test]
    fn everything_lets_every_name_pass() {
        assert!(ToolFilter::everything().allows("") && ToolFilter::everything().allows("a/b"));
    }

    fn patterns() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab/*?]{0,5}", 0..4)
    }

    proptest! {
        #[test]
        fn adding_a_deny_never_widens(
            allow in patterns(), deny in patterns(), added in "[ab/*?]{0,5}", place: prop::sample::Index,
            name in "[ab/]{0,6}",
        ) {
            let before = ToolFilter { allow, deny };
            let mut after = before.clone();
            after.deny.insert(place.index(before.deny.len() + 1), added.clone());
            prop_assert!(before.allows(&name) || !after.allows(&name));
            prop_assert!(!(glob::is_match(&added, &name) && after.allows(&name)));
        }

        #[test]
        fn the_order_of_patterns_does_not_change_who_passes(
            allow in patterns(), deny in patterns(), name in "[ab/]{0,6}",
        ) {
            let forward = ToolFilter { allow, deny };
            let mut backward = forward.clone();
            backward.allow.reverse();
            backward.deny.reverse();
            prop_assert_eq!(forward.allows(&name), backward.allows(&name));
        }
    }
}
