//! What was typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ostler_core::config::{duration, listen};

use crate::command::token;
use crate::reach::Address;
use crate::token::Budget;

/// Examples come before the rest: most people look for the one line to copy.
const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Run every MCP server once, supervised
#[derive(Debug, Parser)]
#[command(
    name = "ostler",
    version,
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
    Audit(Audit),
    Check(Check),
    Explain(Explain),
    Lock(Lock),
    Diff(Diff),
    Approve(Approve),
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

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    Create(NewToken),
    /// List tokens, without anything that would make one
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token list
  ostler token list --json | jq -r '.tokens[].name'")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, and end what was begun with it
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token revoke ci")]
    Revoke {
        /// The token
        name: String,
    },
}

/// Make a token, and print it this once
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler token create --name ci --role ci --expires 30d
  ostler token create --name ada --role researcher --budget 100/1h > ada.token"
)]
pub(crate) struct NewToken {
    /// What it is called
    #[arg(long, value_parser = token::read_name)]
    pub(crate) name: String,
    /// What its callers may do: a role of the config, or `local`
    #[arg(long, value_parser = token::read_name)]
    pub(crate) role: String,
    /// How long it is good, such as 30d; until it is revoked without this
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) expires: Option<Duration>,
    /// How many calls it may make in a sliding window, beside the budget of its role
    #[arg(long, value_name = "CALLS/TIME", value_parser = token::read_budget)]
    pub(crate) budget: Option<Budget>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who called what, and what came of it
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler audit --since 1h
  ostler audit --denied             what was refused, and by which rule
  ostler audit --tool git__git_log --caller ada --follow
  ostler audit --since 2026-07-28 --json > audit.jsonl",
    after_help = "It reads the file, with or without a daemon, and changes nothing. Rows of the kind `gap` say how \
many are missing there, whatever is asked for."
)]
pub(crate) struct Audit {
    /// Not before: a time ago such as 1h, or a moment such as 2026-07-28T12:00Z
    #[arg(long, value_name = "WHEN", value_parser = read_moment)]
    pub(crate) since: Option<SystemTime>,
    /// Before: likewise
    #[arg(long, value_name = "WHEN", value_parser = read_moment)]
    pub(crate) until: Option<SystemTime>,
    /// Only callers in this role
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Only this caller: `ada` is also `token:ada` and `jwt:ada`
    #[arg(long, value_name = "PRINCIPAL")]
    pub(crate) caller: Option<String>,
    /// Only this server
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// Only this tool, prompt or resource
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only what came to this: ok, tool-error, denied, cancelled, timed-out, ...
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Only what was refused by a rule or at the door
    #[arg(long)]
    pub(crate) denied: bool,
    /// The last N of them, 0 for all; 100 if not given, and all with --json
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Go on with what comes from now on, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
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

/// Pin the tools that servers offer now, in ostler.lock
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler lock                       servers that are not in it yet
  ostler lock time git              only these
  ostler lock --all                 take everything as it is now",
    after_help = "ostler.lock lies beside the config and is made to be committed. With one, a tool whose definition \
has changed, or that nobody has approved, is neither listed nor called. Servers that are in it and offer something \
else now are named and left alone: `ostler diff` shows what is different, `ostler approve` takes it."
)]
pub(crate) struct Lock {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    pub(crate) servers: Vec<String>,
    /// Also take what differs from what was approved, and drop servers that the config does not have
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how tools differ from what was approved
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler diff
  ostler diff github
  ostler diff --json | jq -r '.tools[].name'",
    after_help = "Words that are gone stand in [-…-], words that have come in {+…+}; a terminal shows colours instead. \
Characters that nobody sees are spelled out. Servers are started to be asked. Exit code 5 says that there is \
something to approve."
)]
pub(crate) struct Diff {
    /// Only the tools of this server
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Approve tools as their servers offer them now
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler approve github__create_issue
  ostler approve github             all that is new, changed or gone",
    after_help = "What is printed is what is written into ostler.lock, and nothing else. A running daemon takes it up at \
once."
)]
pub(crate) struct Approve {
    /// A tool as `ostler diff` names it, or all of a server
    #[arg(value_name = "SERVER[__TOOL]", required = true)]
    pub(crate) what: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say which rule decides whether a role may use something
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler explain researcher git__git_push
  ostler explain researcher docs/prompt:review
  ostler explain local files/resource:file:///etc/passwd --json
  ostler explain researcher git     may it see the server at all?",
    after_help = "It reads the config and starts nothing. Exits 0 if the role may, else 5."
)]
pub(crate) struct Explain {
    /// The role, as the config names it; `local` is for callers without a credential
    pub(crate) role: String,
    /// SERVER__TOOL, SERVER/prompt:NAME, SERVER/resource:URI, SERVER/method:METHOD, or SERVER
    #[arg(value_name = "WHAT")]
    pub(crate) what: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    listen::parse(text).map_err(|error| format!("{error}, such as 127.0.0.1:7777"))
}

/// A time ago, or a moment.
pub(crate) fn read_moment(text: &str) -> Result<SystemTime, String> {
    let ago = duration::parse(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let moment = ago.or_else(|| crate::clock::parse(text));
    moment
        .ok_or_else(|| "it is neither a time ago, such as 1h, nor a moment, such as 2026-07-28T12:00Z".into())
}

fn read_time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| format!("{error}, such as 30s"))?;
    if time.is_zero() { Err("no call is that fast".into()) } else { Ok(time) }
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
