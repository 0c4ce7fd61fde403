//! Metered socket: tells its connection when bytes arrive, and when the client stalls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection::HttpConnection;

/// Socket that records at its connection the bytes its client sends and takes.
pub(super) struct MeteredSocket {
    stream: TcpStream,
    connection: Arc<HttpConnection>,
}

impl MeteredSocket {
    pub(super) fn new(stream: TcpStream, connection: Arc<HttpConnection>) -> Self {
        Self { stream, connection }
    }

    fn record_write(&self, wrote: &Poll<io::Result<usize>>) {
        match wrote {
            Poll::Pending => self.connection.note_write(None),
            Poll::Ready(Ok(taken)) => self.connection.note_write(Some(*taken)),
            Poll::Ready(Err(_)) => {}
        }
    }
}

impl Drop for MeteredSocket {
    fn drop(&mut self) {
        // Bytes that the client has not taken would stay in the kernel's buffer until it does.
        if self.connection.is_stalled() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for MeteredSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() && buf.filled().len() > before {
            self.connection.note_read();
        }
        read
    }
}

impl AsyncWrite for MeteredSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.record_write(&wrote);
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.record_write(&wrote);
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushed only once every byte has been written.
        self.connection.note_flush();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
