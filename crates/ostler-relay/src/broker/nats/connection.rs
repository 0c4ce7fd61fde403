//! Makes one connection to a NATS server, and knows when it is over.
//!
//! The client library would make a lost connection again by itself, and send
//! then what was handed to it meanwhile. A call must not leave that late, so
//! here a client is one connection: as soon as it is made, the client is told
//! that its server is at an address where nobody can be. So it ends when the
//! connection does, with all that had not left yet.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};
use tokio::sync::{broadcast, watch};

use super::codec;
use super::options::{Credentials, NatsOptions, parse_address};
use crate::broker::{BrokerConnectError, Denial};

/// How long all addresses together may take. A little less than whoever waits
/// for the connection gives it, so that the reason is still heard.
const CONNECT: Duration = Duration::from_millis(4_500);

/// The least that one address gets.
const MIN_ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// A peer that says nothing is asked after this, and three unanswered questions
/// end the connection: within ten seconds.
const PING: Duration = Duration::from_secs(3);

/// Messages that wait to be written. Whoever has another one waits for room.
const OUTGOING: usize = 512;

/// Messages that wait for a slow reader, for each subscription; more are
/// dropped. A quarter of a second of what a host can answer at most.
const BACKLOG: usize = 4_096;

/// Denials that wait for whoever listens to them.
const DENIALS: usize = 1_024;

/// How long the last messages may take to leave when it is closed.
const CLOSE: Duration = Duration::from_secs(2);

/// No server is here: no program can listen on that port.
const UNREACHABLE_ADDRESS: &str = "nats://127.0.0.1:0";

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct NatsConnection {
    /// Whom to talk to.
    pub(crate) client: Client,
    state: Arc<NatsConnectionState>,
}

/// What is known of a connection.
#[derive(Debug)]
struct NatsConnectionState {
    /// Why it is over, if it is.
    closed: watch::Sender<Option<String>>,
    denials: broadcast::Sender<Denial>,
    /// What the server complained of last.
    last_error: Mutex<Option<String>>,
    /// Messages that came faster than they were read.
    dropped: AtomicU64,
}

impl NatsConnection {
    /// Waits until it is over, and says why.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let mut over = self.state.closed.subscribe();
        async move {
            let why = over.wait_for(Option::is_some).await;
            why.ok().and_then(|why| why.clone()).unwrap_or_default()
        }
    }

    /// Whether it is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.closed.borrow().is_some()
    }

    /// What the server does not let us do.
    pub(crate) fn denials(&self) -> broadcast::Receiver<Denial> {
        self.state.denials.subscribe()
    }

    /// Ends it; what was handed over before may still leave.
    pub(crate) fn close(&self) {
        self.state.mark_closed("it was closed");
    }
}

/// Makes a connection.
pub(crate) async fn connect_once(options: &NatsOptions) -> Result<NatsConnection, BrokerConnectError> {
    let addresses = addresses(options)?;
    let state = Arc::new(NatsConnectionState {
        closed: watch::Sender::new(None),
        denials: broadcast::Sender::new(DENIALS),
        last_error: Mutex::default(),
        dropped: AtomicU64::new(0),
    });
    let each = (CONNECT / u32::try_from(addresses.len()).unwrap_or(u32::MAX)).max(MIN_ADDRESS_TIMEOUT);
    let listener = NatsEventListener(Arc::clone(&state));
    let nats = ConnectOptions::new()
        .name(&options.name)
        .custom_inbox_prefix(&options.inbox_prefix)
        .connection_timeout(each)
        .max_reconnects(addresses.len())
        .ignore_discovered_servers()
        .ping_interval(PING)
        .client_capacity(OUTGOING)
        .subscription_capacity(BACKLOG)
        // Subjects are made of names and tokens that fit, or came from the server.
        .skip_subject_validation(true)
        .event_callback(move |event| {
            listener.on_event(event);
            std::future::ready(())
        });
    let nats = with_tls(with_credentials(nats, options).await?, options).await?;
    let client = nats.connect(addresses).await.map_err(|error| connect_error(&error))?;
    if client.set_server_pool(UNREACHABLE_ADDRESS).await.is_err() {
        return Err(BrokerConnectError::Unreachable("the connection was lost at once".into()));
    }
    let line = NatsConnection { client, state };
    tokio::spawn(drain_when_closed(line.client.clone(), line.ended()));
    Ok(line)
}

/// Ends the client with the connection, whoever still holds a part of it.
async fn drain_when_closed(client: Client, ended: impl Future<Output = String>) {
    ended.await;
    let _ = tokio::time::timeout(CLOSE, client.drain()).await;
}

fn addresses(options: &NatsOptions) -> Result<Vec<ServerAddr>, BrokerConnectError> {
    if options.servers.is_empty() {
        return Err(BrokerConnectError::Unreachable("no address of a NATS server is given".into()));
    }
    let addresses = options.servers.iter().map(|server| parse_address(server));
    addresses.collect::<Result<_, _>>().map_err(|error| BrokerConnectError::Unreachable(error.to_string()))
}

/// Files are read for each connection: one that was exchanged counts.
async fn with_credentials(
    nats: ConnectOptions,
    options: &NatsOptions,
) -> Result<ConnectOptions, BrokerConnectError> {
    let named = match &options.credentials {
        Credentials::None => options.credentials_in_address().unwrap_or_default(),
        given => given.clone(),
    };
    Ok(match named {
        Credentials::None => nats,
        Credentials::Password { user, password } => nats.user_and_password(user, password),
        Credentials::Token(token) => nats.token(token),
        Credentials::Nkey(file) => {
            let seed = read("the seed of the nkey", &file).await?;
            let seed = seed.trim();
            nkeys::KeyPair::from_seed(seed)
                .map_err(|error| unusable("the seed of the nkey", &file, &error))?;
            nats.nkey(seed.to_owned())
        }
        Credentials::Creds(file) => {
            let text = read("the credentials", &file).await?;
            nats.credentials(&text).map_err(|error| unusable("the credentials", &file, &error))?
        }
    })
}

async fn with_tls(
    mut nats: ConnectOptions,
    options: &NatsOptions,
) -> Result<ConnectOptions, BrokerConnectError> {
    // The first one counts, and it is the same everywhere.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = &options.tls;
    for (what, file) in [("the CA", &tls.ca), ("the certificate", &tls.cert), ("the key", &tls.key)] {
        if let Some(file) = file {
            // The library reads it again, and would not say which one it can't read.
            read(what, file).await?;
        }
    }
    if let Some(ca) = &tls.ca {
        nats = nats.add_root_certificates(ca.clone());
    }
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => nats = nats.add_client_certificate(cert.clone(), key.clone()),
        (None, None) => {}
        (Some(_), None) => {
            return Err(BrokerConnectError::Credentials("there is a certificate without its key".into()));
        }
        (None, Some(_)) => {
            return Err(BrokerConnectError::Credentials("there is a key without its certificate".into()));
        }
    }
    Ok(nats.require_tls(tls.is_required))
}

async fn read(what: &str, file: &Path) -> Result<String, BrokerConnectError> {
    let path: PathBuf = file.to_owned();
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
    match text {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(unusable(what, file, &error)),
        Err(error) => Err(unusable(what, file, &error)),
    }
}

fn unusable(what: &str, file: &Path, why: &dyn std::fmt::Display) -> BrokerConnectError {
    BrokerConnectError::Credentials(format!("{what} in {} can't be used: {why}", file.display()))
}

fn connect_error(error: &ConnectError) -> BrokerConnectError {
    let kind = error.kind();
    let why = match (kind, error.source()) {
        // The source says it better.
        (ConnectErrorKind::Io, Some(source)) => source.to_string(),
        (ConnectErrorKind::AuthorizationViolation, _) => kind.to_string(),
        _ => error.to_string(),
    };
    match kind {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            BrokerConnectError::Credentials(why)
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => BrokerConnectError::Unreachable(why),
    }
}

/// Hears what the client says of its connection, as long as there is one.
struct NatsEventListener(Arc<NatsConnectionState>);

impl NatsEventListener {
    fn on_event(&self, event: Event) {
        match event {
            Event::Disconnected => self.0.mark_closed("the broker is gone"),
            Event::Closed => self.0.mark_closed("it was closed"),
            Event::ServerError(ServerError::Other(text)) => match codec::parse_denial(&text) {
                Some(denial) => drop(self.0.denials.send(denial)),
                None => self.0.record_error(text),
            },
            Event::ServerError(error) => self.0.record_error(error.to_string()),
            Event::SlowConsumer(_) => self.0.count_dropped(),
            Event::Connected | Event::LameDuckMode | Event::Draining | Event::ClientError(_) => {}
        }
    }
}

impl Drop for NatsEventListener {
    /// The client drops it when it ends, and says only then and always that it has.
    fn drop(&mut self) {
        self.0.mark_closed("the broker is gone");
    }
}

impl NatsConnectionState {
    fn mark_closed(&self, why: &str) {
        let complaint = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closed.send_if_modified(|over| {
            let is_new = over.is_none();
            if is_new {
                *over = Some(complaint.unwrap_or_else(|| why.to_owned()));
            }
            is_new
        });
    }

    fn record_error(&self, text: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn count_dropped(&self) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        // Said often enough to be seen, and seldom enough not to be the next flood.
        if dropped.is_power_of_two() {
            tracing::warn!(dropped, "messages of the broker come faster than they are read");
        }
    }
}
