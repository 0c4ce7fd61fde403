//! Plan of a config edit, made before anything is applied.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::keys::AtStart as _;
use crate::config::{Config, Role};
use crate::server_name::ServerName;
use crate::spec::ServerSpec;

/// Effect of a config edit. Every server is in exactly one list, in the order of its file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// Servers to be hosted from now on.
    pub added: Vec<ServerName>,
    /// Servers to be replaced: the new one is prepared and swapped in, the old one drained.
    pub changed: Vec<ServerName>,
    /// Servers to be drained and removed.
    pub removed: Vec<ServerName>,
    /// Unchanged servers: their processes keep running.
    pub untouched: Vec<ServerName>,
    /// Roles that are new, removed or changed; their rules apply at once.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Changed keys beside the servers that are only read at the start.
    pub needs_restart: Vec<Cow<'static, str>>,
}

impl Plan {
    /// Compares the hosted servers, and the config that the host was started with, with a new config.
    ///
    /// `hosted` is compared and not the old config, because a server whose change failed still has its
    /// earlier spec.
    pub fn new(hosted: &[ServerSpec], started_with: &Config, wanted: &Config) -> Self {
        let before: HashMap<&ServerName, &ServerSpec> =
            hosted.iter().map(|spec| (&spec.name, spec)).collect();
        let mut plan = Self { needs_restart: changed_restart_keys(started_with, wanted), ..Self::default() };
        for spec in &wanted.servers {
            let list = match before.get(&spec.name) {
                None => &mut plan.added,
                Some(old) if old.fingerprint() == spec.fingerprint() => &mut plan.untouched,
                Some(_) => &mut plan.changed,
            };
            list.push(spec.name.clone());
        }
        let is_gone = |spec: &&ServerSpec| wanted.server(spec.name.as_str()).is_none();
        plan.removed = hosted.iter().filter(is_gone).map(|spec| spec.name.clone()).collect();
        plan
    }

    /// Adds the changes of the roles since `before` was applied.
    #[must_use]
    pub fn with_roles(mut self, before: &BTreeMap<String, Role>, wanted: &BTreeMap<String, Role>) -> Self {
        let all: BTreeSet<&String> = before.keys().chain(wanted.keys()).collect();
        let differs = |role: &&String| before.get(*role) != wanted.get(*role);
        self.roles = all.into_iter().filter(differs).cloned().collect();
        self
    }

    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        let Self { added, changed, removed, untouched: _, roles, needs_restart } = self;
        let servers = added.is_empty() && changed.is_empty() && removed.is_empty();
        servers && roles.is_empty() && needs_restart.is_empty()
    }
}

/// Returns the keys that differ and can't change while the daemon runs.
fn changed_restart_keys(before: &Config, after: &Config) -> Vec<Cow<'static, str>> {
    let within = before.defaults.changed_at_start(&after.defaults);
    let within = within.into_iter().map(|key| format!("defaults.{key}").into());
    before.changed_at_start(after).into_iter().chain(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, command: &str) -> ServerSpec {
        ServerSpec::stdio(ServerName::new(name).unwrap(), command).lazy()
    }

    fn names(list: &[ServerName]) -> Vec<&str> {
        list.iter().map(ServerName::as_str).collect()
    }

    #[test]
    fn every_server_is_added_changed_removed_or_left_alone() {
        let before = Config::new(vec![spec("same", "a"), spec("other", "b"), spec("gone", "c")]);
        let after = Config::new(vec![spec("new", "d"), spec("other", "x"), spec("same", "a")]);
        let plan = Plan::new(&before.servers, &before, &after);
        assert_eq!(names(&plan.added), ["new"]);
        assert_eq!(names(&plan.changed), ["other"]);
        assert_eq!(names(&plan.removed), ["gone"]);
        assert_eq!(names(&plan.untouched), ["same"]);
        assert!(plan.needs_restart.is_empty() && !plan.is_empty());
    }

    #[test]
    fn a_change_that_failed_is_tried_again_with_the_next_edit() {
        let hosted = [spec("s", "old")];
        let wanted = Config::new(vec![spec("s", "new")]);
        assert_eq!(names(&Plan::new(&hosted, &wanted, &wanted).changed), ["s"]);
        assert_eq!(names(&Plan::new(&hosted, &wanted, &Config::new(hosted.to_vec())).untouched), ["s"]);
    }

    #[test]
    fn whatever_a_server_is_told_makes_it_another_one() {
        let before = Config::new(vec![spec("s", "a")]);
        let mut lazier = spec("s", "a");
        lazier.keep_alive *= 2;
        for changed in [spec("s", "a").args(["x"]), ServerSpec { lazy: false, ..spec("s", "a") }, lazier] {
            let plan = Plan::new(&before.servers, &before, &Config::new(vec![changed]));
            assert_eq!(names(&plan.changed), ["s"]);
        }
    }

    #[test]
    fn roles_that_come_go_or_change_are_told() {
        let role = |allow: &str| Role {
            allow: vec![allow.into()],
            deny: Vec::new(),
            budget: None,
            max_in_flight: None,
        };
        let of = |roles: &[(&str, &str)]| {
            roles.iter().map(|(name, allow)| ((*name).to_owned(), role(allow))).collect::<BTreeMap<_, _>>()
        };
        let before = of(&[("same", "*"), ("gone", "*"), ("other", "a/*")]);
        let after = of(&[("same", "*"), ("new", "*"), ("other", "b/*")]);
        let plan = Plan::default().with_roles(&before, &after);
        assert_eq!(plan.roles, ["gone", "new", "other"]);
        assert!(!plan.is_empty() && Plan::default().with_roles(&after, &after).is_empty());
    }

    #[test]
    fn keys_of_the_whole_daemon_are_told_and_not_applied() {
        let before = Config::new(Vec::new());
        let mut after = Config { listen: "127.0.0.1:1".parse().unwrap(), ..Config::new(Vec::new()) };
        after.pool.max_processes += 1;
        after.gateway.max_sessions += 1;
        after.watch = false;
        assert_eq!(Plan::new(&[], &before, &after).needs_restart, ["listen", "pool", "gateway"]);
        assert!(Plan::new(&[], &before, &before).is_empty());
    }

    #[test]
    fn one_thing_to_do_is_enough_to_have_a_plan() {
        let name = || vec![ServerName::new("s").unwrap()];
        let plans = [
            Plan { added: name(), ..Plan::default() },
            Plan { changed: name(), ..Plan::default() },
            Plan { removed: name(), ..Plan::default() },
            Plan { roles: vec!["r".into()], ..Plan::default() },
            Plan { needs_restart: vec!["listen".into()], ..Plan::default() },
        ];
        assert!(plans.iter().all(|plan| !plan.is_empty()));
        assert!(Plan { untouched: name(), ..Plan::default() }.is_empty());
    }
}
