//! Sessions whose server is played at the other end of two pipes. Only builds for fuzzing have them.

use std::sync::Arc;
use std::time::Duration;

use ostler_wire::{Hello, LineSplitter};
use tokio::net::unix::pipe;

use super::process::{Handle, Process};
use super::session::{Beginning, StdioSession};
use crate::upstream::Session;

/// A session that has shaken hands, with lines of at most `cap` bytes.
pub fn played(stdin: pipe::Sender, stdout: pipe::Receiver, hello: Hello, cap: usize) -> Arc<dyn Session> {
    let process = Process { stdin, stdout, handle: Handle::played() };
    let beginning = Beginning {
        hello,
        events: Arc::new(|_| {}),
        splitter: LineSplitter::new(cap),
        cap,
        patience: Duration::from_secs(60),
        is_confused: Arc::default(),
    };
    StdioSession::begin(process, beginning)
}
