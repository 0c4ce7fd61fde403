//! Demo server: the built-in MCP server, to try Ostler without any other.
//!
//! It speaks both eras on stdin and stdout, one JSON-RPC message per line, and needs nothing but this binary. A call
//! that sleeps has a thread of its own and can be cancelled; every other request is answered at once.

mod message;
mod tool;

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use message::{DemoMessage, DemoParams, DemoReply};
use ostler_wire::{
    INVALID_PARAMS, LEGACY_VERSIONS, METHOD_NOT_FOUND, MODERN_VERSION, PARSE_ERROR, UNSUPPORTED_VERSION,
};
use tool::{DemoOutcome, TOOLS};

/// Limit of a line, far above any request to the demo tools.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Limit of concurrent calls that sleep; each has a thread.
const MAX_SLEEPING_CALLS: usize = 64;

/// Cache lifetime (in milliseconds) and scope of results that never change.
const CACHE_MEMBERS: &str = r#","ttlMs":3600000,"cacheScope":"public""#;

/// Serves until the input ends.
pub(crate) fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let mut server = DemoServer { output: Arc::new(Mutex::new(Box::new(output))), sleeping: Arc::default() };
    let mut input = input;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        match line.last() {
            None => return Ok(()),
            Some(b'\n') => {}
            Some(_) if read as u64 == MAX_LINE_BYTES => return Err(io::Error::other("a line is too long")),
            Some(_) => {}
        }
        if !line.trim_ascii().is_empty() {
            server.handle_line(&line)?;
        }
    }
}

/// Output for replies from any thread.
type SharedOutput = Arc<Mutex<Box<dyn Write + Send>>>;

/// Sleeping calls, by the text of their id. Dropping an entry wakes its thread.
type SleepingCalls = Arc<Mutex<HashMap<String, Sender<()>>>>;

struct DemoServer {
    output: SharedOutput,
    sleeping: SleepingCalls,
}

impl DemoServer {
    fn handle_line(&mut self, line: &[u8]) -> io::Result<()> {
        let Ok(message) = serde_json::from_slice::<DemoMessage<'_>>(line) else {
            return send(
                &self.output,
                &DemoReply::error("null", PARSE_ERROR, "this is not a JSON-RPC message"),
            );
        };
        match (message.id, message.method.as_deref()) {
            (Some(id), Some(method)) => match DemoParams::read(message.params) {
                Some(params) => self.handle_request(id.get(), method, params),
                None => {
                    let reply =
                        DemoReply::error(id.get(), INVALID_PARAMS, "the parameters have another shape");
                    send(&self.output, &reply)
                }
            },
            (None, Some("notifications/cancelled")) => {
                if let Some(id) = DemoParams::read(message.params).and_then(|params| params.request_id) {
                    self.sleeping.lock().unwrap_or_else(PoisonError::into_inner).remove(id.get());
                }
                Ok(())
            }
            // Other notifications, and answers to requests that were never sent.
            _ => Ok(()),
        }
    }

    fn handle_request(&mut self, id: &str, method: &str, params: DemoParams) -> io::Result<()> {
        let is_modern = params.is_modern() || method == "server/discover";
        let reply = match params.refusal(is_modern) {
            Some(refusal) => refusal.reply(id),
            None => match (method, is_modern) {
                ("server/discover", _) => DemoReply::result(id, true, &discovery()),
                ("initialize", false) => DemoReply::result(id, false, &initialization(&params)),
                ("ping", false) => DemoReply::result(id, false, ""),
                ("tools/list", true) => {
                    DemoReply::result(id, true, &format!(r#""tools":[{TOOLS}]{CACHE_MEMBERS}"#))
                }
                ("tools/list", false) => DemoReply::result(id, false, &format!(r#""tools":[{TOOLS}]"#)),
                ("tools/call", _) => return self.call(id, is_modern, &params),
                (other, _) => DemoReply::error(id, METHOD_NOT_FOUND, &format!("unknown method `{other}`")),
            },
        };
        send(&self.output, &reply)
    }

    fn call(&mut self, id: &str, is_modern: bool, params: &DemoParams) -> io::Result<()> {
        let name = params.name.as_deref().unwrap_or_default();
        let reply = match tool::call_tool(name, params.arguments.as_deref()) {
            DemoOutcome::Unknown => DemoReply::error(id, INVALID_PARAMS, &format!("unknown tool `{name}`")),
            DemoOutcome::Text(text) => DemoReply::text(id, is_modern, &text, false),
            DemoOutcome::Failed(text) => DemoReply::text(id, is_modern, &text, true),
            DemoOutcome::Sleep(time) => return self.sleep(id, is_modern, time),
        };
        send(&self.output, &reply)
    }

    fn sleep(&mut self, id: &str, is_modern: bool, time: Duration) -> io::Result<()> {
        let (alarm, wake) = mpsc::channel();
        {
            let mut sleepers = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
            if sleepers.len() >= MAX_SLEEPING_CALLS {
                drop(sleepers);
                let text = format!("{MAX_SLEEPING_CALLS} calls are asleep already");
                return send(&self.output, &DemoReply::text(id, is_modern, &text, true));
            }
            sleepers.insert(id.to_owned(), alarm);
        }
        let (outlet, sleepers, id) = (Arc::clone(&self.output), Arc::clone(&self.sleeping), id.to_owned());
        std::thread::Builder::new().spawn(move || {
            if wake.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            sleepers.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            let text = format!("slept for {} seconds", time.as_secs_f64());
            // A failed write means that the client is gone.
            let _ = send(&outlet, &DemoReply::text(&id, is_modern, &text, false));
        })?;
        Ok(())
    }
}

fn send(outlet: &SharedOutput, reply: &DemoReply) -> io::Result<()> {
    let mut outlet = outlet.lock().unwrap_or_else(PoisonError::into_inner);
    outlet.write_all(reply.line().as_bytes())?;
    outlet.flush()
}

fn identity() -> String {
    format!(r#"{{"name":"ostler-demo","version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
}

fn discovery() -> String {
    let identity = identity();
    format!(
        r#""supportedVersions":["{MODERN_VERSION}"],"capabilities":{{"tools":{{}}}},"serverInfo":{identity}{CACHE_MEMBERS}"#
    )
}

/// Returns the result of `initialize`, with the requested version or the newest of that era.
fn initialization(params: &DemoParams) -> String {
    let wanted = params.protocol_version.as_deref().unwrap_or_default();
    let version = LEGACY_VERSIONS.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY_VERSIONS[0]);
    let identity = identity();
    format!(r#""protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{identity}"#)
}

#[cfg(test)]
mod tests;
