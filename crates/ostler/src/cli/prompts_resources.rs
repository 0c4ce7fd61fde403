//! `ostler prompts` and `ostler resources`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{TEMPLATE, read_time};
use crate::completion;

/// List the prompts of servers, or get one
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler prompts
  ostler prompts git --json
  ostler prompts get git__review branch=main",
    after_help = "A server called `get` is listed with `--server get`.",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct PromptsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PromptsCommand>,
    #[command(flatten)]
    pub(crate) list: ItemListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsCommand {
    Get(GetPromptArgs),
}

/// List the resources of servers, or read one
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler resources
  ostler resources files --json | jq -r '.resources[].name'
  ostler resources read file:///etc/hosts",
    after_help = "Templates of resources are listed too. A server called `read` is listed with `--server read`.",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct ResourcesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ResourcesCommand>,
    #[command(flatten)]
    pub(crate) list: ItemListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesCommand {
    Read(ReadResourceArgs),
}

/// Servers whose lists are shown, and the form.
#[derive(Debug, Args)]
pub(crate) struct ItemListArgs {
    /// Only those of this server
    #[arg(value_name = "SERVER", add = completion::servers())]
    name: Option<String>,
    /// The same, whatever the server is called
    #[arg(long, value_name = "NAME", conflicts_with = "name", add = completion::servers())]
    server: Option<String>,
    /// Print JSON, with each definition as its server wrote it
    #[arg(long)]
    pub(crate) json: bool,
}

impl ItemListArgs {
    /// Returns the server that is meant, if one is.
    pub(crate) fn server(&self) -> Option<&str> {
        self.name.as_deref().or(self.server.as_deref())
    }
}

/// Get a prompt
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler prompts get git__review branch=main
  ostler prompts get review --json",
    after_help = "Arguments of prompts are texts; key=@FILE is the text of a file."
)]
pub(crate) struct GetPromptArgs {
    /// The prompt: git__review, git.review, or `review` where one server alone has it
    #[arg(value_name = "NAME", add = completion::prompts())]
    pub(crate) prompt: String,
    /// Arguments of the prompt
    #[arg(value_name = "KEY=VALUE", add = completion::prompt_arguments())]
    pub(crate) pairs: Vec<String>,
    /// Print the whole result as JSON, byte for byte as the server sent it
    #[arg(long)]
    pub(crate) json: bool,
    /// Give up after this long, such as 30s or 1m30s
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<Duration>,
}

/// Read a resource
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler resources read file:///etc/hosts
  ostler resources read img://logo --out logo.png
  ostler resources read note://1 --server notes --json",
    after_help = "Without --server, the one server that lists the URI or has a template for it is asked. Several \
parts go out one after the other. Bytes go to stdout unless that is a terminal."
)]
pub(crate) struct ReadResourceArgs {
    /// The URI
    #[arg(add = completion::resources())]
    pub(crate) uri: String,
    /// Ask this server, whether it lists the URI or not
    #[arg(long, value_name = "NAME", add = completion::servers())]
    pub(crate) server: Option<String>,
    /// Write it into this file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) out: Option<PathBuf>,
    /// Print the whole result as JSON, byte for byte as the server sent it
    #[arg(long)]
    pub(crate) json: bool,
    /// Give up after this long, such as 30s or 1m30s
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<Duration>,
}
