//! Groups of commands in `ostler --help`, and the command that an unknown word stands for.
//!
//! Every command that is not hidden is in exactly one group; a test holds this against the grammar.

use std::fmt::Write;

use clap::Command;
use clap::builder::StyledStr;
use ostler_core::catalog::nearest;

use crate::failure::CommandFailure;

/// A heading and its commands, in the order in which they are shown.
type CommandGroup = (&'static str, &'static [&'static str]);

const GROUPS: [CommandGroup; 6] = [
    ("Run servers", &["serve", "stdio", "down", "start", "stop", "restart", "reload", "warm"]),
    ("Use servers", &["call", "tools", "prompts", "resources"]),
    ("Watch", &["status", "daemons", "logs", "audit"]),
    ("Approve and allow", &["trust", "lock", "diff", "approve", "token", "explain"]),
    ("Configure", &["list", "card", "check", "schema"]),
    ("More", &["worker", "relay", "demo", "completions", "man", "help", "version"]),
];

/// The heading of commands that [`GROUPS`] lacks, so that none is hidden by mistake.
const OTHER_COMMANDS: &str = "Other commands";

/// Words that people type for a command that has another name.
const SYNONYMS: [(&[&str], &str); 20] = [
    (&["run", "up", "daemon", "gateway", "server", "server-start", "listen"], "serve"),
    (&["mcp", "attach"], "stdio"),
    (&["shutdown", "quit", "exit", "halt"], "down"),
    (&["exec", "execute", "invoke", "use"], "call"),
    (&["tool", "describe", "inspect"], "tools"),
    (&["search", "find", "grep"], "tools --search"),
    (&["prompt"], "prompts"),
    (&["resource"], "resources"),
    (&["ls", "servers", "show"], "list"),
    (&["info", "state", "health", "top"], "status"),
    (&["doctor", "probe", "ping"], "status --probe"),
    (&["kill", "end"], "stop"),
    (&["refresh", "reread"], "reload"),
    (&["log", "tail", "stderr", "output"], "logs"),
    (&["history", "calls", "events"], "audit"),
    (&["config", "validate", "verify", "lint", "test"], "check"),
    (&["pin", "pins", "freeze"], "lock"),
    (&["tokens", "key", "keys"], "token"),
    (&["why", "can", "policy", "role", "roles", "permissions"], "explain"),
    (&["fetch", "pull", "download", "install", "preload"], "warm"),
];

/// Words for what is done in another way, and that way.
const ADVICE: [(&[&str], &str); 5] = [
    (
        &["add", "remove", "rm", "init", "new", "create", "edit"],
        "servers stand in the config: edit ostler.toml or .mcp.json; `ostler list` shows them, `ostler check` finds mistakes",
    ),
    (
        &["import", "migrate", "convert"],
        "any `mcpServers` file works as it is: `ostler serve --config ~/.cursor/mcp.json`",
    ),
    (
        &["connect", "disconnect", "client", "clients"],
        "have the client start `ostler stdio`, such as `claude mcp add ostler ostler stdio`; see `ostler stdio --help`",
    ),
    (
        &["login", "logout", "auth"],
        "a remote server's token goes into `headers` of the config; tokens for your own callers: `ostler token create`",
    ),
    (&["ui", "dashboard", "web", "open"], "`ostler status --watch` shows the servers as they are"),
];

/// Puts the groups of commands into the help of the whole program.
pub(super) fn with_groups(command: Command) -> Command {
    let template = template(&command);
    command.help_template(template)
}

fn template(command: &Command) -> StyledStr {
    let styles = command.get_styles();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about}\n\n{before-help}{usage-heading} {usage}\n".to_owned();
    let width = visible(command).map(|command| command.get_name().len()).max().unwrap_or(0);
    for (title, members) in groups(command) {
        // Writing into a text does not fail.
        let _ = write!(text, "\n{heading}{title}:{heading:#}\n");
        for member in members {
            let (name, about) = (member.get_name(), member.get_about().cloned().unwrap_or_default());
            let _ = writeln!(text, "  {literal}{name}{literal:#}{:1$}{about}", "", width + 2 - name.len());
        }
    }
    let _ = write!(text, "\n{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    text.into()
}

fn groups(command: &Command) -> Vec<(&'static str, Vec<&Command>)> {
    let mut groups: Vec<(&str, Vec<&Command>)> = GROUPS
        .iter()
        .map(|(title, names)| {
            (*title, names.iter().filter_map(|name| command.find_subcommand(name)).collect())
        })
        .collect();
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    groups
        .push((OTHER_COMMANDS, visible(command).filter(|command| !is_grouped(command.get_name())).collect()));
    groups.retain(|(_, members)| !members.is_empty());
    groups
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Finds a command by the words of its name, such as `token create`.
pub(crate) fn find<'a>(whole: &'a Command, words: &[String]) -> Result<&'a Command, CommandFailure> {
    let mut found = whole;
    for word in words {
        found = found.find_subcommand(word).ok_or_else(|| unknown_command(found, word))?;
    }
    Ok(found)
}

/// Says that a command does not exist, and which one was probably meant.
pub(crate) fn unknown_command(parent: &Command, word: &str) -> CommandFailure {
    let is_whole = parent.get_name() == "ostler";
    let synonym = SYNONYMS.iter().find(|(words, _)| is_whole && words.contains(&word)).map(|(_, name)| *name);
    let near = || nearest(word, visible(parent).flat_map(Command::get_name_and_visible_aliases));
    let parent = parent.get_bin_name().unwrap_or("ostler");
    let all =
        if is_whole { "`ostler help` lists all commands".into() } else { format!("see `{parent} --help`") };
    let advice =
        ADVICE.iter().find(|(words, _)| is_whole && words.contains(&word)).map(|(_, advice)| *advice);
    let hint = match (advice, synonym.or_else(near)) {
        _ if is_whole && word.contains("__") => {
            format!("to call a tool, write `ostler call {} key=value`", word.escape_debug())
        }
        (Some(advice), _) => advice.to_owned(),
        (None, Some(meant)) => format!("did you mean `{parent} {meant}`? {all}"),
        (None, None) => all,
    };
    CommandFailure::Usage { what: format!("there is no command `{}`", word.escape_debug()), hint: Some(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::clap_command;

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let command = clap_command();
        for name in visible(&command).map(Command::get_name) {
            let count = GROUPS.iter().flat_map(|(_, names)| *names).filter(|listed| **listed == name).count();
            assert_eq!(count, 1, "`{name}` must stand once in GROUPS");
        }
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            let found = command.find_subcommand(name).is_some_and(|command| !command.is_hide_set());
            assert!(found, "GROUPS names `{name}`, which is no command");
        }
    }

    #[test]
    fn synonyms_lead_to_commands_and_are_none_themselves() {
        let command = clap_command();
        for word in ADVICE.iter().flat_map(|(words, _)| *words) {
            assert!(command.find_subcommand(word).is_none(), "`{word}` is a command");
        }
        for (words, meant) in SYNONYMS {
            let name = meant.split(' ').next().unwrap();
            assert!(command.find_subcommand(name).is_some(), "there is no command `{name}`");
            for word in words {
                assert!(command.find_subcommand(word).is_none(), "`{word}` is a command");
            }
        }
    }
}
