//! `ostler explain`: the rule that decides about a use, with its place in the config.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ostler_core::caller::Caller;
use ostler_core::catalog::nearest;
use ostler_core::config::Config;
use ostler_core::policy::{Decider, DecidingPattern, Explanation, Rules, Subject};
use ostler_core::server_name::ServerName;
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::item_names;
use crate::client::{self, BackendChoice};
use crate::config_file::relative_to_cwd;
use crate::failure::CommandFailure;
use crate::{cli, output};

/// Exit code for a use that is denied or unknown.
const DENIED_EXIT_CODE: u8 = 5;

pub(super) fn run(typed: &cli::ExplainArgs, shared: &cli::GlobalOptions) -> Result<ExitCode, CommandFailure> {
    let explained = match client::choose_backend(shared)? {
        BackendChoice::InProcess(options) => {
            let (config, rules) = (&options.config, Rules::from_roles(&options.config.roles));
            explain(config, &typed.role, &typed.what, |caller, server, subject| {
                Explanation::new(&rules, caller, config.server(server), subject)
            })
        }
        // The daemon may run another config than the one on disk.
        daemon @ BackendChoice::Daemon(_) => client::run_without_consent(daemon, async |backend| {
            backend.warn_refused_change().await;
            backend.explain(&typed.role, &typed.what).await
        })?,
    };
    if typed.json {
        output::print_json(&explained.explanation)?;
    } else {
        output::print(&explained.render())?;
    }
    let is_allowed = explained.explanation.allowed;
    Ok(if is_allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED_EXIT_CODE) })
}

/// Explains whether a role may use something. `decide` knows the rules; the config knows their lines.
pub(crate) fn explain(
    config: &Config,
    role: &str,
    what: &str,
    decide: impl FnOnce(&Caller, &str, Option<Subject<'_>>) -> Explanation,
) -> ExplainResponse {
    let servers: Vec<ServerName> = config.servers.iter().map(|spec| spec.name.clone()).collect();
    let query = ExplainQuery::read(&servers, role, what);
    let explanation = ExplainOutput::evaluate(config, &query, decide);
    let hint = explanation.hint(config);
    ExplainResponse { explanation, hint }
}

/// Parsed arguments.
struct ExplainQuery<'a> {
    role: &'a str,
    server: &'a str,
    subject: Option<Subject<'a>>,
}

impl<'a> ExplainQuery<'a> {
    /// Splits off the longest server name that fits, or else the text before the first separator. A word for another
    /// kind, such as `prompt:`, may follow a `/`.
    fn read(servers: &[ServerName], role: &'a str, what: &'a str) -> Self {
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
        Self { role, server, subject }
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

    /// Returns the subject in the spelling of rules.
    fn rule_subject(&self) -> String {
        match self.subject {
            None => format!("{}/*", self.server),
            Some(subject) => format!("{}/{subject}", self.server),
        }
    }
}

/// An explanation, as a daemon gives it.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExplainResponse {
    pub(crate) explanation: ExplainOutput,
    /// What else a person may want to know.
    hint: Option<String>,
}

/// The stable shape of `--json`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExplainOutput {
    /// Whether the role may.
    pub(crate) allowed: bool,
    role: String,
    server: String,
    /// As rules spell it; absent where the server as a whole is meant.
    subject: Option<String>,
    /// What decides: `operator`, `local-default`, `role`, `server-filter`,
    /// `unknown-role`, `unknown-server`.
    decider: Cow<'static, str>,
    /// `allow` or `deny`, where a pattern decides.
    list: Option<Cow<'static, str>>,
    pattern: Option<String>,
    /// Where the pattern stands.
    file: Option<PathBuf>,
    line: Option<u32>,
}

impl ExplainResponse {
    fn render(&self) -> String {
        let explained = &self.explanation;
        let ExplainOutput { role, server, subject, .. } = explained;
        let asked = ExplainQuery { role, server, subject: subject.as_deref().map(Subject::parse) };
        let (may, verb) = match (explained.allowed, asked.subject) {
            (true, Some(_)) => ("may", "use"),
            (true, None) => ("may", "see"),
            (false, Some(_)) => ("may not", "use"),
            (false, None) => ("may not", "see"),
        };
        let (role, rule) = (output::escape_line(role), explained.rule(&asked));
        let mut text = format!("{role} {may} {verb} {}\n  rule: {rule}\n", asked.describe_subject());
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  hint: {}\n", output::escape_line(hint)));
        }
        text
    }
}

impl ExplainOutput {
    fn evaluate(
        config: &Config,
        asked: &ExplainQuery<'_>,
        decide: impl FnOnce(&Caller, &str, Option<Subject<'_>>) -> Explanation,
    ) -> Self {
        let operator = Caller::operator();
        let caller = match asked.role == operator.role() {
            true => operator,
            false => Caller::new(asked.role, asked.role),
        };
        let Explanation { is_allowed, decider } = decide(&caller, asked.server, asked.subject);
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
            decider: word.into(),
            list: list.map(Cow::Borrowed),
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
        let (list, pattern) = (self.list.as_deref()?, self.pattern.as_deref()?);
        let role = config.roles.get(&self.role)?;
        let rules = if list == "allow" { &role.allow } else { &role.deny };
        config.origin_of_rule(&self.role, list, rules.iter().position(|rule| rule == pattern)?)
    }

    fn rule(&self, asked: &ExplainQuery<'_>) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!(" ({}:{line})", relative_to_cwd(file).display()),
            _ => String::new(),
        };
        let table = match &*self.decider {
            "server-filter" => format!("servers.{}.tools", self.server),
            _ => format!("roles.{}", output::escape_line(&self.role)),
        };
        match (&*self.decider, self.list.as_deref(), &self.pattern) {
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
        let near = match &*self.decider {
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
