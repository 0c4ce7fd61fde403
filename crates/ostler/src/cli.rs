//! Command line: its grammar, and the errors of its use.

mod help;
mod policy;
mod prompts_resources;
mod relay;
mod worker;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use ostler_core::config::duration;
use ostler_core::config::listen::{self, ListenError};

pub(crate) use self::help::{find as find_command, unknown_command};
pub(crate) use self::policy::{
    ApproveArgs, AuditArgs, DiffArgs, ExplainArgs, LockArgs, TokenCommand, TokenCreateArgs, TrustArgs,
};
pub(crate) use self::prompts_resources::{
    GetPromptArgs, ItemListArgs as OfferList, PromptsArgs, PromptsCommand, ReadResourceArgs, ResourcesArgs,
    ResourcesCommand,
};
pub(crate) use self::relay::{NatsConfigArgs, RelayCommand};
pub(crate) use self::worker::{BrokerLoginArgs, WorkerArgs};
use crate::api::ErrorResponse;
use crate::client::DaemonAddress;
use crate::completion;
use crate::failure::CommandFailure;
use crate::output;
use crate::time_text::{TimeArg, Zone};

/// Examples come before the rest: most people look for the one line to copy.
const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Run each MCP server once, supervised, for all your clients
#[derive(Debug, Parser)]
#[command(
    name = "ostler",
    version = crate::sabotage::VERSION,
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler tools                          list the tools of all servers
  ostler call demo__add a=2 b=40        call a tool
  ostler check                          find mistakes in the config
  ostler serve                          run all servers behind one endpoint
  claude mcp add ostler ostler stdio    connect a client, here Claude Code",
    after_help = "Without --config, Ostler looks for ostler.toml and then .mcp.json in this directory and in those above \
it up to the root of the repository (`.git`; without a repository, in this directory only), and then for \
$XDG_CONFIG_HOME/ostler/ostler.toml (~/.config). Any `mcpServers` file works as it is. Without a config there is one \
example server, `demo`.

Exit codes: 0 ok, 1 unexpected, 2 usage, 3 config invalid, 4 daemon unreachable, 5 unknown or denied, 6 server unavailable, \
7 the tool reported an error, 8 outcome unknown (it may have been executed), 9 over budget, \
128 + N ended by signal N.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) shared: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Returns the grammar of the command line, with its commands in groups.
pub(crate) fn clap_command() -> clap::Command {
    help::with_groups(Cli::command())
}

/// Reads the command line.
///
/// # Errors
///
/// Fails with the exit code where help was asked for or what was typed makes no sense, and has said so.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let read = clap_command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    read.map_err(report_usage_error)
}

/// What goes with every command.
#[derive(Debug, Args)]
pub(crate) struct GlobalOptions {
    /// Use this config: an ostler.toml, or any JSON file with `mcpServers`
    #[arg(long, global = true, value_name = "FILE", display_order = 100)]
    pub(crate) config: Option<PathBuf>,
    /// Use the daemon at this address, such as http://127.0.0.1:7777
    #[arg(long, global = true, value_name = "URL", display_order = 101)]
    pub(crate) daemon: Option<DaemonAddress>,
    /// Show times in UTC instead of local time
    #[arg(long, global = true, display_order = 102)]
    pub(crate) utc: bool,
    /// Log to stderr; OSTLER_LOG=FILTER sets the level
    #[arg(short, long, global = true, display_order = 103)]
    pub(crate) verbose: bool,
}

impl GlobalOptions {
    /// Returns the time zone in which times are shown to people.
    pub(crate) fn zone(&self) -> Zone {
        if self.utc { Zone::Utc } else { Zone::Local }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Serve(ServeArgs),
    /// Connect an MCP client over stdin and stdout
    #[command(
        help_template = TEMPLATE,
        before_help = "Examples:
  claude mcp add ostler ostler stdio        connect Claude Code
  ostler stdio --config ~/src/app/.mcp.json
  ostler stdio --token-file ~/.secrets/ci",
        after_help = "Clients start this command themselves; nobody types it. Most take it from their config file:
  {\"mcpServers\": {\"ostler\": {\"command\": \"ostler\", \"args\": [\"stdio\"]}}}

All clients of a config share one daemon and its servers. If none runs, one is started; it \
ends after ten minutes without use, and `ostler serve` takes over from it. If the daemon is replaced or killed, the client \
goes on with the next one.

A token, in a file or in OSTLER_TOKEN, gives the client the token's role. Without one its role is `local`."
    )]
    Stdio {
        /// Use the token in this file
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    Down(DownArgs),
    Worker(WorkerArgs),
    Call(CallArgs),
    Tools(ToolsArgs),
    Prompts(PromptsArgs),
    Resources(ResourcesArgs),
    List(ListArgs),
    Card(CardArgs),
    #[command(alias = "ps")]
    Status(StatusArgs),
    Daemons(DaemonsArgs),
    Warm(WarmArgs),
    /// Start a server now
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler start time", after_help = "A daemon must run (`ostler serve`): between commands no server runs that could be \
started. Calls start their servers by themselves.")]
    Start {
        /// The server to start
        #[arg(add = completion::servers())]
        server: String,
    },
    /// Stop a server, and keep it stopped until `ostler start`
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler stop time", after_help = "Calls in flight finish first. The other servers keep running, and so does \
the daemon; `ostler down` ends it.")]
    Stop {
        /// The server to stop
        #[arg(add = completion::servers())]
        server: String,
    },
    /// Restart a server: calls in flight have 5s to finish (`drain`)
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler restart time",
        after_help = "A server that failed too often and was ejected is tried again. `ostler reload SERVER` does the same.")]
    Restart {
        /// The server to restart
        #[arg(add = completion::servers())]
        server: String,
    },
    /// Read the config again; with SERVER, restart that server
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler reload                     read the config again
  ostler reload time                restart a server",
        after_help = "The daemon also reads the config by itself when the file changes. Servers that the edit does not \
touch keep their process.")]
    Reload {
        /// The server to restart; without one, the config is read again
        #[arg(add = completion::servers())]
        server: Option<String>,
    },
    Logs(LogsArgs),
    /// Create, list and revoke access tokens
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token create --name ci --role ci --expires 30d --out ci.token
  ostler token list
  ostler token revoke ci",
        after_help = "Tokens belong to a config. Only their hashes are kept, so a lost token can't be shown again: \
revoke it and create another. Calls and sessions of a token end when it is revoked or expires.",
        disable_help_subcommand = true)]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Set up the NATS relay for workers on other machines
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler relay nats-config --worker ci-7=ci --new-keys keys > nats.conf",
        disable_help_subcommand = true)]
    Relay {
        #[command(subcommand)]
        command: RelayCommand,
    },
    Audit(AuditArgs),
    Check(CheckArgs),
    Explain(ExplainArgs),
    Lock(LockArgs),
    Diff(DiffArgs),
    Approve(ApproveArgs),
    Trust(TrustArgs),
    /// Print the JSON schema of ostler.toml
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler schema > ostler.schema.json")]
    Schema,
    /// Print the completion script of a shell
    #[command(help_template = TEMPLATE, before_help = "Examples:
  source <(ostler completions bash)   in ~/.bashrc
  source <(ostler completions zsh)    in ~/.zshrc, after compinit
  ostler completions fish > ~/.config/fish/completions/ostler.fish",
        after_help = "TAB then completes commands, servers, tools and their arguments, roles and tokens. Tools are known \
after they have been listed once; no server is started to complete a line.")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of a command
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler man | man -l -
  ostler man call | man -l -")]
    Man {
        /// The command, such as `call` or `token create`; without one, ostler itself
        #[arg(add = completion::commands())]
        command: Vec<String>,
    },
    /// Show the help of a command
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler help
  ostler help call
  ostler help token create")]
    Help {
        /// The command, such as `call` or `token create`; without one, all commands
        #[arg(add = completion::commands())]
        command: Vec<String>,
    },
    /// Show the version
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler version
  ostler version --json | jq -r .target")]
    Version {
        /// Print JSON: version, commit if known, target
        #[arg(long)]
        json: bool,
    },
    /// Run the built-in example server on stdin and stdout
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
    /// A word that is no command
    #[command(external_subcommand)]
    Unknown(Vec<OsString>),
}

/// Run the daemon: all servers behind one endpoint
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler serve                              the config of this directory
  ostler serve --config ~/.cursor/mcp.json --listen 7790
  claude mcp add --transport http ostler http://127.0.0.1:7777/mcp",
    after_help = "The command prints the address for clients and runs until Ctrl-C; `ostler down` ends it from elsewhere.

An edit of the config applies by itself; servers that it does not touch keep their process. \
SIGHUP reads the config again. Ctrl-C and SIGTERM let calls finish and end the servers; a second Ctrl-C ends \
everything at once.

While the daemon runs, other commands for the same config use it."
)]
pub(crate) struct ServeArgs {
    /// Listen here instead of at the config's `listen`: a port of this machine, or an address with a port; 0 is a free port
    #[arg(long, alias = "port", short_alias = 'p', value_name = "[ADDR:]PORT", value_parser = read_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Write the port into this file when the daemon is listening
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

/// End the daemon of the config, and its servers
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler down
  ostler down --config ~/.cursor/mcp.json
  ostler down --all                 every daemon of this user on this machine",
    after_help = "Calls in flight have three seconds to finish. The command waits until the daemon is gone. It is no \
error if none runs."
)]
pub(crate) struct DownArgs {
    /// End every daemon of this user on this machine
    #[arg(long, conflicts_with_all = ["config", "daemon"])]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the daemons of this user on this machine
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler daemons
  ostler daemons --json | jq -r '.daemons[].url'",
    after_help = "There is one daemon for each config that is in use. One that `ostler stdio` started ends ten minutes \
after its last client has left; one that `ostler serve` started ends with Ctrl-C or `ostler down`."
)]
pub(crate) struct DaemonsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Call a tool
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler call time__get_current_time timezone=UTC
  ostler call github__create_issue title='Hello' labels='[\"bug\"]' body=@body.md
  ostler call db__query --args '{\"sql\": \"select 1\"}' --timeout 5s
  generate | ostler call db__load --args - --json | jq .structuredContent",
    after_help = "key=value takes the type that the tool asks for; where it says nothing, what reads as JSON is \
JSON and the rest is text. key:=JSON is JSON in any case, key=@FILE is the text of a file, key:=@FILE the JSON \
of a file.

Text goes to stdout as it is, except that a terminal is shown control characters as escapes; images and the \
like are named on stderr.

A terminal also shows progress, and what the server asks is asked there: Ctrl-D declines, Ctrl-C cancels. Without a \
terminal nothing is asked."
)]
pub(crate) struct CallArgs {
    /// The tool, as `ostler tools` names it
    #[arg(value_name = "SERVER__TOOL", add = completion::tools())]
    pub(crate) tool: String,
    /// Arguments of the tool
    #[arg(value_name = "KEY=VALUE", add = completion::tool_arguments())]
    pub(crate) pairs: Vec<String>,
    /// All arguments as one JSON object; `-` reads stdin, `@FILE` a file
    #[arg(long, value_name = "OBJECT", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,
    /// Print the whole result as JSON, byte for byte as the server sent it
    #[arg(long, alias = "raw")]
    pub(crate) json: bool,
    /// Give up after this long, such as 30s or 1m30s
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<Duration>,
}

/// List the tools that can be called
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler tools                      every server, one line per tool
  ostler tools time --full          one server, with arguments
  ostler tools time__get_time       one tool, in full
  ostler tools 'git__*'             tools whose name fits
  ostler tools --search create issue
  ostler tools --json | jq -r '.tools[].name'",
    after_help = "Without a name, a server whose tools are known from an earlier run is not started. A server that \
is named is asked.

The exit code is 6 if a server did not answer; what the others have is printed all the same."
)]
pub(crate) struct ToolsArgs {
    /// Servers, a tool such as time__now, time.now or `time now`, or a pattern with * and ?
    #[arg(value_name = "NAME", num_args = 0.., add = completion::servers_and_tools())]
    pub(crate) names: Vec<String>,
    /// Only tools with these words in their name, title or description, best ones first
    #[arg(long, value_name = "WORD", num_args = 1..)]
    pub(crate) search: Vec<String>,
    /// Print JSON, with each definition as its server wrote it
    #[arg(long)]
    pub(crate) json: bool,
    /// Show whole descriptions, and arguments
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
}

/// List the servers of the config, without starting any
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler list
  ostler list --config ~/.cursor/mcp.json --json"
)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the card of a server: what it publishes of itself
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler card weather
  ostler card weather --json | jq .card.remotes",
    after_help = "The card is read from `card` of the config, a file or an address, or else from `URL/server-card` of a \
remote server. The server is not started for it. Where a server runs and says something else than its card, there is \
a warning: a card is never a reason to trust a server.

The exit code is 6 if the card can't be read."
)]
pub(crate) struct CardArgs {
    /// The server whose card is shown
    #[arg(add = completion::servers())]
    pub(crate) server: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the state of servers (also: ps)
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler status
  ostler status time                details of one server
  ostler status --probe             start each server and ask for its tools
  ostler status time --probe --json",
    after_help = "Servers run in the daemon (`ostler serve`). Without a daemon each command starts the servers that it \
needs and ends them, so every server is idle here.

With --probe, each server is started and asked for its tools. Without a daemon it is then ended again.

`ostler ps` is the same command."
)]
pub(crate) struct StatusArgs {
    /// Only this server
    #[arg(add = completion::servers())]
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Start each server, and show whether it answers
    #[arg(long)]
    pub(crate) probe: bool,
    /// Show the servers every second until Ctrl-C; with --probe and no daemon they run as long
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Download and start servers ahead of their first use
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler warm                       all servers of the config
  ostler warm memory time",
    after_help = "npx, uvx, docker run and the like download a server at its first start; each of them downloads one \
server at a time. Each server is started once and asked for its tools, which later lists then have at once. Without a \
daemon the servers are then ended again.

The exit code is 6 if a server could not be started."
)]
pub(crate) struct WarmArgs {
    /// The servers to start; all by default
    #[arg(value_name = "SERVER", add = completion::servers())]
    pub(crate) servers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the stderr output of servers
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler logs                       all servers
  ostler logs time --follow         one server, and what it writes from now on
  ostler logs --since 10m -n 50
  ostler logs --self                the daemon's own log",
    after_help = "The daemon keeps the last 64 KiB that each server process wrote to stderr. It reads stderr only: stdout \
belongs to MCP.

`--self` shows the log of a daemon that `ostler stdio` started; `ostler serve` writes to its terminal."
)]
pub(crate) struct LogsArgs {
    /// Only these servers; all by default
    #[arg(value_name = "SERVER", add = completion::servers())]
    pub(crate) servers: Vec<String>,
    /// Show the last N lines
    #[arg(long, short = 'n', value_name = "N", alias = "tail")]
    pub(crate) lines: Option<usize>,
    /// Only from this time on: how long ago, such as 10m, or a date such as 2026-07-28T12:00
    #[arg(long, value_name = "WHEN", value_parser = TimeArg::parse)]
    pub(crate) since: Option<TimeArg>,
    /// Keep showing new lines until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print lines as servers wrote them, without time and server
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Show the log of the daemon itself
    #[arg(long = "self", conflicts_with_all = ["servers", "since"])]
    pub(crate) own: bool,
    /// Print JSON, one object per line: server, at, line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check the config, and report every mistake in it
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler check
  ostler check --config ~/.cursor/mcp.json",
    after_help = "Also checked: whether commands exist, whether references such as ${env:TOKEN} can be resolved, and \
whether the rules of roles match a known tool. No server is started."
)]
pub(crate) struct CheckArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reports a usage error, or shows the requested help. With `--json`, the error is printed as JSON on stdout too.
fn report_usage_error(mut error: clap::Error) -> ExitCode {
    // "to pass '--x' as a value, use '-- --x'": nothing here takes such values.
    error.remove(ContextKind::Suggested);
    let error = &error;
    if let Some(failure) = misplaced_arguments(error).or_else(|| dashed_argument(error)) {
        return failure.report();
    }
    if error.use_stderr() && output::is_json_wanted() {
        let text = error.render().to_string();
        let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
        let message = parts.next().unwrap_or_default();
        let hint = parts.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned));
        let hint = hint.or_else(|| hint_of_missing(error).map(str::to_owned));
        let usage = CommandFailure::Usage {
            what: message.trim_start_matches("error: ").to_owned(),
            hint: Some(hint.unwrap_or_else(|| "`--help` after the command shows what it takes".into())),
        };
        let _ = output::print_json(&ErrorResponse { error: (&usage).into() });
    }
    let _ = error.print();
    if let Some(hint) = hint_of_missing(error) {
        output::print_stderr(&format!("  hint: {hint}"));
    }
    // Clap's codes are 0 and 2.
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Hints about the values of missing arguments.
const SOURCES: [(&str, &str); 7] = [
    ("ostler call", "`ostler tools` lists the tools; call one with `ostler call SERVER__TOOL key=value`"),
    ("ostler prompts get", "`ostler prompts` lists the prompts"),
    ("ostler resources read", "`ostler resources` lists what can be read"),
    ("ostler token revoke", "`ostler token list` shows the tokens"),
    ("ostler approve", "`ostler diff` shows what there is to approve"),
    ("ostler explain", "a role, and what it may use: `ostler explain local SERVER__TOOL`"),
    ("<SERVER>", "`ostler list` shows the servers"),
];

/// Returns the hint for a missing argument.
fn hint_of_missing(error: &clap::Error) -> Option<&'static str> {
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let usage = usage.to_string();
    let source = SOURCES.iter().find(|(command, _)| usage.contains(command))?;
    (error.kind() == ErrorKind::MissingRequiredArgument).then_some(source.1)
}

/// Returns the error for `ostler call … --json='{…}'`: the flag takes no value, and the object has a flag of its own.
fn misplaced_arguments(error: &clap::Error) -> Option<CommandFailure> {
    let ContextValue::String(flag) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::String(value) = error.get(ContextKind::InvalidValue)? else { return None };
    let is_object = error.kind() == ErrorKind::TooManyValues && flag.starts_with("--json");
    let hint = format!("arguments as one object come by --args: --args '{}'", output::escape_line(value));
    is_object.then(|| CommandFailure::Usage {
        what: "--json takes no value: it prints JSON".into(),
        hint: Some(hint),
    })
}

/// Returns the error for `ostler call … --timezone UTC`: arguments of a tool or of a prompt are no options.
fn dashed_argument(error: &clap::Error) -> Option<CommandFailure> {
    let ContextValue::String(flag) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let usage = usage.to_string();
    let command =
        ["ostler call", "ostler prompts get"].into_iter().find(|command| usage.contains(command))?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let flag = flag.split('=').next()?;
    let key = flag.strip_prefix("--").filter(|key| !key.is_empty())?;
    let mut typed = std::env::args().skip_while(|typed| typed.split('=').next() != Some(flag));
    let first = typed.next()?;
    let value = match first.split_once('=') {
        Some((_, value)) => value.to_owned(),
        None => typed.next().filter(|next| !next.starts_with('-') && !next.contains('='))?,
    };
    let (flag, pair) = (output::escape_line(flag), output::escape_line(&format!("{key}={value}")));
    let hint = format!("if it is an argument, write {pair}; `{command} --help` shows the options");
    Some(CommandFailure::Usage { what: format!("there is no option `{flag}`"), hint: Some(hint) })
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    listen::parse(text).map_err(|error| match error {
        ListenError::AnyAddress(_) => error.to_string(),
        _ => format!("{error}, such as 7777 or 127.0.0.1:7777"),
    })
}

fn read_time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| format!("{error}, such as 30s"))?;
    if time.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        clap_command().debug_assert();
    }
}
