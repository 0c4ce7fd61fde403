//! Writer: sends all queued bytes in one write.

use std::io;
use std::sync::Arc;

use tokio::net::unix::pipe;

use super::multiplexer::{Multiplexer, WriteBatch};

/// Buffers that grew beyond this are freed after use.
const MAX_KEPT_CAPACITY: usize = 1 << 20;

/// Writes until the connection is closed or the pipe breaks.
pub(crate) async fn run(line: Arc<Multiplexer>) {
    let Some(stdin) = line.stdin() else { return };
    let mut bytes = Vec::new();
    let mut calls = Vec::new();
    loop {
        match line.take_batch(&mut bytes, &mut calls) {
            WriteBatch::Closed => return,
            WriteBatch::Empty => line.wake.notified().await,
            WriteBatch::Bytes => {
                let mut written = 0;
                if let Err(error) = write(&line, &stdin, &bytes, &mut written).await {
                    line.write_failed(&calls, written, &error);
                    return;
                }
            }
        }
        if bytes.capacity() > MAX_KEPT_CAPACITY {
            bytes = Vec::new();
        }
    }
}

/// Writes all bytes, or stops when the connection is closed meanwhile, so that a server that does not read can't keep
/// its stdin open.
async fn write(
    line: &Multiplexer,
    stdin: &pipe::Sender,
    bytes: &[u8],
    written: &mut usize,
) -> io::Result<()> {
    while *written < bytes.len() {
        match stdin.try_write(&bytes[*written..]) {
            Ok(n) => *written += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::select! {
                    ready = stdin.writable() => ready?,
                    // New frames notify as well; they go with the next batch.
                    () = line.wake.notified() => if line.stdin().is_none() { return Ok(()) },
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
