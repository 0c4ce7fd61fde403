//! Keys that are read and checked although nothing acts on them yet.
//!
//! A key that is accepted and does nothing is a promise that is not kept. The
//! table below is the only place that knows about such keys; a row goes when
//! the key comes to life.

use std::collections::BTreeMap;

use super::Config;
use super::document::Place;
use super::log::problem;
use super::problem::{Problem, Severity};
use crate::spec::ServerSpec;

/// Where the keys of the table stand in the files, by path.
pub(crate) type Places = BTreeMap<String, Place>;

/// A key that nothing acts on yet.
struct Idle {
    /// `*` stands for the name of a server or role.
    path: &'static str,
    /// An error where ignoring the key would let somebody do more than the file says.
    severity: Severity,
    /// Whether the key, as it is set, would have to act.
    applies: fn(&Seen<'_>) -> bool,
    /// What to do until then.
    hint: &'static str,
}

/// One key of one config.
struct Seen<'a> {
    config: &'a Config,
    /// The server or role, if the path has one.
    name: &'a str,
}

impl Seen<'_> {
    fn server(&self, is: impl Fn(&ServerSpec) -> bool) -> bool {
        self.config.servers.iter().any(|spec| spec.name.as_str() == self.name && is(spec))
    }
}

const TABLE: &[Idle] = &[Idle {
    path: "servers.*.card",
    severity: Severity::Warning,
    applies: |seen| seen.server(|spec| spec.card.is_some()),
    hint: "leave it out",
}];

/// Keys whose place is asked for although they act.
const ASKED_FOR: [&str; 11] = [
    "pool.max_processes",
    "pins.mode",
    "auth.jwt.jwks",
    "listen",
    "relay",
    "relay.creds",
    "relay.nkey",
    "relay.password",
    "relay.ca",
    "relay.cert",
    "relay.key",
];

/// Whether the place of a key is worth remembering.
pub(crate) fn is_noted(path: &str) -> bool {
    ASKED_FOR.contains(&path)
        || path.strip_prefix("servers.").is_some_and(|rest| rest.ends_with(".isolation"))
        || TABLE.iter().any(|idle| {
            let (mut wanted, mut found) = (idle.path.split('.'), path.split('.'));
            loop {
                match (wanted.next(), found.next()) {
                    (None, None) => return true,
                    (Some(wanted), Some(found)) if wanted == "*" || wanted == found => {}
                    _ => return false,
                }
            }
        })
}

/// Every key of a config that would have to act and does not.
pub(crate) fn find(config: &Config) -> Vec<Problem> {
    let mut problems: Vec<_> = TABLE.iter().flat_map(|idle| idle.problems(config)).collect();
    problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    problems
}

impl Idle {
    fn problems(&self, config: &Config) -> Vec<Problem> {
        let names: Vec<&str> = match self.path.split_once(".*").map(|(section, _)| section) {
            Some("servers") => config.servers.iter().map(|spec| spec.name.as_str()).collect(),
            Some(_) => config.roles.keys().map(String::as_str).collect(),
            None => vec![""],
        };
        names.into_iter().filter_map(|name| self.problem(config, name)).collect()
    }

    fn problem(&self, config: &Config, name: &str) -> Option<Problem> {
        let path = self.path.replace('*', name);
        let place = config.places.get(&path);
        let seen = Seen { config, name };
        (self.applies)(&seen).then(|| {
            let verb = if self.severity == Severity::Error { "enforced" } else { "acted on" };
            let message = format!("`{path}` is read but not yet {verb} by this version");
            problem(self.severity, place.cloned().unwrap_or_default(), &path, message, Some(self.hint.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_are_asked_for_have_their_place_remembered() {
        for noted in ["listen", "pins.mode", "servers.any.card", "servers.any.isolation"] {
            assert!(is_noted(noted), "{noted}");
        }
        for other in
            ["watch", "pins", "servers.any.command", "servers.any", "servers.any.card.x", "roles.any.card"]
        {
            assert!(!is_noted(other), "{other}");
        }
    }
}
