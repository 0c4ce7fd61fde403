//! Minimal NATS client of an attacker.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::broker::password;

/// Longer than any reply of a NATS server takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connection to a NATS server.
pub(crate) struct NatsAttacker {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
    next: u32,
}

impl NatsAttacker {
    /// Connects as a user.
    pub(crate) fn connect(port: u16, user: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut client = Self { stream, lines, next: 1 };
        let login =
            json!({"user": user, "pass": password(user), "verbose": false, "lang": "t", "version": "1"});
        assert_eq!(client.say(&format!("CONNECT {login}\r\n")), None);
        client
    }

    /// Publishes a message; returns the server's error.
    pub(crate) fn publish(&mut self, subject: &str) -> Option<String> {
        self.say(&format!("PUB {subject} 2\r\n{{}}\r\n"))
    }

    /// Subscribes, perhaps in a queue group; returns the server's error.
    pub(crate) fn subscribe(&mut self, subject: &str) -> Option<String> {
        let number = self.next;
        self.next += 1;
        self.say(&format!("SUB {subject} {number}\r\n"))
    }

    /// Sends a line and waits until the server has processed it.
    fn say(&mut self, text: &str) -> Option<String> {
        self.stream.write_all(format!("{text}PING\r\n").as_bytes()).unwrap();
        let mut error = None;
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the server hung up: {error:?}");
            match line.trim_end() {
                "PONG" => return error,
                line => error = line.strip_prefix("-ERR ").map(str::to_owned).or(error),
            }
        }
    }
}
