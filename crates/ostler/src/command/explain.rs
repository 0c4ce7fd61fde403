//! `ostler explain`: which rule decides, and why.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ostler_core::caller::Caller;
use ostler_core::catalog::nearest;
use ostler_core::config::Config;
use ostler_core::policy::{Decider, DecidingPattern, Explanation, Rules, Subject};
use ostler_core::server_name::ServerName;
use serde::Serialize;

use super::item_names;
use crate::config_file::{self, relative_to_cwd};
use crate::failure::CommandFailure;
use crate::{cli, output};

/// The exit code of what is denied or unknown.
const DENIED_EXIT_CODE: u8 = 5;

pub(super) fn run(typed: &cli::ExplainArgs, file: Option<&Path>) -> Result<ExitCode, CommandFailure> {
    let config = config_file::load(config_file::find(file)?)?.config;
    let servers: Vec<ServerName> = config.servers.iter().map(|spec| spec.name.clone()).collect();
    let asked = ExplainQuery::read(&servers, typed);
    let explained = ExplainOutput::evaluate(&config, &asked);
    if typed.json {
        output::print_json(&explained)?;
    } else {
        output::print(&explained.render(&config, &asked))?;
    }
    Ok(if explained.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED_EXIT_CODE) })
}

/// What was typed, understood.
struct ExplainQuery<'a> {
    role: &'a str,
    server: &'a str,
    subject: Option<Subject<'a>>,
}

impl<'a> ExplainQuery<'a> {
    /// The longest name of a server that fits is meant; where none does, what stands before the first separator.
    /// Behind a `/` there may be the word of another kind, such as `prompt:`.
    fn read(servers: &[ServerName], typed: &'a cli::ExplainArgs) -> Self {
        let what = typed.what.as_str();
        let known = item_names::split_candidates(servers, what)
            .into_iter()
            .max_by_key(|(server, _)| server.as_str().len());
        let end = known.map(|(server, _)| server.as_str().len());
        let end = end.or_else(|| item_names::server_part(what).map(str::len)).unwrap_or(what.len());
        let (server, rest) = what.split_at(end);
        let tool = || rest.strip_prefix("__").or_else(|| rest.strip_prefix(['.', ':', ' ']));
        let subject = match rest.strip_prefix('/') {
            Some(subject) => Some(Subject::parse(subject)),
            None => tool().map(Subject::Tool),
        };
        Self { role: &typed.role, server, subject }
    }

    fn describe_subject(&self) -> String {
        let server = format!("server `{}`", output::escape_line(self.server));
        match self.subject {
            None => server,
            Some(Subject::Tool(name)) => format!("tool `{}` of {server}", output::escape_line(name)),
            Some(Subject::Prompt(name)) => format!("prompt `{}` of {server}", output::escape_line(name)),
            Some(Subject::Resource(uri)) => format!("resource `{}` of {server}", output::escape_line(uri)),
            Some(Subject::Method(method)) => format!("method `{}` of {server}", output::escape_line(method)),
        }
    }

    /// As rules are asked about it.
    fn rule_subject(&self) -> String {
        match self.subject {
            None => format!("{}/*", self.server),
            Some(subject) => format!("{}/{subject}", self.server),
        }
    }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct ExplainOutput {
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

impl ExplainOutput {
    fn evaluate(config: &Config, asked: &ExplainQuery<'_>) -> Self {
        let operator = Caller::operator();
        let caller = match asked.role == operator.role() {
            true => operator,
            false => Caller::new(asked.role, asked.role),
        };
        let (rules, spec) = (Rules::from_roles(&config.roles), config.server(asked.server));
        let Explanation { is_allowed, decider } = Explanation::new(&rules, &caller, spec, asked.subject);
        let (word, pattern) = match decider {
            Decider::NoRules => ("no-rules", None),
            Decider::Operator => ("operator", None),
            Decider::LocalDefault => ("local-default", None),
            Decider::UnknownRole => ("unknown-role", None),
            Decider::UnknownServer => ("unknown-server", None),
            Decider::Role(DecidingPattern::AmbiguousUri) => ("ambiguous-uri", None),
            Decider::Role(pattern) => ("role", Some(pattern)),
            Decider::ServerFilter(pattern) => ("server-filter", Some(pattern)),
            Decider::Hook { .. } => ("hook", None),
        };
        let (list, pattern) = match pattern {
            Some(DecidingPattern::Allow(pattern)) => (Some("allow"), Some(pattern)),
            Some(DecidingPattern::Deny(pattern)) => (Some("deny"), Some(pattern)),
            Some(DecidingPattern::Unmatched | DecidingPattern::LockedOut | DecidingPattern::AmbiguousUri)
            | None => (None, None),
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

    fn render(&self, config: &Config, asked: &ExplainQuery<'_>) -> String {
        let (may, verb) = match (self.allowed, asked.subject) {
            (true, Some(_)) => ("may", "use"),
            (true, None) => ("may", "see"),
            (false, Some(_)) => ("may not", "use"),
            (false, None) => ("may not", "see"),
        };
        let role = output::escape_line(&self.role);
        let mut text =
            format!("{role} {may} {verb} {}\n  rule: {}\n", asked.describe_subject(), self.rule(asked));
        if let Some(hint) = self.hint(config) {
            text.push_str(&format!("  hint: {hint}\n"));
        }
        text
    }

    fn rule(&self, asked: &ExplainQuery<'_>) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!(" ({}:{line})", relative_to_cwd(file).display()),
            _ => String::new(),
        };
        let table = match self.decider {
            "server-filter" => format!("servers.{}.tools", self.server),
            _ => format!("roles.{}", output::escape_line(&self.role)),
        };
        match (self.decider, self.list, &self.pattern) {
            (_, Some(list), Some(pattern)) => {
                format!("`{}` in `{list}` of `[{table}]`{place}", output::escape_line(pattern))
            }
            ("role" | "server-filter", ..) => {
                format!(
                    "nothing in `allow` of `[{table}]` matches `{}`{place}",
                    output::escape_line(&asked.rule_subject())
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
