//! Sessions for fuzzing: the server is the other end of two pipes. Only builds for fuzzing have them.

use std::sync::Arc;
use std::time::Duration;

use ostler_wire::{LineSplitter, ServerInfo};
use tokio::net::unix::pipe;

use super::process::{ProcessHandle, ServerProcess};
use super::session::{StdioSession, StdioSessionParts};
use crate::upstream::ServerSession;

/// Starts a session after its handshake, with lines of at most `cap` bytes.
pub fn fuzz_session(
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    server_info: ServerInfo,
    cap: usize,
) -> Arc<dyn ServerSession> {
    let process = ServerProcess { stdin, stdout, handle: ProcessHandle::for_fuzzing() };
    let parts = StdioSessionParts {
        server_info,
        notification_sink: Arc::new(|_| {}),
        splitter: LineSplitter::new(cap),
        cap,
        progress_extension: Duration::from_secs(60),
        has_ambiguous_requests: Arc::default(),
    };
    StdioSession::start(process, parts)
}
