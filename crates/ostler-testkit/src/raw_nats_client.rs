//! NATS client that checks nothing but the lengths of what it sends.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::nats::NatsServer;

/// Heads of messages that a NATS server passes on although they are malformed.
pub const MALFORMED_HEADERS: [&[u8]; 9] = [
    b"NATS/1.0\r\nOstler-Kind: a\rb\r\n\r\n",
    b"NATS/1.0\r\nOstler-Kind: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nno name\x01: x\r\n\r\n",
    b"NATS/1.0 12\r\n\r\n",
    b"NATS/1.0 abc what\r\n\r\n",
    b"HTTP/1.1 200\r\n\r\n",
    b"\r\n",
    b"\0",
];

/// Last tokens of subjects that a NATS server passes on although no name holds such bytes.
pub const MALFORMED_TOKENS: [&[u8]; 5] = [b"\xff", "\u{a0}x\u{3000}".as_bytes(), b"a\rb", b"\x0b", b"\0"];

/// A connection over which any bytes can be sent.
#[derive(Debug)]
pub struct RawNatsClient(BufReader<TcpStream>);

impl RawNatsClient {
    /// Connects as a user with a password, or without credentials.
    pub async fn connect(server: &NatsServer, user: Option<(&str, &str)>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await.expect("a connection");
        let mut client = Self(BufReader::new(stream));
        let user =
            user.map(|(user, pass)| format!(r#","user":"{user}","pass":"{pass}""#)).unwrap_or_default();
        client.send(format!("CONNECT {{\"verbose\":false,\"headers\":true{user}}}\r\n").as_bytes()).await;
        client
    }

    /// Publishes with or without a head and waits until the server has accepted the message.
    pub async fn publish(&mut self, subject: &[u8], head: &[u8], body: &[u8]) {
        let (head_length, length) = (head.len(), head.len() + body.len());
        let lengths = match head_length {
            0 => format!(" {length}\r\n"),
            _ => format!(" {head_length} {length}\r\n"),
        };
        let verb: &[u8] = if head.is_empty() { b"PUB " } else { b"HPUB " };
        self.send(&[verb, subject, lengths.as_bytes(), head, body, b"\r\nPING\r\n"].concat()).await;
        let mut line = String::new();
        while line != "PONG\r\n" {
            line.clear();
            let length = self.0.read_line(&mut line).await.expect("a line of the server");
            assert!(length > 0 && !line.starts_with("-ERR"), "the server does not pass it on: {line}");
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.expect("a server that listens");
    }
}
