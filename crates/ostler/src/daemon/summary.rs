//! Summary of a daemon: what it tells when it has come up, and when its eager servers have settled.

use ostler_core::name::ServerName;
use ostler_core::spec::ServerSpec;

use super::Daemon;
use super::console::Console;
use super::roster::Settled;
use crate::output::{self, Tint, clean, tell};
use crate::{config_file, folders};

/// Names of servers in one line.
const MOST_NAMES: usize = 12;

impl Daemon {
    /// Tells where the daemon is, what it serves and how clients connect; then what is doubtful about its config.
    pub(super) fn tell_summary(&self, url: &str) {
        let hints = self.console.hints();
        let mut text = format!("listening at {url}/mcp\n");
        if let Some(file) = &self.roster.file {
            let near = config_file::shown(file);
            let place = if near.is_absolute() { folders::short(file) } else { near.display().to_string() };
            text.push_str(&format!("  config:  {}\n", clean(&place)));
            text.push_str(&format!("  servers: {}\n", self.describe_servers()));
        }
        let try_it = match self.roster.file {
            Some(_) => hints.line("tools"),
            None => hints.line("call demo__add a=2 b=40"),
        };
        text.push_str(&format!(
            "  try:     {try_it}\n  client:  claude mcp add --transport http ostler {url}/mcp"
        ));
        tell(&text);
        let problems = self.roster.with_config(|_, problems, _| problems.to_vec());
        config_file::tell_problems(&problems);
    }

    /// `3: 2 lazy (git, time), 1 eager (memory)`
    fn describe_servers(&self) -> String {
        let specs = self.roster.specs();
        let is_refused = |spec: &&ServerSpec| self.host.refusal(spec.name.as_str()).is_some();
        let of = |word: &str, servers: Vec<&ServerName>| {
            (!servers.is_empty()).then(|| format!("{} {word} ({})", servers.len(), names(&servers)))
        };
        let (failed, taken): (Vec<_>, Vec<_>) = specs.iter().partition(is_refused);
        let (lazy, eager): (Vec<_>, Vec<_>) = taken.into_iter().partition(|spec| spec.lazy);
        let kinds = [("lazy", lazy), ("eager", eager), ("failed", failed)];
        let parts: Vec<String> = kinds
            .into_iter()
            .filter_map(|(word, specs)| of(word, specs.into_iter().map(|spec| &spec.name).collect()))
            .collect();
        match parts.is_empty() {
            true => "none".into(),
            false => format!("{}: {}", specs.len(), parts.join(", ")),
        }
    }
}

impl Console {
    /// Tells how servers with `lazy = false` have come up.
    pub(super) fn tell_settled(&self, servers: &[Settled]) {
        let failed: Vec<(&ServerName, &ostler_host::CallError)> =
            servers.iter().filter_map(|(server, failure)| Some((server, failure.as_ref()?))).collect();
        let (all, up) = (servers.len(), servers.len() - failed.len());
        if failed.is_empty() {
            return self.say(Tint::Good, &format!("{} up", output::count(all, "eager server")));
        }
        let names: Vec<&ServerName> = failed.iter().map(|(server, _)| *server).collect();
        let mut text = format!(
            "{up} of {} up; failed: {} (`{}`)",
            output::count(all, "eager server"),
            self::names(&names),
            self.hints().line("status")
        );
        for (_, error) in failed {
            text.push_str(&format!("\n  {}", clean(&error.to_string())));
        }
        self.say(Tint::Bad, &text);
    }
}

/// Some names, and how many more there are.
fn names(servers: &[&ServerName]) -> String {
    let mut names: Vec<&str> = servers.iter().take(MOST_NAMES).map(|name| name.as_str()).collect();
    let more = format!("{} more", servers.len().saturating_sub(MOST_NAMES));
    if servers.len() > MOST_NAMES {
        names.push(&more);
    }
    names.join(", ")
}
