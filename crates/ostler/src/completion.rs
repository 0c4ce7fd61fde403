//! Completion of the command line in shells: servers, tools, their arguments, prompts, resources, roles and tokens.
//!
//! The script that `ostler completions SHELL` prints calls this program, with [`VARIABLE`] set, at every TAB.
//! Everything offered is read from files: the config, and the lists that earlier runs have kept in the state
//! directory. No server is started, no daemon is asked, and a file that can't be read offers nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Command;
use clap::builder::StyledStr;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use ostler_core::caller::Caller;
use ostler_core::catalog::exposed_name;
use ostler_core::config::Config;
use ostler_core::policy::{Rules, Subject};
use ostler_core::server_name::ServerName;
use ostler_core::shell::is_plain;
use ostler_core::spec::ServerSpec;
use ostler_host::{Kind, ServerItem, persisted_items};
use serde_json::Value;

use crate::arguments::schema::InputSchema;
use crate::command::item_names;
use crate::config_file::{self, FoundConfig};
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::output::escape_line;
use crate::{cli, workspace, xdg};

/// Variable that names the shell.
const VARIABLE: &str = "OSTLER_COMPLETE";

/// Timeout of a completion: a person waits at a prompt, and a file system may hang.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Role of callers on this machine, which no config has to name.
const LOCAL_ROLE: &str = "local";

/// Returns the script that teaches a shell to complete `ostler`.
pub(crate) fn script(shell: Shell) -> Result<Vec<u8>, CommandFailure> {
    let mut text = Vec::new();
    let shells = Shells::builtins();
    // Every shell that can be named is one of them.
    if let Some(shell) = shells.completer(&shell.to_string()) {
        shell
            .write_registration(VARIABLE, "ostler", "ostler", "ostler", &mut text)
            .map_err(CommandFailure::Output)?;
    }
    Ok(text)
}

/// Answers the shell that asks, if one does.
pub(crate) fn run_if_requested() -> Option<ExitCode> {
    std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty())?;
    // Output in the middle of an edited line would garble it.
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(null);
    }
    std::thread::spawn(|| {
        std::thread::sleep(ANSWER_TIMEOUT);
        // No destructor has any effect here: files are read and nothing else.
        std::process::exit(1);
    });
    let typed = CompletionLine::read();
    let grammar =
        || if typed.is_value_wanted() { without_flags(cli::clap_command()) } else { cli::clap_command() };
    let here = std::env::current_dir().ok();
    if typed.is_pair_value() && !has_shown(&mut grammar(), here.as_deref()) {
        return Some(ExitCode::SUCCESS);
    }
    let answered =
        CompleteEnv::with_factory(grammar).var(VARIABLE).try_complete(std::env::args_os(), here.as_deref());
    Some(if answered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns whether there are candidates besides hidden ones.
fn has_shown(grammar: &mut Command, here: Option<&Path>) -> bool {
    let words = CompletionLine::words();
    let index = words.len().saturating_sub(1);
    let offered = clap_complete::engine::complete(grammar, words, index, here).unwrap_or_default();
    offered.iter().any(|candidate| !candidate.is_hide_set())
}

/// Hides flags: they are offered only without other candidates, and after a dash.
fn without_flags(command: Command) -> Command {
    let command = command.disable_help_flag(true).disable_version_flag(true);
    let command = command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) });
    command.mut_subcommands(without_flags)
}

/// Offers commands.
pub(crate) fn commands() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let grammar = cli::clap_command();
        let shown = grammar.get_subcommands().filter(|command| !command.is_hide_set());
        let named = |it: &Command| CompletionCandidate::new(it.get_name()).help(it.get_about().cloned());
        shown.map(named).collect()
    })
}

/// Offers the servers of the config.
pub(crate) fn servers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| CompletionConfig::load().map(|known| known.servers()).unwrap_or_default())
}

/// Offers tools by their names in lists of all servers.
pub(crate) fn tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        CompletionConfig::load().map(|known| known.item_candidates(Kind::Tools)).unwrap_or_default()
    })
}

/// Offers servers, and their tools.
pub(crate) fn servers_and_tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Some(known) = CompletionConfig::load() else { return Vec::new() };
        let mut offered = known.servers();
        offered.extend(known.item_candidates(Kind::Tools));
        offered
    })
}

/// Offers prompts.
pub(crate) fn prompts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        CompletionConfig::load().map(|known| known.item_candidates(Kind::Prompts)).unwrap_or_default()
    })
}

/// Offers the URIs of resources.
pub(crate) fn resources() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Some(known) = CompletionConfig::load() else { return Vec::new() };
        let listed = known.allowed_items(Kind::Resources);
        listed.iter().filter_map(|(_, item)| candidate(&item.name, &described(item))).collect()
    })
}

/// Offers the roles of the config.
pub(crate) fn roles() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Some(known) = CompletionConfig::load() else { return Vec::new() };
        let named = known.config.roles.keys().map(String::as_str);
        let local = Some(LOCAL_ROLE).filter(|local| !known.config.roles.contains_key(*local));
        named.chain(local).filter_map(|role| candidate(role, "")).collect()
    })
}

/// Offers tokens by name.
pub(crate) fn tokens() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let found = find_config();
        let spot = found.and_then(|found| DaemonInstance::for_config(found.file()).ok());
        let tokens = spot.and_then(|spot| spot.token_store().read().ok()).unwrap_or_default();
        tokens.iter().filter_map(|token| candidate(&token.name, "")).collect()
    })
}

/// Offers the arguments of the tool before them, and the values of arguments with few.
pub(crate) fn tool_arguments() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| arguments(word, offered_by_tool))
}

fn offered_by_tool(known: &CompletionConfig, name: &CompletionTargets) -> Option<Vec<OfferedArgument>> {
    let tools = known.allowed_items(Kind::Tools);
    let schema = InputSchema::from_tool(&find_item(&tools, name)?.definition);
    let offered = schema.arguments().into_iter().map(|it| OfferedArgument {
        values: schema.values(&it.name),
        name: it.name,
        about: it.description,
    });
    Some(offered.collect())
}

/// Offers the arguments of the prompt before them.
pub(crate) fn prompt_arguments() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| arguments(word, offered_by_prompt))
}

fn offered_by_prompt(known: &CompletionConfig, name: &CompletionTargets) -> Option<Vec<OfferedArgument>> {
    let prompts = known.allowed_items(Kind::Prompts);
    let definition: Value = serde_json::from_slice(&find_item(&prompts, name)?.definition).ok()?;
    let text = |it: &Value, key| it.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let arguments = definition.get("arguments")?.as_array()?.iter();
    let offered = arguments.map(|it| OfferedArgument {
        name: text(it, "name"),
        values: Vec::new(),
        about: text(it, "description"),
    });
    Some(offered.collect())
}

/// Argument that is offered.
struct OfferedArgument {
    name: String,
    /// Allowed values, where there are few.
    values: Vec<String>,
    about: String,
}

/// Completes `key=value`: keys that have not been given yet, then values.
fn arguments(
    word: &OsStr,
    offered: impl FnOnce(&CompletionConfig, &CompletionTargets) -> Option<Vec<OfferedArgument>>,
) -> Vec<CompletionCandidate> {
    let (Some(word), Some(known)) = (word.to_str(), CompletionConfig::load()) else { return Vec::new() };
    let typed = CompletionLine::read();
    let Some(offered) = CompletionTargets::find_in(&known, &typed).and_then(|named| offered(&known, &named))
    else {
        return Vec::new();
    };
    let split = typed.split_key().or_else(|| typed.last_of(&offered));
    let (key, value, prefix) = match (word.split_once('='), split) {
        (Some((key, value)), _) => (key, value, format!("{key}=")),
        (None, Some(key)) => (key, word, String::new()),
        (None, None) => {
            let is_new =
                |it: &&OfferedArgument| !typed.before.iter().any(|given| is_pair_of(given, &it.name));
            let fitting = offered.iter().filter(is_new).filter(|it| it.name.starts_with(word));
            return fitting.filter_map(|it| candidate(&format!("{}=", it.name), &it.about)).collect();
        }
    };
    let values = offered.iter().find(|it| it.name == key).map(|it| &it.values[..]).unwrap_or_default();
    let fitting = values.iter().filter(|it| it.starts_with(value));
    fitting.filter_map(|it| candidate(&format!("{prefix}{it}"), "")).collect()
}

fn is_pair_of(given: &str, key: &str) -> bool {
    given.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':']))
}

/// Returns a candidate. Servers and configs choose these words, and bash inserts them unescaped: words that a shell
/// would split or interpret are not offered, nor are words that this program would read as an option.
fn candidate(value: &str, about: &str) -> Option<CompletionCandidate> {
    let about = about.lines().next().map(escape_line).filter(|line| !line.is_empty());
    let is_word = is_plain(value) && !value.starts_with('-');
    is_word.then(|| CompletionCandidate::new(value).help(about.map(StyledStr::from)))
}

fn described(item: &ServerItem) -> String {
    let definition: Value = serde_json::from_slice(&item.definition).unwrap_or_default();
    let text = |key| definition.get(key).and_then(Value::as_str).map(str::to_owned);
    text("description").or_else(|| text("title")).unwrap_or_default()
}

/// Words before the one under completion, without `ostler` itself.
struct CompletionLine {
    before: Vec<String>,
    word: OsString,
    /// True if the word follows a `=` that is a word of its own, as in bash.
    is_after_equals: bool,
}

impl CompletionLine {
    /// Returns the words up to the one under completion, with `ostler` itself.
    fn words() -> Vec<OsString> {
        let mut words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
        // Bash passes the index of the word; other shells end the line there.
        let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|text| text.parse().ok());
        words.truncate(index.map_or(words.len(), |index: usize| index.saturating_add(1)));
        words
    }

    fn read() -> Self {
        let mut words = Self::words();
        let word = words.pop().unwrap_or_default();
        let is_after_equals = words.last().is_some_and(|last| last == "=");
        let before = words.into_iter().skip(1).filter(|word| word != "=");
        let before = before.map(|word| word.to_string_lossy().into_owned()).collect();
        Self { before, word, is_after_equals }
    }

    /// Returns the value of a flag.
    fn flag(&self, name: &str) -> Option<&str> {
        let mut words = self.before.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix(name) {
                Some("") => return words.next().map(String::as_str),
                Some(rest) => return rest.strip_prefix('='),
                None => {}
            }
        }
        None
    }

    /// Returns the key of the word, where the shell splits words at `=`.
    fn split_key(&self) -> Option<&str> {
        let last = self.before.last().filter(|last| self.is_after_equals && !last.starts_with('-'));
        last.map(String::as_str)
    }

    /// Returns the last word before, if it is the key of an argument: bash leaves out the `=` before the cursor.
    fn last_of(&self, offered: &[OfferedArgument]) -> Option<&str> {
        let last = self.before.last().filter(|last| offered.iter().any(|it| it.name == **last));
        last.map(String::as_str)
    }

    /// Returns whether the word is the value of a `key=value`, and not of a flag.
    fn is_pair_value(&self) -> bool {
        if !self.is_value_wanted() {
            return false;
        }
        let is_after_key = || {
            let known = CompletionConfig::load()?;
            let named = CompletionTargets::find_in(&known, self)?;
            let offered = [offered_by_tool(&known, &named), offered_by_prompt(&known, &named)];
            offered.iter().flatten().find_map(|offered| self.last_of(offered)).map(drop)
        };
        self.word.as_encoded_bytes().contains(&b'=') || self.split_key().is_some() || is_after_key().is_some()
    }

    fn is_value_wanted(&self) -> bool {
        !self.word.as_encoded_bytes().starts_with(b"-")
    }
}

/// Targets of arguments: a name, or a server and a name.
struct CompletionTargets(Vec<(ServerName, String)>);

impl CompletionTargets {
    /// Finds the target among the typed words: any that reads as a name does.
    fn find_in(known: &CompletionConfig, typed: &CompletionLine) -> Option<Self> {
        let servers: Vec<ServerName> = known.config.servers.iter().map(|spec| spec.name.clone()).collect();
        let words = typed.before.iter().map(String::as_str);
        let pairs = typed.before.windows(2).map(|two| two.join(" "));
        let texts: Vec<String> = words.map(str::to_owned).chain(pairs).collect();
        let readings = texts.iter().flat_map(|text| item_names::split_candidates(&servers, text));
        let named: Vec<_> = readings.map(|(server, item)| (server.clone(), item.to_owned())).collect();
        Some(Self(named)).filter(|named| !named.0.is_empty())
    }
}

fn find_item<'a>(
    listed: &'a [(&ServerSpec, ServerItem)],
    named: &CompletionTargets,
) -> Option<&'a ServerItem> {
    let is_named = |spec: &ServerSpec, item: &ServerItem| {
        named.0.iter().any(|(server, name)| *server == spec.name && **name == *item.name)
    };
    listed.iter().find(|(spec, item)| is_named(spec, item)).map(|(_, item)| item)
}

/// Config and cached lists, as files have them.
struct CompletionConfig {
    config: Config,
}

/// Finds the config that the command under completion would use.
fn find_config() -> Option<FoundConfig> {
    let typed = CompletionLine::read();
    config_file::find(typed.flag("--config").map(Path::new)).ok()
}

impl CompletionConfig {
    fn load() -> Option<Self> {
        let config = config_file::load_quietly(find_config()?, None).ok()?.config;
        Some(Self { config })
    }

    fn servers(&self) -> Vec<CompletionCandidate> {
        self.config.servers.iter().map(|spec| CompletionCandidate::new(spec.name.as_str())).collect()
    }

    /// Returns the cached items that the caller on this machine may use.
    fn allowed_items(&self, kind: Kind) -> Vec<(&ServerSpec, ServerItem)> {
        let Some(state) = xdg::state_dir() else { return Vec::new() };
        let (rules, caller) = (Rules::from_roles(&self.config.roles), Caller::local());
        let reader = workspace::caller_in_current_dir(Caller::operator());
        let is_allowed = |spec: &ServerSpec, item: &ServerItem| {
            let subject = match kind {
                Kind::Tools => Subject::Tool(&item.name),
                Kind::Prompts => Subject::Prompt(&item.name),
                Kind::Resources | Kind::Templates => Subject::Resource(&item.name),
            };
            rules.decide(&caller, spec.name.as_str(), subject).is_allowed()
        };
        let kept = |spec| Some((spec, persisted_items(&state, spec, &reader, kind)?));
        let kept = self.config.servers.iter().filter_map(kept);
        let items = kept.flat_map(|(spec, items)| items.into_iter().map(move |item| (spec, item)));
        items.filter(|(spec, item)| is_allowed(spec, item)).collect()
    }

    fn item_candidates(&self, kind: Kind) -> Vec<CompletionCandidate> {
        let named = |(spec, item): (&ServerSpec, ServerItem)| {
            candidate(&exposed_name(&spec.name, &item.name), &described(&item))
        };
        self.allowed_items(kind).into_iter().filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_a_shell_would_run_is_not_offered() {
        for word in [
            "a;touch b",
            "$(touch b)",
            "`touch b`",
            "a b",
            "a\nb",
            "a&b",
            "~",
            "a|b",
            "a'b",
            "*",
            "",
            "=ls",
            "-h",
            "--config=/tmp/evil.toml",
        ] {
            assert!(candidate(word, "").is_none(), "{word}");
        }
        for word in ["time__now", "timezone=Asia/Tokyo", "file:///a/b-c.txt", "größe="] {
            assert!(candidate(word, "").is_some(), "{word}");
        }
    }
}
