//! HTTP client of a daemon: consecutive requests of a command share one connection.
//!
//! The daemon proves itself before every request, on the connection that the request is sent on. A kept
//! connection that has ended is detected by that, and replaced.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use ostler_core::loopback::is_loopback_authority;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::daemon_proof::{self, ProofChallenge};
use crate::failure::CommandFailure;
use crate::stdio::COMMANDS_HEADER;
use crate::{instance, workspace};

/// Timeout of a connection attempt; the daemon is on this machine, or near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the daemon's proof. The proof costs it nothing, but it may be busy.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);
/// Retries of a request whose connection the daemon evicted for another client.
const MAX_RETRIES: u32 = 6;
/// Longest first pause before a retry; each later one is up to twice as long as the one before.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Longest response that is read: a result may have 16 MiB, and more by config.
pub(super) const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Connection without a request in flight.
type HttpSender = http1::SendRequest<Full<Bytes>>;

/// Connection of the last request, kept for the next one.
#[derive(Debug, Default)]
pub(super) struct KeptConnection(Mutex<Option<HttpSender>>);

impl KeptConnection {
    /// Takes the connection, unless it has ended.
    fn take(&self) -> Option<HttpSender> {
        self.slot().take().filter(|sender| !sender.is_closed())
    }

    fn put(&self, sender: HttpSender) {
        *self.slot() = Some(sender);
    }

    fn slot(&self) -> MutexGuard<'_, Option<HttpSender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Address of a daemon: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonAddress {
    authority: String,
    /// Value of the Host header. The admin API accepts names of this machine only.
    host: String,
}

impl FromStr for DaemonAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err("the address of a daemon begins with http://".into());
        };
        let authority = rest.trim_end_matches('/');
        let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) if !authority.contains(['/', '?', '#', '@', ' ']) => {
                Ok(Self { authority: authority.to_owned(), host: authority.to_owned() })
            }
            _ => Err("the address of a daemon is a host and a port, such as http://127.0.0.1:7777".into()),
        }
    }
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl DaemonAddress {
    /// Returns the address of a daemon of this machine, on whichever interface it listens.
    pub(crate) fn local(url: &str) -> Option<Self> {
        let address: Self = url.parse().ok()?;
        let (_, port) = address.authority.rsplit_once(':')?;
        let host = format!("localhost:{port}");
        Some(Self { host, ..address })
    }

    /// Returns the daemon's host name.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns `HOST:PORT`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns whether the address is of this machine, without asking a name server.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback_authority(&self.authority)
    }

    /// Returns the failure of a daemon that does not know the admin token.
    pub(crate) fn unproven_failure(&self) -> CommandFailure {
        CommandFailure::Refused {
            what: format!("{self} does not know this admin token, so the token was not sent"),
            hint: Some(format!("if that is your daemon, {}", self.token_hint())),
        }
    }

    /// Returns the remedy when the daemon wants another token.
    pub(crate) fn token_hint(&self) -> &'static str {
        match self.is_loopback() {
            true => "give the token in OSTLER_ADMIN_TOKEN, or the daemon's config with --config",
            false => "give the token of that machine's daemon in OSTLER_ADMIN_TOKEN",
        }
    }
}

/// Failure of a request without a response.
#[derive(Debug)]
pub(super) enum HttpError {
    /// Nothing was sent: the process that listens there does not know the token.
    Unproven,
    /// Nothing was sent.
    NotSent(String),
    /// Nothing was executed: the daemon had no connection for the request, or evicted its connection before it was
    /// sent.
    Overloaded(String),
    /// The request may have arrived.
    OutcomeUnknown(String),
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct HttpRequest<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a str>,
    pub(super) kept: &'a KeptConnection,
    pub(super) body: Bytes,
    /// Timeout of the whole response, or of its head if only that is awaited.
    pub(super) timeout: Duration,
    /// Protocol to upgrade the connection to.
    pub(super) upgrade: Option<&'static str>,
}

/// Sends a request and reads the whole response.
pub(super) async fn fetch(
    address: &DaemonAddress,
    ask: HttpRequest<'_>,
) -> Result<(StatusCode, Bytes), HttpError> {
    let kept = ask.kept;
    with_timeout(ask.timeout, async {
        let (response, sender) = send_with_retries(address, ask).await?;
        let answer = read(response).await?;
        kept.put(sender);
        Ok(answer)
    })
    .await
}

/// Sends a request and waits for the head of the response. Reading the body has no timeout; the connection ends with
/// it.
pub(super) async fn send_for_head(
    address: &DaemonAddress,
    ask: HttpRequest<'_>,
) -> Result<Response<Incoming>, HttpError> {
    with_timeout(ask.timeout, async { Ok(send_with_retries(address, ask).await?.0) }).await
}

/// Reads the rest of a response.
pub(super) async fn read_response(
    response: Response<Incoming>,
    patience: Duration,
) -> Result<(StatusCode, Bytes), HttpError> {
    with_timeout(patience, read(response)).await
}

pub(super) async fn with_timeout<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    timeout(patience, work)
        .await
        .unwrap_or_else(|_| Err(HttpError::OutcomeUnknown("it does not answer".into())))
}

async fn read(response: Response<Incoming>) -> Result<(StatusCode, Bytes), HttpError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    Ok((status, body.map_err(|error| HttpError::OutcomeUnknown(error.to_string()))?.to_bytes()))
}

/// Sends a request, and retries if its connection was evicted. A request that may have arrived is retried only if it
/// changes nothing.
async fn send_with_retries(
    address: &DaemonAddress,
    ask: HttpRequest<'_>,
) -> Result<(Response<Incoming>, HttpSender), HttpError> {
    for repeat in 0..MAX_RETRIES {
        match send(address, ask.clone()).await {
            Err(HttpError::Overloaded(_)) => {}
            Err(HttpError::OutcomeUnknown(_)) if ask.method == Method::GET => {}
            outcome => return outcome,
        }
        let chance = instance::random().map_or(u8::MAX, |bytes| bytes[0]);
        sleep(retry_delay(repeat, chance)).await;
    }
    send(address, ask).await
}

/// Returns the pause before a retry: random, so that many clients do not retry at once.
fn retry_delay(repeat: u32, chance: u8) -> Duration {
    FIRST_RETRY_DELAY * 2_u32.pow(repeat) * u32::from(chance) / u32::from(u8::MAX)
}

async fn connect(address: &DaemonAddress) -> Result<HttpSender, HttpError> {
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(&address.authority)).await {
        Ok(connected) => connected.map_err(|error| HttpError::NotSent(error.to_string()))?,
        Err(_) => return Err(HttpError::NotSent("it does not answer".into())),
    };
    let _ = stream.set_nodelay(true);
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| HttpError::Overloaded(error.to_string()))?;
    // Ends with the sender or the server, whichever ends first.
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

async fn send(
    address: &DaemonAddress,
    ask: HttpRequest<'_>,
) -> Result<(Response<Incoming>, HttpSender), HttpError> {
    let before = |error: &dyn fmt::Display| HttpError::NotSent(error.to_string());
    let crowded = |error: hyper::Error| HttpError::Overloaded(error.to_string());
    let head = |method: Method, target: &str| {
        let head = Request::builder().method(method).uri(target).header(header::HOST, &address.host);
        head.header(header::CONTENT_TYPE, "application/json")
    };
    // Without a token there is no proof, so the end of a kept connection would not be noticed in time.
    let kept = ask.token.and_then(|_| ask.kept.take());
    let mut sender = match kept {
        Some(sender) => sender,
        None => connect(address).await?,
    };
    let mut request = head(ask.method, ask.path);
    if let Some(token) = ask.token {
        let challenge = ProofChallenge::new().map_err(|error| before(&error))?;
        let asked = head(Method::GET, &challenge.signed_target(token)).body(Full::default());
        let asked = asked.map_err(|error| before(&error))?;
        let proving = async {
            sender.ready().await.map_err(crowded)?;
            let answer = sender.send_request(asked).await.map_err(crowded)?;
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                return Err(HttpError::Overloaded(daemon_proof::OVERLOADED.into()));
            }
            match Limited::new(answer.into_body(), daemon_proof::MAX_PROOF_BYTES).collect().await {
                Ok(body) => Ok(challenge.verify(token, &body.to_bytes())),
                // Longer than any proof.
                Err(error) if error.is::<LengthLimitError>() => Ok(false),
                Err(error) => Err(HttpError::Overloaded(error.to_string())),
            }
        };
        match timeout(PROOF_TIMEOUT, proving).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(HttpError::Unproven),
            Ok(Err(lost)) => return Err(lost),
            Err(_) => return Err(HttpError::NotSent("it does not answer".into())),
        }
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        if let Some(folder) =
            workspace::current_dir().and_then(|it| HeaderValue::from_bytes(it.as_bytes()).ok())
        {
            request = request.header(workspace::HEADER, folder);
        }
    }
    if let Some(protocol) = ask.upgrade {
        request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, protocol);
        request = request.header(COMMANDS_HEADER, "1");
    }
    let request = request.body(Full::new(ask.body)).map_err(|error| before(&error))?;
    // The same connection: another process could have taken the port by now.
    sender.ready().await.map_err(crowded)?;
    let after = |error: hyper::Error| match error.is_canceled() {
        true => HttpError::Overloaded(error.to_string()),
        false => HttpError::OutcomeUnknown(error.to_string()),
    };
    let response = sender.send_request(request).await.map_err(after)?;
    match is_overload_refusal(&response) {
        true => Err(HttpError::Overloaded(daemon_proof::OVERLOADED.into())),
        false => Ok((response, sender)),
    }
}

/// Returns whether the daemon has refused the request for want of connections: only then does it close the connection
/// with a 503.
fn is_overload_refusal(response: &Response<Incoming>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE
        && response.headers().get(header::CONNECTION).is_some_and(|value| value == "close")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Behaviour of a test daemon towards one connection.
    #[derive(Clone, Copy)]
    enum ConnectionBehaviour {
        /// Closes it before a request.
        Evict,
        /// Refuses it for want of connections.
        Refuse,
        /// Closes it after a request.
        Break,
        /// Proves itself if challenged, and answers `{}`.
        Serve,
    }

    /// Runs a test daemon; returns its address and the remaining behaviours.
    async fn daemon(
        deeds: &[ConnectionBehaviour],
    ) -> (DaemonAddress, Arc<Mutex<VecDeque<ConnectionBehaviour>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let left = Arc::new(Mutex::new(VecDeque::from(deeds.to_vec())));
        let deeds = Arc::clone(&left);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let deed = deeds.lock().unwrap().pop_front().unwrap_or(ConnectionBehaviour::Evict);
                let _ = play(stream, deed).await;
            }
        });
        (address, left)
    }

    async fn play(stream: TcpStream, deed: ConnectionBehaviour) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        if let ConnectionBehaviour::Evict = deed {
            return Ok(());
        }
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            let nonce = head.split_once("nonce=").map(|(_, rest)| &rest[..64]);
            let body = match (deed, nonce) {
                (ConnectionBehaviour::Evict | ConnectionBehaviour::Break, _) => return Ok(()),
                (ConnectionBehaviour::Refuse, _) => {
                    let refusal = b"HTTP/1.1 503 Full\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                    return stream.write_all(refusal).await;
                }
                (ConnectionBehaviour::Serve, Some(nonce)) => {
                    serde_json::to_string(&daemon_proof::DaemonProof::answer("secret", nonce).unwrap())
                        .unwrap()
                }
                (ConnectionBehaviour::Serve, None) => "{}".to_owned(),
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await?;
        }
    }

    fn ask<'a>(kept: &'a KeptConnection, method: Method, token: Option<&'a str>) -> HttpRequest<'a> {
        let patience = Duration::from_secs(60);
        HttpRequest { method, path: "/x", token, kept, body: Bytes::new(), timeout: patience, upgrade: None }
    }

    #[tokio::test]
    async fn a_command_whose_connection_goes_to_another_client_tries_again() {
        let (address, left) = daemon(&[
            ConnectionBehaviour::Evict,
            ConnectionBehaviour::Refuse,
            ConnectionBehaviour::Break,
            ConnectionBehaviour::Serve,
        ])
        .await;
        let (status, body) =
            fetch(&address, ask(&KeptConnection::default(), Method::POST, Some("secret"))).await.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"{}"[..]));
        assert!(left.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn requests_that_follow_one_another_share_a_connection_while_it_lasts() {
        let (address, left) = daemon(&[ConnectionBehaviour::Serve, ConnectionBehaviour::Serve]).await;
        let kept = KeptConnection::default();
        for _ in 0..3 {
            fetch(&address, ask(&kept, Method::POST, Some("secret"))).await.unwrap();
        }
        assert_eq!(left.lock().unwrap().len(), 1);
        // The daemon closes it.
        drop(kept.take());
        fetch(&address, ask(&kept, Method::POST, Some("secret"))).await.unwrap();
        assert!(left.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn only_a_request_that_changes_nothing_is_sent_again_when_it_may_have_arrived() {
        let (address, left) = daemon(&[ConnectionBehaviour::Break, ConnectionBehaviour::Serve]).await;
        let lost = fetch(&address, ask(&KeptConnection::default(), Method::POST, None)).await.unwrap_err();
        assert!(matches!(lost, HttpError::OutcomeUnknown(_)), "{lost:?}");
        assert_eq!(left.lock().unwrap().len(), 1);
        let (address, _) = daemon(&[ConnectionBehaviour::Break, ConnectionBehaviour::Serve]).await;
        fetch(&address, ask(&KeptConnection::default(), Method::GET, None)).await.unwrap();
    }

    #[tokio::test]
    async fn a_daemon_without_a_connection_is_given_up_after_some_tries() {
        let (address, left) = daemon(&[ConnectionBehaviour::Refuse; 20]).await;
        let lost =
            fetch(&address, ask(&KeptConnection::default(), Method::POST, Some("secret"))).await.unwrap_err();
        assert!(matches!(lost, HttpError::Overloaded(why) if why == daemon_proof::OVERLOADED));
        assert_eq!(left.lock().unwrap().len(), 20 - 1 - MAX_RETRIES as usize);
    }

    #[test]
    fn pauses_grow_and_are_spread() {
        assert_eq!(retry_delay(0, 0), Duration::ZERO);
        assert_eq!(retry_delay(0, u8::MAX), FIRST_RETRY_DELAY);
        assert_eq!(retry_delay(3, u8::MAX), FIRST_RETRY_DELAY * 8);
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["http://127.0.0.1:7777", "http://localhost:1/", "http://[::1]:7777"] {
            let address: DaemonAddress = good.parse().unwrap();
            assert_eq!(address.to_string(), good.trim_end_matches('/'));
        }
        for bad in
            ["", "127.0.0.1:7777", "https://x:1", "http://x", "http://x:1/mcp", "http://u@x:1", "http://x:y"]
        {
            assert!(bad.parse::<DaemonAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_taken_for_such() {
        let is_loopback = |text: &str| text.parse::<DaemonAddress>().unwrap().is_loopback();
        for here in
            ["http://127.0.0.1:1", "http://LOCALHOST:1", "http://[::1]:1", "http://[::ffff:127.0.0.1]:1"]
        {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in [
            "http://192.0.2.1:1",
            "http://localhost.evil.example:1",
            "http://127.0.0.1.evil.example:1",
            "http://[::]:1",
        ] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }
}
