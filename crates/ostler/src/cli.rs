//! What was typed.

mod policy;
mod relay;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ostler_core::config::{duration, listen};

pub(crate) use self::policy::{
    Approve, Audit, Diff, Explain, Lock, NewToken, TokenCommand, Trust, read_moment,
};
pub(crate) use self::relay::{NatsConfig, RelayCommand};
pub(crate) use self::worker::{Login, Worker};
use crate::reach::Address;

/// Examples come before the rest: most people look for the one line to copy.
const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Run every MCP server once, supervised
#[derive(Debug, Parser)]
#[command(
    name = "ostler",
    version = crate::sabotage::VERSION,
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler serve                      one endpoint for all servers
  ostler tools                      what can be called
  ostler call demo__add a=2 b=40    call a tool
  ostler check                      all that is wrong with the config",
    after_help = "Without --config, the first of these is used: ./ostler.toml, ./.mcp.json, \
$XDG_CONFIG_HOME/ostler/ostler.toml. Without any, there is one built-in server, `demo`.

Exit codes: 0 ok, 1 unexpected, 2 usage, 3 config invalid, 4 daemon unreachable, 5 unknown or denied, 6 server unavailable, \
7 the tool reported an error, 8 outcome unknown (it may have been executed), 9 over budget, \
128 + N ended by signal N.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What goes with every command.
#[derive(Debug, Args)]
pub(crate) struct Shared {
    /// The config: an ostler.toml, or any JSON file with `mcpServers`
    #[arg(long, global = true, value_name = "FILE", display_order = 100)]
    pub(crate) config: Option<PathBuf>,
    /// The daemon to go through, such as http://127.0.0.1:7777
    #[arg(long, global = true, value_name = "URL", display_order = 101)]
    pub(crate) daemon: Option<Address>,
    /// Log to stderr what happens; OSTLER_LOG=FILTER says in which detail
    #[arg(short, long, global = true, display_order = 102)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Serve),
    /// Speak MCP on stdin and stdout, through the daemon
    #[command(
        help_template = TEMPLATE,
        before_help = "Examples:
  claude mcp add ostler ostler stdio
  ostler stdio --config ~/.cursor/mcp.json
  ostler stdio --token-file ~/.secrets/ci",
        after_help = "If no daemon runs for the config, one is started. It ends by itself when it was not \
used for ten minutes. All clients of a config share its servers.

With a token, in a file or in OSTLER_TOKEN, the client is the token's caller; without one it is `local`."
    )]
    Stdio {
        /// Be the caller of the token in this file
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    Worker(Worker),
    Call(Call),
    Tools(Tools),
    /// List the prompts of servers
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler prompts
  ostler prompts git --json")]
    Prompts(Offers),
    /// List the resources of servers, and the templates of such
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler resources
  ostler resources files --json | jq -r '.resources[].name'")]
    Resources(Offers),
    List(List),
    Status(Status),
    Warm(Warm),
    /// Start a server of the daemon
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler start time")]
    Start {
        /// The server
        server: String,
    },
    /// Stop a server of the daemon, until it is started again
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler stop time")]
    Stop {
        /// The server
        server: String,
    },
    /// Give a server a fresh process, or read the config again
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler reload time
  ostler reload                     the config",
        after_help = "Calls in flight finish on the old process. A server that was ejected is let in again.")]
    Reload {
        /// The server; without one, the config is read again
        server: Option<String>,
    },
    Logs(Logs),
    /// Make, list and revoke credentials of callers
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token create --name ci --role ci --expires 30d
  ostler token list
  ostler token revoke ci",
        after_help = "Tokens are kept per config, and only as a hash: a token that is lost is revoked and made \
anew. What was begun with a token ends when it is revoked or expires.",
        disable_help_subcommand = true)]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Set up the relay, through which workers elsewhere reach this host
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler relay nats-config --worker ci-7=ci --new-keys keys > nats.conf",
        disable_help_subcommand = true)]
    Relay {
        #[command(subcommand)]
        command: RelayCommand,
    },
    Audit(Audit),
    Check(Check),
    Explain(Explain),
    Lock(Lock),
    Diff(Diff),
    Approve(Approve),
    Trust(Trust),
    /// Print the JSON schema of ostler.toml
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler schema > ostler.schema.json")]
    Schema,
    /// Print completions for a shell
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler completions bash > /etc/bash_completion.d/ostler
  ostler completions fish > ~/.config/fish/completions/ostler.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler man | man -l -
  ostler man call | man -l -")]
    Man {
        /// The command it is about; without one, about ostler itself
        command: Option<String>,
    },
    /// Be the built-in MCP server, on stdin and stdout
    #[command(
        help_template = TEMPLATE,
        before_help = "Examples:
  ostler call demo__time            with no config, this server is used
  claude mcp add demo ostler demo   any client can use it too",
        after_help = "It has the tools `echo`, `add`, `sleep` and `time`, and speaks the MCP revisions \
2024-11-05 to 2026-07-28."
    )]
    Demo,
    /// Run a command, and end all its descendants with it (internal)
    #[command(hide = true, help_template = TEMPLATE, before_help = "Examples:
  ostler guard -- sh -c 'sleep 1000 & exit 3'")]
    Guard {
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
}

/// Serve all servers at one endpoint, until it is told to end
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler serve
  ostler serve --config ~/.cursor/mcp.json --listen 127.0.0.1:8000
  claude mcp add --transport http ostler http://127.0.0.1:7777/mcp",
    after_help = "The config is watched: an edit applies by itself, and servers that it does not touch keep \
their process. SIGHUP reads it again too. SIGTERM and Ctrl-C end the daemon and its servers in order, a second \
Ctrl-C at once.

With a daemon running for the same config, the other commands go through it."
)]
pub(crate) struct Serve {
    /// Where to listen, instead of what the config says; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = read_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Write the port into this file once it is listened on
    #[arg(long, value_name = "FILE")]
    pub(crate) port_file: Option<PathBuf>,
    /// End when nobody was attached or called for this long
    #[arg(long, hide = true, value_name = "TIME", value_parser = read_time)]
    pub(crate) linger: Option<Duration>,
    /// Serve the built-in server, whatever configs there are
    #[arg(long, hide = true)]
    pub(crate) builtin: bool,
    /// The config was found in a working directory, and needs `ostler trust`
    #[arg(long, hide = true)]
    pub(crate) found: bool,
    /// Threads that do the work
    #[arg(long, hide = true, value_name = "N", default_value_t = 1)]
    pub(crate) threads: usize,
}

/// Call a tool
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler call time__get_current_time timezone=UTC
  ostler call github__create_issue title='Hello' labels='[\"bug\"]' body=@body.md
  ostler call db__query --json '{\"sql\": \"select 1\"}' --timeout 5s
  generate | ostler call db__load --json -",
    after_help = "key=value takes the type that the tool asks for; where it says nothing, what reads as JSON is \
JSON and the rest is text. key:=JSON is JSON in any case, key=@FILE is the text of a file, key:=@FILE the JSON \
of a file.

Text goes to stdout as it is, except that a terminal is shown control characters as escapes; images and the \
like are named on stderr."
)]
pub(crate) struct Call {
    /// The tool, as `ostler tools` names it
    #[arg(value_name = "SERVER__TOOL")]
    pub(crate) tool: String,
    /// Arguments of the tool
    #[arg(value_name = "KEY=VALUE", conflicts_with = "json")]
    pub(crate) pairs: Vec<String>,
    /// All arguments as one JSON object; `-` reads stdin, `@FILE` a file
    #[arg(long, value_name = "OBJECT", allow_hyphen_values = true)]
    pub(crate) json: Option<String>,
    /// Give up after this long, such as 30s or 1m30s
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<Duration>,
    /// Print the whole result as the server sent it, byte for byte
    #[arg(long)]
    pub(crate) raw: bool,
}

/// List the tools that can be called
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler tools                      every server, one line per tool
  ostler tools time --full          one server, with arguments
  ostler tools --json | jq -r '.tools[].name'",
    after_help = "Without SERVER, a server whose tools are known from an earlier run is not started. With SERVER, \
that server is asked."
)]
pub(crate) struct Tools {
    /// Only the tools of this server
    pub(crate) server: Option<String>,
    /// Print JSON, with each definition as its server wrote it
    #[arg(long)]
    pub(crate) json: bool,
    /// Show whole descriptions, and arguments
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
}

/// Which servers' lists are shown, and how.
#[derive(Debug, Args)]
pub(crate) struct Offers {
    /// Only those of this server
    pub(crate) server: Option<String>,
    /// Print JSON, with each definition as its server wrote it
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the servers of the config; starts nothing
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler list
  ostler list --config ~/.cursor/mcp.json --json"
)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how the servers are
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler status
  ostler status --probe             do they start, and what do they say?
  ostler status time --probe --json",
    after_help = "With a daemon, this shows its servers as they are. Without one, servers live as long as the \
command that uses them, so between commands every server is idle.

With --probe, each server is started and asked for its tools; without a daemon it is then ended again."
)]
pub(crate) struct Status {
    /// Only this server
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Start each server and show what it says
    #[arg(long)]
    pub(crate) probe: bool,
    /// Show them again every second, until Ctrl-C; without a daemon they are kept up for it
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Download and start servers ahead of their first use
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler warm                       everything that the config names
  ostler warm memory time",
    after_help = "Servers behind npx, uvx, docker run and the like are downloaded by their package manager, one after the \
other for each of them. Each server is started once and asked for its tools, so that later lists have them at once. Without a \
daemon the servers are then ended again.

The exit code is 6 if any of them could not be started."
)]
pub(crate) struct Warm {
    /// These servers; all by default
    pub(crate) servers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a server of the daemon says on stderr
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler logs time
  ostler logs time --follow",
    after_help = "The last 64 KiB are kept of each process."
)]
pub(crate) struct Logs {
    /// The server
    pub(crate) server: String,
    /// Go on with what it says from now on, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Check the config, and say all that is wrong with it
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler check
  ostler check --config ~/.cursor/mcp.json",
    after_help = "It also looks whether commands exist, and whether references such as ${env:TOKEN} can be resolved, and whether \
rules of roles match anything that servers are known to have."
)]
pub(crate) struct Check {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    listen::parse(text).map_err(|error| format!("{error}, such as 127.0.0.1:7777"))
}

fn read_time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| format!("{error}, such as 30s"))?;
    if time.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
