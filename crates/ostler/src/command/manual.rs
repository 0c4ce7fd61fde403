//! `ostler completions` and `ostler man`: what was typed, described.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use ostler_core::catalog::nearest;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::print_bytes;

pub(super) fn print_completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ostler", &mut text);
    print_bytes(&text)
}

pub(super) fn print_page(command: Option<&str>) -> Result<(), Failure> {
    let mut whole = Cli::command();
    // Names of subcommands become whole: `ostler-call`.
    whole.build();
    let mut text = Vec::new();
    let page = match command {
        None => whole,
        Some(name) => find(&whole, name)?,
    };
    render(page, &mut text).map_err(Failure::Output)?;
    print_bytes(&text)
}

fn find(whole: &Command, name: &str) -> Result<Command, Failure> {
    whole.find_subcommand(name).cloned().ok_or_else(|| {
        let near = nearest(name, whole.get_subcommands().map(Command::get_name));
        Failure::Usage {
            what: format!("there is no command `{}`", name.escape_debug()),
            hint: near.map(|near| format!("did you mean `{near}`?")),
        }
    })
}

fn render(command: Command, text: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // Without it, the foot of a subcommand's page names that and no version.
    let source = concat!("ostler ", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(name.to_uppercase()).source(source).render(text)
}
