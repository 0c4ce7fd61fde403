//! Commands of policy: tokens, roles, pins, trust and the audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{TEMPLATE, read_time};
use crate::command::token;
use crate::completion;
use crate::time_text::TimeArg;
use crate::token::TokenBudget;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token list
  ostler token list --json | jq -r '.tokens[].name'")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, and end its calls and sessions
    #[command(help_template = TEMPLATE, before_help = "Examples:
  ostler token revoke ci")]
    Revoke {
        /// The name of the token
        #[arg(add = completion::tokens())]
        name: String,
    },
}

/// Create a token, and show it once
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler token create --name ci --role ci --expires 30d
  ostler token create --name ada --role researcher --budget 100/1h
  ostler token create --name ci --role ci --out ~/.secrets/ci",
    after_help = "`ostler stdio --token-file FILE` and `ostler worker --token-file FILE` read a token from a file. HTTP clients \
send it as `Authorization: Bearer TOKEN`."
)]
pub(crate) struct TokenCreateArgs {
    /// The name of the token, for `list` and `revoke`
    #[arg(long, value_parser = token::read_name)]
    pub(crate) name: String,
    /// The role of its callers: one of the config, or `local`
    #[arg(long, value_parser = token::read_name, add = completion::roles())]
    pub(crate) role: String,
    /// Expire after this long, such as 30d; without it, good until revoked
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(crate) expires: Option<Duration>,
    /// Allow at most so many calls in a time, beside the budget of its role
    #[arg(long, value_name = "CALLS/TIME", value_parser = token::read_budget)]
    pub(crate) budget: Option<TokenBudget>,
    /// Write the token into this file, which only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the file of --out
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show calls and events: time, caller, tool, outcome
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler audit --since 1h
  ostler audit --denied             refused calls, and the rule that refused them
  ostler audit --tool git__git_log --caller ada --follow
  ostler audit --since 2026-07-28 --json > audit.jsonl",
    after_help = "The audit is read from its file, so no daemon is needed. A row of the kind `gap` tells how many rows \
are missing at that point; filters don't leave it out."
)]
pub(crate) struct AuditArgs {
    /// Only from this time on: how long ago, such as 1h, or a date such as 2026-07-28T12:00
    #[arg(long, value_name = "WHEN", value_parser = TimeArg::parse)]
    pub(crate) since: Option<TimeArg>,
    /// Only before this time, written likewise
    #[arg(long, value_name = "WHEN", value_parser = TimeArg::parse)]
    pub(crate) until: Option<TimeArg>,
    /// Only callers in this role
    #[arg(long, add = completion::roles())]
    pub(crate) role: Option<String>,
    /// Only this caller: `ada` is also `token:ada` and `jwt:ada`
    #[arg(long, value_name = "PRINCIPAL")]
    pub(crate) caller: Option<String>,
    /// Only this server
    #[arg(long, add = completion::servers())]
    pub(crate) server: Option<String>,
    /// Only this tool, prompt or resource
    #[arg(long, add = completion::tools())]
    pub(crate) tool: Option<String>,
    /// Only this outcome: ok, tool-error, denied, cancelled, timed-out, ...
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Only what was refused: by a rule, or for its credential
    #[arg(long)]
    pub(crate) denied: bool,
    /// Show the last N rows, 0 for all; 100 by default, all with --json
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Keep showing new rows until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Pin the current tools of servers in ostler.lock
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler lock                       pin servers that are not pinned yet
  ostler lock time git              only these servers
  ostler lock --all                 pin all servers as they are now",
    after_help = "ostler.lock lies beside ostler.toml, FILE.ostler.lock beside any other config; commit it. With it, a tool, prompt or resource whose definition \
changed, or was never approved, is neither listed nor called, and changed instructions are withheld. Servers that \
changed since they were pinned are named and left alone: `ostler diff` shows the change, `ostler approve` accepts it."
)]
pub(crate) struct LockArgs {
    /// Only these servers
    #[arg(value_name = "SERVER", add = completion::servers())]
    pub(crate) servers: Vec<String>,
    /// Also accept changes of pinned servers, and drop servers that the config no longer has
    #[arg(long)]
    pub(crate) all: bool,
    /// Also pin definitions that raise an alarm, such as hidden text
    #[arg(long)]
    pub(crate) alarming: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how tools changed since they were approved
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler diff
  ostler diff github
  ostler diff --json | jq -r '.tools[].name'",
    after_help = "Removed words stand in [-…-], added words in {+…+}; a terminal shows colours instead. Invisible \
characters are spelled out. Servers are started to be asked. Each name is followed by the hash of its definition, and \
`ostler approve` accepts only definitions that were shown here. Exit code 5: there is something to approve."
)]
pub(crate) struct DiffArgs {
    /// Only this server
    #[arg(add = completion::servers())]
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Approve changes that `ostler diff` has shown
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler approve github__create_issue@3f9c2a7d10b4e685
  ostler approve github__create_issue   as the last `ostler diff` showed it
  ostler approve github                 all changes of a server
  ostler approve github/instructions github/prompt:review",
    after_help = "A hash, as `ostler diff` prints it, names one definition exactly. Without a hash, what the last \
`ostler diff` showed is approved. If the server has changed since, nothing is approved. A running daemon uses the \
approval at once."
)]
pub(crate) struct ApproveArgs {
    /// A name as `ostler diff` prints it, or a server for all its changes
    #[arg(value_name = "SERVER[__TOOL][@HASH]", required = true, add = completion::servers_and_tools())]
    pub(crate) what: Vec<String>,
    /// Also approve definitions that raise an alarm, such as hidden text
    #[arg(long)]
    pub(crate) alarming: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Allow the config of a directory to run its commands
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler trust                      the config in this directory
  ostler trust ~/src/project
  ostler trust --list
  ostler trust --revoke ~/src/project",
    after_help = "A config that was found in the working directory, not named with --config, runs nothing until it is \
trusted. Trust covers its path and its present commands, variables, addresses and included files. After an edit of \
those, trust it again; an edit of roles and limits needs no new trust. A running daemon then applies the edit."
)]
pub(crate) struct TrustArgs {
    /// The directory; this one if not given
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// List the trusted configs
    #[arg(long, conflicts_with_all = ["folder", "revoke"])]
    pub(crate) list: bool,
    /// Stop trusting the config of the directory
    #[arg(long)]
    pub(crate) revoke: bool,
}

/// Show which rule allows or denies a role a tool
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler explain researcher git__git_push
  ostler explain researcher docs/prompt:review
  ostler explain local files/resource:file:///etc/passwd --json
  ostler explain researcher git     may the role see the server at all?",
    after_help = "Only the config is read; no server is started. The exit code is 0 if the role may, else 5."
)]
pub(crate) struct ExplainArgs {
    /// A role of the config; `local` is the role of callers without a token
    #[arg(add = completion::roles())]
    pub(crate) role: String,
    /// SERVER__TOOL, SERVER/prompt:NAME, SERVER/resource:URI, SERVER/method:METHOD, or SERVER
    #[arg(value_name = "WHAT", add = completion::servers_and_tools())]
    pub(crate) what: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
