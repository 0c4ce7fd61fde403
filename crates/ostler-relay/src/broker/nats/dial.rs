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

use super::options::{Credentials, NatsOptions, address_of};
use super::words;
use crate::broker::{Denial, Refusal};

/// How long all addresses together may take. A little less than whoever waits
/// for the connection gives it, so that the reason is still heard.
const CONNECT: Duration = Duration::from_millis(4_500);

/// The least that one address gets.
const LEAST: Duration = Duration::from_secs(1);

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
const NOWHERE: &str = "nats://127.0.0.1:0";

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Whom to talk to.
    pub(crate) client: Client,
    state: Arc<State>,
}

/// What is known of a connection.
#[derive(Debug)]
struct State {
    /// Why it is over, if it is.
    over: watch::Sender<Option<String>>,
    denials: broadcast::Sender<Denial>,
    /// What the server complained of last.
    complaint: Mutex<Option<String>>,
    /// Messages that came faster than they were read.
    dropped: AtomicU64,
}

impl Line {
    /// Waits until it is over, and says why.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let mut over = self.state.over.subscribe();
        async move {
            let why = over.wait_for(Option::is_some).await;
            why.ok().and_then(|why| why.clone()).unwrap_or_default()
        }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.state.over.borrow().is_some()
    }

    /// What the server does not let us do.
    pub(crate) fn denials(&self) -> broadcast::Receiver<Denial> {
        self.state.denials.subscribe()
    }

    /// Ends it; what was handed over before may still leave.
    pub(crate) fn close(&self) {
        self.state.end("it was closed");
    }
}

/// Makes a connection.
pub(crate) async fn dial(options: &NatsOptions) -> Result<Line, Refusal> {
    let addresses = addresses(options)?;
    let state = Arc::new(State {
        over: watch::Sender::new(None),
        denials: broadcast::Sender::new(DENIALS),
        complaint: Mutex::default(),
        dropped: AtomicU64::new(0),
    });
    let each = (CONNECT / u32::try_from(addresses.len()).unwrap_or(u32::MAX)).max(LEAST);
    let listener = Listener(Arc::clone(&state));
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
            listener.hear(event);
            std::future::ready(())
        });
    let nats = with_tls(with_credentials(nats, options).await?, options).await?;
    let client = nats.connect(addresses).await.map_err(|error| refusal(&error))?;
    if client.set_server_pool(NOWHERE).await.is_err() {
        return Err(Refusal::Away("the connection was lost at once".into()));
    }
    let line = Line { client, state };
    tokio::spawn(leave_when_over(line.client.clone(), line.ended()));
    Ok(line)
}

/// Ends the client with the connection, whoever still holds a part of it.
async fn leave_when_over(client: Client, ended: impl Future<Output = String>) {
    ended.await;
    let _ = tokio::time::timeout(CLOSE, client.drain()).await;
}

fn addresses(options: &NatsOptions) -> Result<Vec<ServerAddr>, Refusal> {
    if options.servers.is_empty() {
        return Err(Refusal::Away("no address of a NATS server is given".into()));
    }
    let addresses = options.servers.iter().map(|server| address_of(server));
    addresses.collect::<Result<_, _>>().map_err(|error| Refusal::Away(error.to_string()))
}

/// Files are read for each connection: one that was exchanged counts.
async fn with_credentials(nats: ConnectOptions, options: &NatsOptions) -> Result<ConnectOptions, Refusal> {
    let named = match &options.credentials {
        Credentials::None => options.named_in_address().unwrap_or_default(),
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

async fn with_tls(mut nats: ConnectOptions, options: &NatsOptions) -> Result<ConnectOptions, Refusal> {
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
        (Some(_), None) => return Err(Refusal::Credentials("there is a certificate without its key".into())),
        (None, Some(_)) => return Err(Refusal::Credentials("there is a key without its certificate".into())),
    }
    Ok(nats.require_tls(tls.is_required))
}

async fn read(what: &str, file: &Path) -> Result<String, Refusal> {
    let path: PathBuf = file.to_owned();
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
    match text {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(unusable(what, file, &error)),
        Err(error) => Err(unusable(what, file, &error)),
    }
}

fn unusable(what: &str, file: &Path, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::Credentials(format!("{what} in {} can't be used: {why}", file.display()))
}

fn refusal(error: &ConnectError) -> Refusal {
    let kind = error.kind();
    let why = match (kind, error.source()) {
        // The source says it better.
        (ConnectErrorKind::Io, Some(source)) => source.to_string(),
        (ConnectErrorKind::AuthorizationViolation, _) => kind.to_string(),
        _ => error.to_string(),
    };
    match kind {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            Refusal::Credentials(why)
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => Refusal::Away(why),
    }
}

/// Hears what the client says of its connection, as long as there is one.
struct Listener(Arc<State>);

impl Listener {
    fn hear(&self, event: Event) {
        match event {
            Event::Disconnected => self.0.end("the broker is gone"),
            Event::Closed => self.0.end("it was closed"),
            Event::ServerError(ServerError::Other(text)) => match words::denial(&text) {
                Some(denial) => drop(self.0.denials.send(denial)),
                None => self.0.complain(text),
            },
            Event::ServerError(error) => self.0.complain(error.to_string()),
            Event::SlowConsumer(_) => self.0.count_dropped(),
            Event::Connected | Event::LameDuckMode | Event::Draining | Event::ClientError(_) => {}
        }
    }
}

impl Drop for Listener {
    /// The client drops it when it ends, and says only then and always that it has.
    fn drop(&mut self) {
        self.0.end("the broker is gone");
    }
}

impl State {
    fn end(&self, why: &str) {
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.over.send_if_modified(|over| {
            let is_new = over.is_none();
            if is_new {
                *over = Some(complaint.unwrap_or_else(|| why.to_owned()));
            }
            is_new
        });
    }

    fn complain(&self, text: String) {
        *self.complaint.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn count_dropped(&self) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        // Said often enough to be seen, and seldom enough not to be the next flood.
        if dropped.is_power_of_two() {
            tracing::warn!(dropped, "messages of the broker come faster than they are read");
        }
    }
}
