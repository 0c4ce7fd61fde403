//! `ostler explain`: which rule decides, and why.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ostler_core::caller::Caller;
use ostler_core::catalog::nearest;
use ostler_core::config::Config;
use ostler_core::name::ServerName;
use ostler_core::policy::{Decider, Explanation, Pattern, Rules, Subject};
use serde::Serialize;

use super::names;
use crate::config_file::{self, shown};
use crate::failure::Failure;
use crate::{cli, output};

/// The exit code of what is denied or unknown.
const DENIED: u8 = 5;

pub(super) fn run(typed: &cli::Explain, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let config = config_file::choose(config_file::find(file)?)?.config;
    let servers: Vec<ServerName> = config.servers.iter().map(|spec| spec.name.clone()).collect();
    let asked = Asked::read(&servers, typed);
    let explained = Explained::of(&config, &asked);
    if typed.json {
        output::print_json(&explained)?;
    } else {
        output::print(&explained.tell(&config, &asked))?;
    }
    Ok(if explained.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
}

/// What was typed, understood.
struct Asked<'a> {
    role: &'a str,
    server: &'a str,
    subject: Option<Subject<'a>>,
}

impl<'a> Asked<'a> {
    /// The longest name of a server that fits is meant; where none does, what stands before the first separator.
    /// Behind a `/` there may be the word of another kind, such as `prompt:`.
    fn read(servers: &[ServerName], typed: &'a cli::Explain) -> Self {
        let what = typed.what.as_str();
        let known =
            names::readings(servers, what).into_iter().max_by_key(|(server, _)| server.as_str().len());
        let end = known.map(|(server, _)| server.as_str().len());
        let end = end.or_else(|| names::server_part(what).map(str::len)).unwrap_or(what.len());
        let (server, rest) = what.split_at(end);
        let tool = || rest.strip_prefix("__").or_else(|| rest.strip_prefix(['.', ':', ' ']));
        let subject = match rest.strip_prefix('/') {
            Some(subject) => Some(Subject::parse(subject)),
            None => tool().map(Subject::Tool),
        };
        Self { role: &typed.role, server, subject }
    }

    fn what(&self) -> String {
        let server = format!("server `{}`", output::clean(self.server));
        match self.subject {
            None => server,
            Some(Subject::Tool(name)) => format!("tool `{}` of {server}", output::clean(name)),
            Some(Subject::Prompt(name)) => format!("prompt `{}` of {server}", output::clean(name)),
            Some(Subject::Resource(uri)) => format!("resource `{}` of {server}", output::clean(uri)),
            Some(Subject::Method(method)) => format!("method `{}` of {server}", output::clean(method)),
        }
    }

    /// As rules are asked about it.
    fn spelled(&self) -> String {
        match self.subject {
            None => format!("{}/*", self.server),
            Some(subject) => format!("{}/{subject}", self.server),
        }
    }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Explained {
    allowed: bool,
    role: String,
    server: String,
    /// As rules spell it; absent where the server as a whole is meant.
    subject: Option<String>,
    /// What decides: `operator`, `local-default`, `role`, `server-filter`,
    /// `unknown-role`, `unknown-server`.
    decider: &'static str,
    /// `allow` or `deny`, where a pattern decides.
    list: Option<&'static str>,
    pattern: Option<String>,
    /// Where the pattern stands.
    file: Option<PathBuf>,
    line: Option<u32>,
}

impl Explained {
    fn of(config: &Config, asked: &Asked<'_>) -> Self {
        let operator = Caller::operator();
        let caller = match asked.role == operator.role() {
            true => operator,
            false => Caller::new(asked.role, asked.role),
        };
        let (rules, spec) = (Rules::of(&config.roles), config.server(asked.server));
        let Explanation { is_allowed, decider } = Explanation::of(&rules, &caller, spec, asked.subject);
        let (word, pattern) = match decider {
            Decider::NoRules => ("no-rules", None),
            Decider::Operator => ("operator", None),
            Decider::LocalDefault => ("local-default", None),
            Decider::UnknownRole => ("unknown-role", None),
            Decider::UnknownServer => ("unknown-server", None),
            Decider::Role(Pattern::AmbiguousUri) => ("ambiguous-uri", None),
            Decider::Role(pattern) => ("role", Some(pattern)),
            Decider::ServerFilter(pattern) => ("server-filter", Some(pattern)),
            Decider::Hook { .. } => ("hook", None),
        };
        let (list, pattern) = match pattern {
            Some(Pattern::Allow(pattern)) => (Some("allow"), Some(pattern)),
            Some(Pattern::Deny(pattern)) => (Some("deny"), Some(pattern)),
            Some(Pattern::Unmatched | Pattern::LockedOut | Pattern::AmbiguousUri) | None => (None, None),
        };
        let mut explained = Self {
            allowed: is_allowed,
            role: asked.role.to_owned(),
            server: asked.server.to_owned(),
            subject: asked.subject.map(|subject| subject.to_string()),
            decider: word,
            list,
            pattern,
            file: None,
            line: None,
        };
        if let Some((file, line)) = explained.origin(config) {
            (explained.file, explained.line) = (Some(file.to_owned()), Some(line));
        }
        explained
    }

    fn origin<'c>(&self, config: &'c Config) -> Option<(&'c Path, u32)> {
        if self.decider == "server-filter" {
            return config.origin(&self.server);
        }
        let (list, pattern) = (self.list?, self.pattern.as_deref()?);
        let role = config.roles.get(&self.role)?;
        let rules = if list == "allow" { &role.allow } else { &role.deny };
        config.origin_of_rule(&self.role, list, rules.iter().position(|rule| rule == pattern)?)
    }

    fn tell(&self, config: &Config, asked: &Asked<'_>) -> String {
        let (may, verb) = match (self.allowed, asked.subject) {
            (true, Some(_)) => ("may", "use"),
            (true, None) => ("may", "see"),
            (false, Some(_)) => ("may not", "use"),
            (false, None) => ("may not", "see"),
        };
        let role = output::clean(&self.role);
        let mut text = format!("{role} {may} {verb} {}\n  rule: {}\n", asked.what(), self.rule(asked));
        if let Some(hint) = self.hint(config) {
            text.push_str(&format!("  hint: {hint}\n"));
        }
        text
    }

    fn rule(&self, asked: &Asked<'_>) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!(" ({}:{line})", shown(file).display()),
            _ => String::new(),
        };
        let table = match self.decider {
            "server-filter" => format!("servers.{}.tools", self.server),
            _ => format!("roles.{}", output::clean(&self.role)),
        };
        match (self.decider, self.list, &self.pattern) {
            (_, Some(list), Some(pattern)) => {
                format!("`{}` in `{list}` of `[{table}]`{place}", output::clean(pattern))
            }
            ("role" | "server-filter", ..) => {
                format!(
                    "nothing in `allow` of `[{table}]` matches `{}`{place}",
                    output::clean(&asked.spelled())
                )
            }
            ("operator", ..) => "no rule is about whoever runs the daemon".into(),
            ("local-default", ..) => "`local` may use everything, since there is no `[roles.local]`".into(),
            ("unknown-role", ..) => "this role is not in the config, and so may use nothing".into(),
            ("unknown-server", ..) => "there is no such server".into(),
            ("ambiguous-uri", ..) => {
                "servers may read this URI differently, so it is unknown to this role".into()
            }
            _ => "there are no rules".into(),
        }
    }

    fn hint(&self, config: &Config) -> Option<String> {
        let near = match self.decider {
            "unknown-role" => nearest(&self.role, config.roles.keys().map(String::as_str)),
            "unknown-server" => nearest(&self.server, config.servers.iter().map(|spec| spec.name.as_str())),
            "server-filter" => return Some("this filter is about every role".into()),
            "operator" => return Some("no token can have this role".into()),
            "ambiguous-uri" => {
                let hint = "leave out white space, control characters, backslashes and nested escapes";
                return Some(hint.into());
            }
            _ => None,
        };
        near.map(|near| format!("did you mean `{near}`?"))
    }
}
