//! NATS connection: opens one connection and detects its end.
//!
//! The client library would reconnect by itself and then send what it had queued meanwhile. A call must not
//! leave that late, so here one client is one connection: right after connecting, its server pool is replaced by
//! an unreachable address. The client ends with its connection and discards what it had not sent.

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

/// Timeout over all addresses. A little less than the reconnector's timeout, so that its caller
/// still gets the reason.
const CONNECT: Duration = Duration::from_millis(4_500);

/// Lower bound of the timeout of one address.
const MIN_ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// Ping interval. Three unanswered pings end the connection, so a silent peer is detected within
/// ten seconds.
const PING: Duration = Duration::from_secs(3);

/// Messages queued for writing; a publisher waits while the queue is full.
const OUTGOING: usize = 512;

/// Messages buffered per subscription, a quarter of a second of a host's peak rate; the client
/// drops further ones.
const BACKLOG: usize = 4_096;

/// Denials buffered for subscribers.
const DENIALS: usize = 1_024;

/// Timeout for queued messages to leave on close.
const CLOSE: Duration = Duration::from_secs(2);

/// Unreachable by construction: no program can listen on port 0.
const UNREACHABLE_ADDRESS: &str = "nats://127.0.0.1:0";

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct NatsConnection {
    /// Client of this connection alone.
    pub(crate) client: Client,
    state: Arc<NatsConnectionState>,
}

/// State shared with the client's event callback.
#[derive(Debug)]
struct NatsConnectionState {
    /// Reason for the end; `None` while the connection is open.
    closed: watch::Sender<Option<String>>,
    denials: broadcast::Sender<Denial>,
    /// Last error that the server reported: the reason if the connection ends.
    last_error: Mutex<Option<String>>,
    /// Messages dropped from full subscriptions.
    dropped: AtomicU64,
}

impl NatsConnection {
    /// Waits until the connection ends and returns the reason.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let mut closed = self.state.closed.subscribe();
        async move {
            let why = closed.wait_for(Option::is_some).await;
            why.ok().and_then(|why| why.clone()).unwrap_or_default()
        }
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.closed.borrow().is_some()
    }

    /// Subscribes to the permission violations that the server reports.
    pub(crate) fn denials(&self) -> broadcast::Receiver<Denial> {
        self.state.denials.subscribe()
    }

    /// Closes the connection; messages handed over before may still leave.
    pub(crate) fn close(&self) {
        self.state.mark_closed("it was closed");
    }
}

/// Opens one connection.
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
    let connect_options = ConnectOptions::new()
        .name(&options.name)
        .custom_inbox_prefix(&options.inbox_prefix)
        .connection_timeout(each)
        .max_reconnects(addresses.len())
        .ignore_discovered_servers()
        .ping_interval(PING)
        .client_capacity(OUTGOING)
        .subscription_capacity(BACKLOG)
        // Subjects consist of validated tokens or came from the server.
        .skip_subject_validation(true)
        .event_callback(move |event| {
            listener.on_event(event);
            std::future::ready(())
        });
    let connect_options = with_tls(with_credentials(connect_options, options).await?, options).await?;
    let client = connect_options.connect(addresses).await.map_err(|error| connect_error(&error))?;
    if client.set_server_pool(UNREACHABLE_ADDRESS).await.is_err() {
        return Err(BrokerConnectError::Unreachable("the connection was lost at once".into()));
    }
    let connection = NatsConnection { client, state };
    tokio::spawn(drain_when_closed(connection.client.clone(), connection.ended()));
    Ok(connection)
}

/// Drains the client when its connection ends, even while clones of it exist.
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

/// Reads the files anew for each connection, so that rotated credentials take effect.
async fn with_credentials(
    connect_options: ConnectOptions,
    options: &NatsOptions,
) -> Result<ConnectOptions, BrokerConnectError> {
    let named = match &options.credentials {
        Credentials::None => options.credentials_in_address().unwrap_or_default(),
        given => given.clone(),
    };
    Ok(match named {
        Credentials::None => connect_options,
        Credentials::Password { user, password } => connect_options.user_and_password(user, password),
        Credentials::Token(token) => connect_options.token(token),
        Credentials::Nkey(file) => {
            let seed = read("the seed of the nkey", &file).await?;
            let seed = seed.trim();
            nkeys::KeyPair::from_seed(seed)
                .map_err(|error| unusable("the seed of the nkey", &file, &error))?;
            connect_options.nkey(seed.to_owned())
        }
        Credentials::Creds(file) => {
            let text = read("the credentials", &file).await?;
            connect_options.credentials(&text).map_err(|error| unusable("the credentials", &file, &error))?
        }
    })
}

async fn with_tls(
    mut connect_options: ConnectOptions,
    options: &NatsOptions,
) -> Result<ConnectOptions, BrokerConnectError> {
    // The process has one default provider; an error means that it is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = &options.tls;
    for (what, file) in [("the CA", &tls.ca), ("the certificate", &tls.cert), ("the key", &tls.key)] {
        if let Some(file) = file {
            // The client reads the file itself but does not name it in its error.
            read(what, file).await?;
        }
    }
    if let Some(ca) = &tls.ca {
        connect_options = connect_options.add_root_certificates(ca.clone());
    }
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            connect_options = connect_options.add_client_certificate(cert.clone(), key.clone())
        }
        (None, None) => {}
        (Some(_), None) => {
            return Err(BrokerConnectError::Credentials("there is a certificate without its key".into()));
        }
        (None, Some(_)) => {
            return Err(BrokerConnectError::Credentials("there is a key without its certificate".into()));
        }
    }
    Ok(connect_options.require_tls(tls.is_required))
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
        // The source has the specific reason.
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

/// Callback for the client's connection events.
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
    /// The client drops the callback when it ends, and sends an event in only some of those cases.
    fn drop(&mut self) {
        self.0.mark_closed("the broker is gone");
    }
}

impl NatsConnectionState {
    fn mark_closed(&self, why: &str) {
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closed.send_if_modified(|closed| {
            let is_new = closed.is_none();
            if is_new {
                *closed = Some(last_error.unwrap_or_else(|| why.to_owned()));
            }
            is_new
        });
    }

    fn record_error(&self, text: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn count_dropped(&self) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        // Logs at powers of two: visible, and bounded in a flood.
        if dropped.is_power_of_two() {
            tracing::warn!(dropped, "messages of the broker come faster than they are read");
        }
    }
}
