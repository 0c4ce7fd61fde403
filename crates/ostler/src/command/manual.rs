//! `ostler help`, `man`, `completions` and `version`: documentation generated from the command line grammar.

use std::ffi::OsString;
use std::io;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use crate::cli::{self, find_command, unknown_command};
use crate::completion;
use crate::failure::CommandFailure;
use crate::output::{print, print_bytes, print_json};
use crate::sabotage::VERSION;

/// Commit of the build; `None` unless the build sets `OSTLER_COMMIT`.
const COMMIT: Option<&str> = option_env!("OSTLER_COMMIT");

/// Target platform of the build.
const TARGET: &str = env!("OSTLER_TARGET");

pub(super) fn print_completions(shell: Shell) -> Result<(), CommandFailure> {
    print_bytes(&completion::script(shell)?)
}

pub(super) fn print_page(words: &[String]) -> Result<(), CommandFailure> {
    let mut text = Vec::new();
    render(find_command(&built(), words)?.clone(), &mut text).map_err(CommandFailure::Output)?;
    print_bytes(&text)
}

pub(super) fn print_help(words: &[String]) -> Result<(), CommandFailure> {
    let help = find_command(&built(), words)?.clone().render_help();
    // Colours are left out where stdout is no terminal.
    let text =
        if crate::output::Style::stdout().has_colours() { help.ansi().to_string() } else { help.to_string() };
    print(&text)
}

pub(super) fn print_version(is_json: bool) -> Result<(), CommandFailure> {
    if is_json {
        return print_json(&json!({ "version": VERSION, "commit": COMMIT, "target": TARGET }));
    }
    let commit = COMMIT.map(|commit| format!("{commit}, ")).unwrap_or_default();
    print(&format!("ostler {VERSION} ({commit}{TARGET})\n"))
}

/// Returns the failure for an unknown command.
pub(super) fn unknown(words: &[OsString]) -> CommandFailure {
    // `mcp list` of other programs is `list` here.
    let is_family = |word: &&OsString| *word == "mcp" && words.len() > 1;
    let word = words.iter().find(|word| !is_family(word));
    let word = word.map(|word| word.to_string_lossy()).unwrap_or_default();
    unknown_command(&built(), &word)
}

/// Returns the grammar with full command names: `ostler token create`.
fn built() -> Command {
    let mut whole = cli::clap_command();
    whole.build();
    whole
}

fn render(command: Command, text: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // Without it, the footer of a subcommand's page has that name and no version.
    let source = concat!("ostler ", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(name.to_uppercase()).source(source).render(text)
}
