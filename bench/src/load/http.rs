//! Minimal HTTP client: one connection, one request at a time.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A connection to the daemon.
pub(crate) struct LoadConnection {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, with its body.
#[derive(Debug)]
pub(crate) struct LoadAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl LoadAnswer {
    /// Returns whether it is the result of a request.
    pub(crate) fn is_result(&self) -> bool {
        self.status == 200 && contains(&self.body, b"\"result\"")
    }

    /// Returns whether it is `overloaded` with a time to retry.
    pub(crate) fn is_overloaded(&self) -> bool {
        contains(&self.body, b"\"overloaded\"") && contains(&self.body, b"\"retryAfterMs\"")
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl LoadConnection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Opens a connection with the smallest receive buffer, for a client that does not read.
    pub(crate) async fn open_narrow(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4_096)?;
        Ok(Self { stream: socket.connect(address).await?, buffer: Vec::new() })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn request(&mut self, request: &[u8]) -> io::Result<LoadAnswer> {
        self.stream.write_all(request).await?;
        self.read_answer().await
    }

    pub(crate) async fn read_answer(&mut self) -> io::Result<LoadAnswer> {
        let mut answer = self.read_head().await?;
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().map_err(io::Error::other)?;
            while self.buffer.len() < length {
                self.fill().await?;
            }
            answer.body = self.buffer.drain(..length).collect();
        } else if answer.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.read_chunk().await? {
                answer.body.extend(chunk);
            }
        }
        Ok(answer)
    }

    pub(crate) async fn read_head(&mut self) -> io::Result<LoadAnswer> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(LoadAnswer { status, head, body: Vec::new() })
    }

    /// Returns the next chunk of a stream; `None` at its end.
    pub(crate) async fn read_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let at = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            self.fill().await?;
        };
        let line = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
        let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        while self.buffer.len() < at + 2 + length + 2 {
            self.fill().await?;
        }
        let chunk = self.buffer[at + 2..at + 2 + length].to_vec();
        self.buffer.drain(..at + length + 4);
        Ok((length > 0).then_some(chunk))
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    find(text, wanted).is_some()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
