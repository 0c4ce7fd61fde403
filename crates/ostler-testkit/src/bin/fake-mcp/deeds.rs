//! The tools whose every execution is accounted for.

use std::time::Duration;

use crate::executions::Beginning;
use crate::perform::Call;
use crate::reply::Outcome;
use crate::script::Hint;
use crate::serve::Server;

/// A tool that takes its time and names its execution in the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) kind: Kind,
    /// The caller's number of the call; it comes back in the answer.
    pub(crate) nonce: Option<u64>,
    pub(crate) takes: Duration,
}

/// How a deed ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Without an answer, for as long as the file of `--sick-while` is there.
    Sick,
    /// With a result that may be remembered for its caller, so long.
    Secret {
        ttl_ms: i64,
    },
}

/// Begins a deed; its answer, and the line that says so, follow when it is done.
pub(crate) fn run(server: &mut Server, call: &Call<'_>, deed: &Deed) {
    let hint = match deed.kind {
        Kind::Secret { ttl_ms } => Some(Hint { ttl_ms, scope: Some("private".into()) }),
        Kind::Plain | Kind::Sick => None,
    };
    let ttl_ms = hint.as_ref().map(|hint| hint.ttl_ms);
    let beginning = Beginning { tool: call.params.subject(), nonce: deed.nonce, ttl_ms };
    let stamp = server.executions.begin(&beginning);
    let fails = deed.kind == Kind::Sick && is_sick(server);
    let nonce = deed.nonce.map_or(String::new(), |nonce| format!(r#""nonce":{nonce},"#));
    let proof = format!(r#"{{{nonce}"stamp":"{stamp}"}}"#);
    let line = match fails {
        true => Vec::new(),
        false => Outcome { hint: hint.as_ref(), ..Outcome::object(&proof) }.line(call.id, call.era),
    };
    let ending = server.executions.ending(&stamp, fails);
    server.delivery.finish(deed.takes, call.id, line, ending);
}

fn is_sick(server: &Server) -> bool {
    server.script.sick_while.as_ref().is_none_or(|file| file.exists())
}
