//! Minimal HTTP client of the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longer than any request here takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Header lines, unparsed.
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends one request: `GET /path`, with header lines and a body.
pub(crate) fn ask(port: u16, line: &str, headers: &[&str], body: &str) -> Answer {
    let mut reader = open(port, line, headers, body);
    let mut head = String::new();
    reader.read_line(&mut head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let (mut length, mut head) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text).unwrap();
    Answer { status, head, text: String::from_utf8(text).unwrap() }
}

/// Sends a request and leaves the answer to be read.
pub(crate) fn open(port: u16, line: &str, headers: &[&str], body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = match headers.iter().any(|header| header.starts_with("Host:")) {
        true => String::new(),
        false => format!("Host: 127.0.0.1:{port}\r\n"),
    };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("{line} HTTP/1.1\r\n{host}{headers}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    BufReader::new(stream)
}
