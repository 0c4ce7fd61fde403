//! Web servers that are no MCP servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Self-signed certificate of `localhost` and its key, valid for a hundred years.
const SELF_SIGNED: &str = include_str!("self-signed.base64");

/// Answers every request with a head and a body; lives as long as the test.
pub(crate) fn serve(status: &'static str, headers: &'static str, body: &'static str) -> SocketAddr {
    accept(move |stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        while read_request(&mut reader).or_else(|_| refuse(&stream))? {
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
            (&stream).write_all(format!("{head}{body}").as_bytes())?;
        }
        Ok(())
    })
}

/// Answers bytes that are no HTTP, such as TLS, as web servers do.
fn refuse(mut stream: &TcpStream) -> std::io::Result<bool> {
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")?;
    Ok(false)
}

/// Serves TLS with a self-signed certificate.
pub(crate) fn serve_self_signed() -> SocketAddr {
    let mut lines = SELF_SIGNED.lines().map(|line| BASE64_STANDARD.decode(line).unwrap());
    let certificate = CertificateDer::from(lines.next().unwrap());
    let key = PrivatePkcs8KeyDer::from(lines.next().unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    let config = Arc::new(config);
    accept(move |mut stream| {
        let mut connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(())
    })
}

/// Returns an address where nothing listens.
pub(crate) fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn accept(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            // A client that hangs up ends its own connection and nothing else.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    address
}

/// Reads a request and its body; returns `false` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if let Some((_, value)) = line.to_ascii_lowercase().split_once("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            reader.take(length).read_to_end(&mut Vec::new())?;
            return Ok(true);
        }
    }
}
