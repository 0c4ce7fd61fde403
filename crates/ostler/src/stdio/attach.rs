//! Connection of a client to its daemon.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ostler_core::config;
use ostler_host::{VIA_HEADER, VIA_VARIABLE};

use super::daemon_finder::DaemonConnection;
use super::{FAREWELL_HEADER, MAX_MESSAGE_HEADER, PROTOCOL, TOKEN_HEADER};
use crate::client::DaemonAddress;
use crate::daemon_proof::{self, ProofChallenge};
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::workspace;

/// Timeout of the daemon's response to an attach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound on the head of its response.
const MAX_HEAD_BYTES: u64 = 16 << 10;

/// Tokens of a client: the admin token that authorizes the connection, and the token of its caller.
#[derive(Debug)]
pub(super) struct AttachTokens<'a> {
    pub(super) admin: Option<String>,
    pub(super) caller: Option<&'a str>,
}

/// Opens a connection for the client's bytes; returns it with the bytes that have come already. Tokens are sent only
/// after the daemon has proven its identity on that connection.
pub(super) fn attach(
    address: &DaemonAddress,
    tokens: &AttachTokens<'_>,
) -> Result<DaemonConnection, CommandFailure> {
    let unreachable = |why: String| CommandFailure::Unreachable { url: address.to_string(), why };
    let lost = |error: io::Error| unreachable(error.to_string());
    let mut reader = connect(address).map_err(lost)?;
    let Some(admin) = tokens.admin.as_deref() else { return Err(admin_token_refused(address)) };
    let challenge = ProofChallenge::new().map_err(CommandFailure::Machine)?;
    let body = ask_for_proof(&mut reader, address, &challenge).map_err(lost)?;
    if !challenge.verify(admin, &body) {
        return Err(address.unproven_failure());
    }
    let callers = tokens.caller.map(|token| format!("{TOKEN_HEADER}: {token}\r\n"));
    let callers = callers.unwrap_or_default();
    let via = std::env::var(VIA_VARIABLE).ok().filter(|via| via.bytes().all(|byte| byte.is_ascii_graphic()));
    let via = via.map(|via| format!("{VIA_HEADER}: {via}\r\n")).unwrap_or_default();
    let workspace = workspace::current_dir().map(|folder| format!("{}: {folder}\r\n", workspace::HEADER));
    let workspace = workspace.unwrap_or_default();
    let opened = (|| -> io::Result<String> {
        let host = address.host();
        reader.get_mut().write_all(
            format!(
                "GET /api/v1/attach HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {admin}\r\n{callers}{via}{workspace}\
                 {FAREWELL_HEADER}: 1\r\nConnection: upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n"
            )
            .as_bytes(),
        )?;
        let head = read_head(&mut reader)?;
        reader.get_ref().set_read_timeout(None)?;
        Ok(head)
    })();
    let head = opened.map_err(lost)?;
    match head.split_whitespace().nth(1) {
        Some("101") => {
            let limit =
                header(&head, MAX_MESSAGE_HEADER).unwrap_or(config::GatewayConfig::default().max_body);
            Ok(DaemonConnection { reader, url: address.to_string(), max_message: limit })
        }
        Some("401") => Err(admin_token_refused(address)),
        Some("503") if head.to_ascii_lowercase().contains("\r\nconnection: close\r\n") => {
            Err(unreachable(daemon_proof::OVERLOADED.into()))
        }
        Some("503") => Err(unreachable("it is ending, or has no room".into())),
        Some("508") => Err(CommandFailure::Loop),
        Some("403") if tokens.caller.is_some() => Err(CommandFailure::Refused {
            what: "the token is not valid".into(),
            hint: Some(format!(
                "{} shows which tokens there are, and until when they are good",
                command("token list")
            )),
        }),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(unreachable(format!("what is there does not speak like a daemon: {line}")))
        }
    }
}

fn connect(address: &DaemonAddress) -> io::Result<BufReader<TcpStream>> {
    let mut addresses = address.authority().to_socket_addrs()?;
    let nobody = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let stream = TcpStream::connect_timeout(&addresses.next().ok_or_else(nobody)?, ATTACH_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ATTACH_TIMEOUT))?;
    Ok(BufReader::new(stream))
}

fn admin_token_refused(address: &DaemonAddress) -> CommandFailure {
    CommandFailure::Refused {
        what: "the admin token is missing or wrong".into(),
        hint: Some(address.token_hint().into()),
    }
}

/// Sends a challenge; returns the body of the response, empty if that can't be a proof.
fn ask_for_proof(
    reader: &mut BufReader<TcpStream>,
    address: &DaemonAddress,
    challenge: &ProofChallenge,
) -> io::Result<Vec<u8>> {
    let (target, host) = (challenge.target(), address.host());
    reader.get_mut().write_all(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let head = read_head(reader)?;
    if head.split_whitespace().nth(1) == Some("503") {
        return Err(io::Error::other(daemon_proof::OVERLOADED));
    }
    let length = header(&head, "content-length");
    let mut body = vec![0; length.filter(|length| *length <= daemon_proof::MAX_PROOF_BYTES).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// Returns the number in a header of an HTTP response.
fn header(head: &str, wanted: &str) -> Option<usize> {
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    let mut values = headers.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    values.next()?.trim().parse().ok()
}

/// Reads the head of an HTTP response; what follows it stays in the reader.
fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = String::new();
    let mut reader = reader.take(MAX_HEAD_BYTES);
    loop {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        if head.ends_with("\r\n\r\n") {
            return Ok(head);
        }
    }
}
