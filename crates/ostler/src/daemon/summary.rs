//! Summary of a daemon: printed when it has come up, and when its eager servers have settled.

use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;

use super::Daemon;
use super::config_state::StartResult;
use super::console::Console;
use crate::output::{self, Tint, escape_line, print_stderr};
use crate::{config_file, xdg};

/// Upper bound on server names in one line.
const MAX_NAMES: usize = 12;

impl Daemon {
    /// Prints the address, the servers and how clients connect; then the warnings of the config.
    pub(super) fn print_summary(&self, url: &str) {
        let hints = self.console.hints();
        let mut text = format!("listening at {url}/mcp\n");
        if let Some(file) = &self.config_state.file {
            let near = config_file::relative_to_cwd(file);
            let place =
                if near.is_absolute() { xdg::abbreviate_home(file) } else { near.display().to_string() };
            text.push_str(&format!("  config:  {}\n", escape_line(&place)));
            text.push_str(&format!("  servers: {}\n", self.describe_servers()));
        }
        let try_it = match self.config_state.file {
            Some(_) => hints.line("tools"),
            None => hints.line("call demo__add a=2 b=40"),
        };
        text.push_str(&format!(
            "  try:     {try_it}\n  client:  claude mcp add --transport http ostler {url}/mcp"
        ));
        print_stderr(&text);
        let problems = self.config_state.with_config(|_, problems, _| problems.to_vec());
        config_file::print_problems(&problems);
    }

    /// `3: 2 lazy (git, time), 1 eager (memory)`
    fn describe_servers(&self) -> String {
        let specs = self.config_state.specs();
        let is_refused = |spec: &&ServerSpec| self.host.unusable_reason(spec.name.as_str()).is_some();
        let of = |word: &str, servers: Vec<&ServerName>| {
            (!servers.is_empty()).then(|| format!("{} {word} ({})", servers.len(), join_names(&servers)))
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
    /// Prints the outcomes of servers with `lazy = false`.
    pub(super) fn print_eager_starts(&self, servers: &[StartResult]) {
        let failed: Vec<(&ServerName, &ostler_host::CallError)> =
            servers.iter().filter_map(|(server, failure)| Some((server, failure.as_ref()?))).collect();
        let (all, up) = (servers.len(), servers.len() - failed.len());
        if failed.is_empty() {
            return self.write_line(Tint::Success, &format!("{} up", output::count(all, "eager server")));
        }
        let names: Vec<&ServerName> = failed.iter().map(|(server, _)| *server).collect();
        let mut text = format!(
            "{up} of {} up; failed: {} (`{}`)",
            output::count(all, "eager server"),
            self::join_names(&names),
            self.hints().line("status")
        );
        for (_, error) in failed {
            text.push_str(&format!("\n  {}", escape_line(&error.to_string())));
        }
        self.write_line(Tint::Error, &text);
    }
}

/// Joins some names, and how many more there are.
fn join_names(servers: &[&ServerName]) -> String {
    let mut names: Vec<&str> = servers.iter().take(MAX_NAMES).map(|name| name.as_str()).collect();
    let more = format!("{} more", servers.len().saturating_sub(MAX_NAMES));
    if servers.len() > MAX_NAMES {
        names.push(&more);
    }
    names.join(", ")
}
