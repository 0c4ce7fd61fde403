//! Explanations of decisions for people: the deciding rule.

use super::{Rule, RuleDecision, Rules, Subject};
use crate::caller::Caller;
use crate::spec::ServerSpec;

/// A decision about one request of one caller, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// True if the caller may use it.
    pub is_allowed: bool,
    /// The reason.
    pub decider: Decider,
}

/// Reason of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decider {
    /// There are no rules, so every caller may.
    NoRules,
    /// The caller is the operator, to whom no rule applies.
    Operator,
    /// `local` may use everything as long as the config does not name it.
    LocalDefault,
    /// The role is not in the config.
    UnknownRole,
    /// There is no such server.
    UnknownServer,
    /// The rules of the role.
    Role(DecidingPattern),
    /// The server's own filter of tools: the tool does not exist here for any caller.
    ServerFilter(DecidingPattern),
    /// The embedding program's hook.
    Hook {
        /// Its reason.
        reason: String,
    },
}

/// The deciding pattern, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecidingPattern {
    /// This allow pattern matches, and no deny pattern does.
    Allow(String),
    /// This deny pattern matches.
    Deny(String),
    /// No allow pattern matches.
    Unmatched,
    /// There is no allow pattern at all.
    LockedOut,
    /// Servers would read the URI differently, so no pattern can decide about it.
    AmbiguousUri,
}

impl From<Rule<'_>> for DecidingPattern {
    fn from(rule: Rule<'_>) -> Self {
        match rule {
            Rule::Allowed(pattern) => Self::Allow(pattern.to_owned()),
            Rule::Denied(pattern) => Self::Deny(pattern.to_owned()),
            Rule::Unmatched => Self::Unmatched,
            Rule::LockedOut => Self::LockedOut,
            Rule::AmbiguousUri => Self::AmbiguousUri,
        }
    }
}

impl From<RuleDecision<'_>> for Explanation {
    fn from(ruling: RuleDecision<'_>) -> Self {
        let decider = match ruling {
            RuleDecision::NoRules => Decider::NoRules,
            RuleDecision::Operator => Decider::Operator,
            RuleDecision::LocalDefault => Decider::LocalDefault,
            RuleDecision::UnknownRole => Decider::UnknownRole,
            RuleDecision::Role(rule) => Decider::Role(rule.into()),
        };
        Self { is_allowed: ruling.is_allowed(), decider }
    }
}

impl Explanation {
    /// Explains the decision whether a caller may use something of a server, or may see the server if no
    /// subject is given. A server that does not exist has no spec.
    pub fn new(
        rules: &Rules,
        caller: &Caller,
        server: Option<&ServerSpec>,
        subject: Option<Subject<'_>>,
    ) -> Self {
        let Some(spec) = server else { return Self { is_allowed: false, decider: Decider::UnknownServer } };
        let name = spec.name.as_str();
        let ruling = rules.decide_server(caller, name);
        let Some(subject) = subject.filter(|_| ruling.is_allowed()) else { return ruling.into() };
        if let Subject::Tool(tool) = subject
            && let rule = spec.tools.rule(tool)
            && !rule.is_allowed()
        {
            return Self { is_allowed: false, decider: Decider::ServerFilter(rule.into()) };
        }
        rules.decide(caller, name, subject).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;
    use crate::policy::ToolFilter;
    use crate::server_name::ServerName;

    #[test]
    fn the_explanation_names_what_decides() {
        let role = Role {
            allow: vec!["time/*".into()],
            deny: vec!["*/set_*".into()],
            budget: None,
            max_in_flight: None,
        };
        let rules = Rules::from_roles(&[("r".to_owned(), role)].into());
        let mut time = ServerSpec::stdio(ServerName::new("time").unwrap(), "x");
        time.tools = ToolFilter { deny: vec!["raw".into()], ..ToolFilter::everything() };
        let git = ServerSpec::stdio(ServerName::new("git").unwrap(), "x");
        let ask = |role: &str, spec, subject| {
            let Explanation { is_allowed, decider } =
                Explanation::new(&rules, &Caller::new("x", role), spec, subject);
            (is_allowed, decider)
        };
        let tool = |name| Some(Subject::Tool(name));
        let allow = || Decider::Role(DecidingPattern::Allow("time/*".into()));
        assert_eq!(ask("r", Some(&time), None), (true, allow()));
        assert_eq!(ask("r", Some(&time), tool("get")), (true, allow()));
        let deny = Decider::Role(DecidingPattern::Deny("*/set_*".into()));
        assert_eq!(ask("r", Some(&time), tool("set_zone")), (false, deny));
        let filter = Decider::ServerFilter(DecidingPattern::Deny("raw".into()));
        assert_eq!(ask("r", Some(&time), tool("raw")), (false, filter));
        assert_eq!(ask("r", Some(&git), tool("log")), (false, Decider::Role(DecidingPattern::Unmatched)));
        assert_eq!(ask("s", Some(&git), tool("log")), (false, Decider::UnknownRole));
        assert_eq!(ask("local", Some(&git), tool("log")), (true, Decider::LocalDefault));
        assert_eq!(ask("r", None, tool("log")), (false, Decider::UnknownServer));
    }
}
