//! `ostler stdio`: forwarding between an MCP client's pipes and the daemon.
//!
//! ```text
//! stdin ──thread──▶ client_session.rs ──▶ daemon     forwarding.rs: each direction has its own thread
//! stdout ◀──main──  client_session.rs ◀── daemon     and waits for nothing else
//!                     │ connection lost
//!                     └▶ daemon_finder.rs: the next daemon, found or started ─▶ attach.rs
//! ```
//!
//! A client that stops reading while it writes blocks only itself. No runtime is started: one such process runs for
//! every client, and most of them are idle.

mod attach;
mod client_session;
mod daemon_finder;
mod forwarding;

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use self::daemon_finder::{DaemonConnection, DaemonFinder};
use crate::config_file::{self, FoundConfig};
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::print_stderr;
use crate::{cli, stdio_failure};

/// Header with the token of the client's caller, beside the admin token.
pub(crate) const TOKEN_HEADER: &str = "ostler-token";
/// Variable with such a token.
pub(crate) const TOKEN_VARIABLE: &str = "OSTLER_TOKEN";
/// Upper bound on a token file.
const MAX_TOKEN_BYTES: u64 = 32 << 10;

/// Protocol that the connection is upgraded to.
pub(crate) const PROTOCOL: &str = "ostler-stdio";
/// Header of a client that is a command of this program, which gets results and errors in full.
pub(crate) const COMMANDS_HEADER: &str = "ostler-commands";
/// Header of a client that understands [`FAREWELL`].
pub(crate) const FAREWELL_HEADER: &str = "ostler-farewell";
/// Header of the daemon's response: the upper bound on a message, in bytes. The client's pipe refuses longer ones.
pub(crate) const MAX_MESSAGE_HEADER: &str = "ostler-max-message";
/// Line of a daemon that ends: it finishes the requests it has, and the client continues with another daemon. Every
/// other line is JSON.
pub(crate) const FAREWELL: &str = "farewell";

/// Attaches stdin and stdout to the daemon of a config, and to the next one if that ends. Starts a daemon if none runs.
pub(crate) fn run(
    shared: &cli::GlobalOptions,
    token_file: Option<&Path>,
) -> Result<ExitCode, CommandFailure> {
    match attach_first(shared, token_file) {
        Ok((finder, first)) => forwarding::run(finder, first).map(|()| ExitCode::SUCCESS),
        Err(failure) => Ok(stdio_failure::report_and_answer(&failure)),
    }
}

fn attach_first(
    shared: &cli::GlobalOptions,
    token_file: Option<&Path>,
) -> Result<(DaemonFinder, DaemonConnection), CommandFailure> {
    let callers = read_token(token_file)?;
    let found = config_file::find(shared.config.as_deref())?;
    if let (FoundConfig::NotFound(places), None) = (&found, &shared.daemon) {
        let daemons = config_file::describe_daemons();
        let daemons = daemons.map(|daemons| format!("\n  hint: {daemons}")).unwrap_or_default();
        print_stderr(&format!(
            "warning: no config found, so there is only the built-in server `demo`\n  looked for: {places}\n  hint: write \
             an ostler.toml in your project, or start it as `ostler stdio --config FILE`{daemons}"
        ));
    }
    let mut finder = DaemonFinder::new(found, shared.daemon.clone(), callers);
    let first = finder.first()?;
    Ok((finder, first))
}

/// Reads the token of the client's caller. An unreadable token is an error: the client must not become another caller.
pub(crate) fn read_token(file: Option<&Path>) -> Result<Option<String>, CommandFailure> {
    let text = match file {
        Some(file) => config_file::read_named_at_most(file, MAX_TOKEN_BYTES).map_err(|why| {
            CommandFailure::Unreadable {
                file: file.to_owned(),
                why: why.to_string(),
                hint: "name a file that holds a token, as `ostler token create` prints it",
            }
        })?,
        None => match std::env::var_os(TOKEN_VARIABLE) {
            Some(text) => text.to_string_lossy().into_owned(),
            None => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = "the token is no word of printable characters".into();
        return Err(CommandFailure::Usage {
            what,
            hint: Some(format!("{} makes one", command("token create"))),
        });
    }
    Ok(Some(token.to_owned()))
}

/// Copies bytes as they come: a message must not wait for the next.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..read])?;
        to.flush()?;
    }
}
