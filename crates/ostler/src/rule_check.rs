//! Checks of roles and rules without effect, for `ostler check`.

use std::path::Path;

use ostler_core::caller::Caller;
use ostler_core::catalog::nearest;
use ostler_core::config::{Config, Problem};
use ostler_core::policy::{Rules, Subject, glob};
use ostler_core::spec::ServerSpec;
use ostler_host::{Kind, persisted_names};

use crate::invocation::command;
use crate::workspace;

/// Returns a warning for every role that can use nothing, and for every rule that matches nothing of a server whose
/// lists are known from an earlier run.
pub(crate) fn check(config: &Config, state_dir: Option<&Path>) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        config.roles.keys().filter_map(|role| check_useless_role(config, role)).collect();
    for (name, role) in &config.roles {
        for (list, rules) in [("allow", &role.allow), ("deny", &role.deny)] {
            for (index, rule) in rules.iter().enumerate() {
                let hint = state_dir.and_then(|dir| unmatched_hint(config, dir, rule));
                problems.extend(hint.map(|hint| {
                    let message = format!(
                        "`{}` in `roles.{name}.{list}` matches nothing that its server is known to have",
                        rule.escape_debug()
                    );
                    warn(config, (name, list, index), message, hint)
                }));
            }
        }
    }
    problems
}

/// Warns of a role that can use nothing. A lockout in the usual spelling is intended; any other may be a mistake.
fn check_useless_role(config: &Config, role: &str) -> Option<Problem> {
    let rules = Rules::from_roles(&config.roles);
    let caller = Caller::new(role, role);
    let sees = |spec: &ServerSpec| rules.decide_server(&caller, spec.name.as_str()).is_allowed();
    let is_meant = config.roles.get(role).is_none_or(|role| role.allow.is_empty());
    if is_meant || config.servers.is_empty() || config.servers.iter().any(sees) {
        return None;
    }
    let message = format!("the role `{role}` can use nothing of any server");
    let hint = "correct its rules, or write allow = [] if that is meant".to_owned();
    Some(warn(config, (role, "allow", 0), message, hint))
}

/// Returns the hint for a rule that matches nothing known; `None` if it matches, or if the lists are not known.
fn unmatched_hint(config: &Config, state_dir: &Path, rule: &str) -> Option<String> {
    let (server, subject) = rule.split_once('/')?;
    let spec = config.server(server)?;
    let needed = match Subject::parse(subject) {
        Subject::Tool(_) => Kind::Tools,
        Subject::Prompt(_) => Kind::Prompts,
        // Servers don't list everything that can be read or asked for.
        Subject::Resource(_) | Subject::Method(_) => return None,
    };
    let caller = workspace::caller_in_current_dir(Caller::operator());
    let names = persisted_names(state_dir, spec, &caller, needed)?;
    let spell = |kind: Kind, name: &str| match kind {
        Kind::Tools => Subject::Tool(name).to_string(),
        Kind::Prompts => Subject::Prompt(name).to_string(),
        Kind::Resources | Kind::Templates => Subject::Resource(name).to_string(),
    };
    let is_match = |kind: Kind, name: &str| glob::is_match(rule, &format!("{server}/{}", spell(kind, name)));
    // A pattern for tools may be meant for more: `git/*` is everything.
    let has_wildcard = subject.contains(['*', '?']);
    let others = Kind::ALL.into_iter().filter(|kind| *kind != needed && has_wildcard);
    let has_other = others
        .flat_map(|kind| {
            let names = persisted_names(state_dir, spec, &caller, kind).unwrap_or_default();
            names.into_iter().map(move |name| (kind, name))
        })
        .any(|(kind, name)| is_match(kind, &name));
    if subject == "*" || has_other || names.iter().any(|name| is_match(needed, name)) {
        return None;
    }
    let spelled: Vec<String> = names.iter().map(|name| spell(needed, name)).collect();
    Some(match nearest(subject, spelled.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{server}/{near}`?"),
        None => format!("{} shows what it has", command(&format!("tools {server}"))),
    })
}

fn warn(config: &Config, (role, list, index): (&str, &str, usize), message: String, hint: String) -> Problem {
    Problem::warning(config.origin_of_rule(role, list, index), format!("roles.{role}.{list}"), message, hint)
}
