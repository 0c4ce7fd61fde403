//! Commands about who may call what: tokens, roles, pins and the audit.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use ostler_core::config::duration;

use super::{TEMPLATE, read_time};
use crate::command::token;
use crate::token::Budget;

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

/// Pin what servers offer now, in ostler.lock
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler lock                       servers that are not in it yet
  ostler lock time git              only these
  ostler lock --all                 take everything as it is now",
    after_help = "ostler.lock lies beside the config and is made to be committed. With one, a tool, \
prompt or resource whose definition has changed, or that nobody has approved, is neither listed nor used, and changed \
instructions are withheld. Servers that are in it and offer something \
else now are named and left alone: `ostler diff` shows what is different, `ostler approve` takes it."
)]
pub(crate) struct Lock {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    pub(crate) servers: Vec<String>,
    /// Also take what differs from what was approved, and drop servers that the config does not have
    #[arg(long)]
    pub(crate) all: bool,
    /// Also take definitions with alarms
    #[arg(long)]
    pub(crate) alarming: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how servers differ from what was approved
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler diff
  ostler diff github
  ostler diff --json | jq -r '.tools[].name'",
    after_help = "Words that are gone stand in [-…-], words that have come in {+…+}; a terminal shows colours instead. \
Characters that nobody sees are spelled out. Servers are started to be asked. Behind each name stands the short hash of what an approval would write, \
and `ostler approve` takes nothing that was not shown here. Exit code 5 says that there is something to approve."
)]
pub(crate) struct Diff {
    /// Only this server
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Approve definitions that `ostler diff` has shown
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler approve github__create_issue@3f9c2a7d10b4e685
  ostler approve github__create_issue   as the last `ostler diff` has shown it
  ostler approve github                 all that it has shown: new, changed or gone
  ostler approve github/instructions github/prompt:review",
    after_help = "A hash, as `ostler diff` prints it, names exactly one definition. Without one the last `ostler diff` counts. \
A server that offers something else by now is refused, and nothing is written. A running daemon takes it up at once."
)]
pub(crate) struct Approve {
    /// A name as `ostler diff` prints it, or all of a server
    #[arg(value_name = "SERVER[__TOOL][@HASH]", required = true)]
    pub(crate) what: Vec<String>,
    /// Also approve definitions with alarms
    #[arg(long)]
    pub(crate) alarming: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Consent to the config in a directory: its commands may run
#[derive(Debug, Args)]
#[command(
    help_template = TEMPLATE,
    before_help = "Examples:
  ostler trust                      the config in this directory
  ostler trust ~/src/project
  ostler trust --list
  ostler trust --revoke ~/src/project",
    after_help = "A config that Ostler finds in the working directory, and that was not named with --config, runs nothing \
before it is trusted. Consent is for its path and for the commands, variables, addresses and included files that it \
has now; an edit of those needs it again, an edit of roles and limits does not. A running daemon takes up an edit that \
waited for it."
)]
pub(crate) struct Trust {
    /// The directory; this one if not given
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Print the configs that are trusted
    #[arg(long, conflicts_with_all = ["folder", "revoke"])]
    pub(crate) list: bool,
    /// Take consent back
    #[arg(long)]
    pub(crate) revoke: bool,
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

/// A time ago, or a moment.
pub(crate) fn read_moment(text: &str) -> Result<SystemTime, String> {
    let ago = duration::parse(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let moment = ago.or_else(|| crate::clock::parse(text));
    moment
        .ok_or_else(|| "it is neither a time ago, such as 1h, nor a moment, such as 2026-07-28T12:00Z".into())
}
