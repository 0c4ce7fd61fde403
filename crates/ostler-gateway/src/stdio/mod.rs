//! MCP over a pair of pipes: one message per line, both eras on one connection.
//!
//! ```text
//! reader ─ LineSplitter ─ stream_connection.rs ─┬─ request ─ a task each ─┐
//!                                               ├─ notification           ├─▶ frame channel ─▶ writer task ─ writer
//!                                               └─ answer of the client   │
//!                                                  frames of requests ────┘
//! ```
//!
//! Reading never waits for writing: a client that writes an answer while it does not read must still be heard.

mod stream_connection;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_wire::{Frame, LineSplitter, Oversize, error_code};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::stream_connection::StreamConnection;
use crate::auth::Authenticated;
use crate::client_request::GatewayReply;
use crate::command_extensions::CommandExtensions;
use crate::gateway::Gateway;
use ostler_host::Scope;

/// Frames that wait for a client that reads slowly. Answers wait until there is space, notifications are dropped.
const MAX_QUEUED_FRAMES: usize = 1_024;

/// Time after which a connection whose client reads nothing counts as broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are read ahead while a session is being opened: enough to notice the end of the input behind the first
/// requests.
const MAX_READ_AHEAD: usize = 64 * 1024;

/// Timeout for the last answers to be written when no further message can come.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a burst of frames that are written at once.
const MAX_WRITE: usize = 64 * 1024;

impl Gateway {
    /// Serves MCP to one client until its input has ended and every request is answered. Requests still in flight a
    /// minute later are cancelled, as they are when the output breaks or the future is dropped. Ends at once on a
    /// machine without randomness.
    pub fn serve_stream<R, W>(
        &self,
        reader: R,
        writer: W,
        caller: Caller,
        scope: Scope,
    ) -> impl Future<Output = ()> + Send + use<R, W>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_stream_with(reader, writer, caller.into(), scope, std::future::pending())
    }

    /// Serves a client whose credential can end, and that understands one more line. When `farewell` is ready its line
    /// is sent between two messages, and later messages of the client are answered as before. When the credential ends
    /// no more messages are taken, and requests in flight are answered: with an error if it was revoked.
    pub fn serve_stream_with<R, W, F>(
        &self,
        reader: R,
        writer: W,
        admitted: Authenticated,
        scope: Scope,
        farewell: F,
    ) -> impl Future<Output = ()> + Send + use<R, W, F>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Bytes> + Send + 'static,
    {
        let (line, frames) = mpsc::channel(MAX_QUEUED_FRAMES);
        let link = StreamConnection::new(self.clone(), admitted, scope, line);
        serve_connection((reader, writer), link, frames, farewell)
    }

    /// Serves MCP to a command of the program that contains the gateway, until the command leaves; that cancels its
    /// requests in flight. Results and errors are not translated. The caller of this function has to ensure that the
    /// client is the operator.
    pub fn serve_commands<R, W>(
        &self,
        reader: R,
        writer: W,
        caller: Caller,
        commands: Arc<dyn CommandExtensions>,
    ) -> impl Future<Output = ()> + Send + use<R, W>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (line, frames) = mpsc::channel(MAX_QUEUED_FRAMES);
        let link = StreamConnection::for_commands(self.clone(), caller, commands, line);
        serve_connection((reader, writer), link, frames, std::future::pending())
    }
}

/// Reads and writes until the client has gone.
async fn serve_connection<R, W>(
    (reader, writer): (R, W),
    link: Option<StreamConnection>,
    frames: mpsc::Receiver<Bytes>,
    farewell: impl Future<Output = Bytes>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Some(mut link) = link else { return };
    // In a set of its own so that dropping the future ends it as well.
    let mut writing = JoinSet::new();
    writing.spawn(write_frames(writer, frames));
    tokio::select! {
        () = read_lines(reader, &mut link, farewell) => {}
        _ = writing.join_next() => {}
    }
    link.end().await;
    // The last sender of the channel is dropped, so the writer ends after the queued frames.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, writing.join_next()).await;
}

/// Reads and handles lines until the client has gone, or has closed its input and got its answers.
async fn read_lines(
    mut reader: impl AsyncRead + Unpin,
    link: &mut StreamConnection,
    farewell: impl Future<Output = Bytes>,
) {
    let (mut farewell, mut credential_ended) = (pin!(farewell), pin!(link.credential_ended()));
    let (mut is_told, mut is_credential_ended) = (false, false);
    let mut lines = LineSplitter::new(link.max_line());
    let mut end = None;
    loop {
        // Lines that need a session wait until it is open.
        while !link.is_initializing()
            && !is_credential_ended
            && let Some(frame) = lines.next_frame().or_else(|| end.and_then(|_| lines.finish()))
        {
            if !handle_frame(link, frame).await {
                return;
            }
        }
        if end.is_some() && !link.is_busy() {
            return;
        }
        let may_read = end.is_none() && (!link.is_initializing() || lines.buffer().len() < MAX_READ_AHEAD);
        tokio::select! {
            read = reader.read_buf(lines.buffer()), if may_read => {
                if let Ok(0) | Err(_) = read {
                    end = Some(Instant::now() + link.input_end_timeout());
                    link.close_input();
                }
            }
            () = &mut credential_ended, if !is_credential_ended => {
                is_credential_ended = true;
                end.get_or_insert(Instant::now() + link.input_end_timeout());
                link.close_input();
            }
            () = link.join_next(), if link.is_busy() => {}
            line = &mut farewell, if !is_told => {
                is_told = true;
                if !link.send_line(line).await {
                    return;
                }
            }
            () = sleep_until(end), if end.is_some() => return,
        }
    }
}

/// Sleeps until a moment, or for ever if there is none.
async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Takes one line; false if the client is gone.
async fn handle_frame(link: &mut StreamConnection, frame: Frame) -> bool {
    match frame {
        Frame::Line(line) => link.handle_line(line).await,
        Frame::Oversize(Oversize { request_id: request, .. }) => {
            let why = format!("a message has at most {} bytes", link.max_line());
            link.send_reply(&GatewayReply::refusal(error_code::INVALID_REQUEST, &why), request.as_ref()).await
        }
    }
}

/// Writes frames until the line is closed and empty, or the client does not
/// take them.
async fn write_frames(mut writer: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    let mut burst = Vec::new();
    while let Some(frame) = frames.recv().await {
        push_line(&mut burst, &frame);
        while burst.len() < MAX_WRITE
            && let Ok(frame) = frames.try_recv()
        {
            push_line(&mut burst, &frame);
        }
        let written = tokio::time::timeout(WRITE_TIMEOUT, async {
            writer.write_all(&burst).await?;
            writer.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            return;
        }
        // One huge answer must not stay allocated for the rest of the connection.
        burst.clear();
        burst.shrink_to(MAX_WRITE);
    }
}

fn push_line(out: &mut Vec<u8>, frame: &[u8]) {
    out.extend_from_slice(frame);
    out.push(b'\n');
}
