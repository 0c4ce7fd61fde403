//! Server cards: read on demand, one read at a time, and cached as long as their response allows.
//!
//! Reading a card does not start its server. Nothing depends on a card: a failed read is an error of its caller only.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::card::{self, CardReport, ServerCard};
use ostler_core::config::redact_url;
use ostler_core::error::CallError;
use ostler_core::fault::{FaultKind, HumanDuration};
use ostler_core::spec::{Isolation, ServerSpec, ServerTransport};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::host::Host;
use crate::server::Server;
use crate::upstream::http::{HttpConnector, fetch_card};
use crate::upstream::stdio::read_file;

/// Bounds the read of a card, redirects included.
const CARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A card that was read.
#[derive(Debug, Clone)]
struct CachedCard {
    card: Arc<ServerCard>,
    source: Arc<str>,
    read_at: Instant,
    /// End of its freshness; it is read again after that.
    fresh_until: Instant,
}

/// Outcome of reading a card.
type CardResult = Result<CachedCard, CallError>;

/// Cached card of one server.
#[derive(Debug, Default)]
pub(crate) struct CardCache(Mutex<CardState>);

#[derive(Debug, Default)]
struct CardState {
    /// Last card that was read and may be cached, also when it is not fresh any more.
    last: Option<CachedCard>,
    /// Receives the outcome of the read in progress, and closes with it.
    reading: Option<watch::Receiver<Option<CardResult>>>,
}

impl CardCache {
    fn lock(&self) -> MutexGuard<'_, CardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Reads the card of a server: the file or address of its `card`, or else `server-card` below its `url`. A card
    /// that was read before is cached as long as its response allows. The server is not started for it.
    pub async fn card(&self, name: &str) -> Result<CardReport, CallError> {
        let server = self.server(name)?;
        let mut reading = match self.join_or_begin_card(&server) {
            Ok(kept) => return Ok(card_report(&server, &kept)),
            Err(reading) => reading,
        };
        let outcome = reading.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        let ended = || Err(unreadable(&server, "its reading has ended early", "try again"));
        outcome.unwrap_or_else(ended).map(|kept| card_report(&server, &kept))
    }

    /// Returns a fresh card, or else joins the read in progress or begins one. The read runs in a task of its own, so
    /// that its first caller may leave.
    fn join_or_begin_card(
        &self,
        server: &Arc<Server>,
    ) -> Result<CachedCard, watch::Receiver<Option<CardResult>>> {
        let mut state = server.card.lock();
        if let Some(kept) = state.last.as_ref().filter(|kept| Instant::now() < kept.fresh_until) {
            return Ok(kept.clone());
        }
        // The sender of a task that panicked is gone.
        if let Some(reading) = state.reading.as_ref().filter(|reading| reading.has_changed().is_ok()) {
            return Err(reading.clone());
        }
        let (done, reading) = watch::channel(None);
        state.reading = Some(reading.clone());
        let (host, server) = (self.clone(), Arc::clone(server));
        tokio::spawn(async move {
            let outcome = host.read_card(&server).await;
            let mut state = server.card.lock();
            state.reading = None;
            if let Ok((kept, may_keep)) = &outcome {
                state.last = may_keep.then(|| kept.clone());
            }
            drop(state);
            done.send_replace(Some(outcome.map(|(kept, _)| kept)));
        });
        Err(reading)
    }

    /// Reads a card; also returns whether it may be cached.
    async fn read_card(&self, server: &Server) -> Result<(CachedCard, bool), CallError> {
        let name = &server.spec.name;
        let (source, reading) = match (&server.spec.card, &server.spec.transport) {
            (Some(at), _) if card::is_url(at) => (redact_url(at), self.fetch_card(server, Some(at.clone()))),
            (Some(file), _) => return read_card_file(server, file).await,
            (None, ServerTransport::Http(endpoint)) => {
                let url = endpoint.url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
                (format!("{}/{}", redact_url(url), card::PATH), self.fetch_card(server, None))
            }
            (None, ServerTransport::Stdio(_)) => {
                let hint = format!("set `card` of `{name}` to an address or a file");
                return Err(unreadable(
                    server,
                    "a server that is a program has no usual place for one",
                    &hint,
                ));
            }
        };
        let hint =
            format!("set `card` of `{name}` to the address or file of its card; calls do not need one");
        let fail = |why: String| unreadable(server, &format!("{source}: {why}"), &hint);
        let (text, life) = match timeout(CARD_TIMEOUT, reading).await {
            Ok(read) => read.map_err(fail)?,
            Err(_) => return Err(fail(format!("it did not come within {}", HumanDuration(CARD_TIMEOUT)))),
        };
        // A server may repeat the credentials that it was sent.
        let text = self.redact(&text).into_owned();
        let card = ServerCard::parse(text.as_bytes()).map_err(|error| fail(error.to_string()))?;
        Ok((CachedCard::new(card, &source, life.unwrap_or_default()), life.is_some()))
    }

    /// Fetches a card, with the headers of the server if the card is at the server's own origin.
    async fn fetch_card(
        &self,
        server: &Server,
        at: Option<String>,
    ) -> Result<(String, Option<Duration>), String> {
        let (veil, via) = (&self.inner().telemetry.redactor, self.loop_detector());
        let own = match &server.spec.transport {
            ServerTransport::Http(endpoint) => {
                let identity = self.options().identity.clone();
                let (veil, via) = (Arc::clone(veil), Arc::clone(via));
                Some(HttpConnector::new(&server.spec, endpoint.clone(), identity, veil, via))
            }
            ServerTransport::Stdio(_) => None,
        };
        let fetched = fetch_card(own.as_ref(), at.as_deref(), via).await;
        fetched.map_err(|kind| match veil.redact_kind(kind) {
            FaultKind::ContentType(kind) => {
                format!("it answers with `{kind}` in place of JSON, which a card is")
            }
            kind => kind.to_string(),
        })
    }

    /// Returns the last card that was read. Reads a card in a file if none was read yet; fetches nothing.
    pub(crate) fn known_card(&self, server: &Server) -> Option<CardReport> {
        let last = server.card.lock().last.clone();
        let kept = last.or_else(|| {
            let CardReport { source, card, .. } = card_from_file(&server.spec)?;
            let kept = CachedCard::new(card, &source, Duration::ZERO);
            server.card.lock().last = Some(kept.clone());
            Some(kept)
        })?;
        Some(card_report(server, &kept))
    }
}

impl CachedCard {
    fn new(card: ServerCard, source: &str, life: Duration) -> Self {
        let read_at = Instant::now();
        Self { card: Arc::new(card), source: source.into(), read_at, fresh_until: read_at + life }
    }
}

/// Reads a card from a file. Cards in files are read on every request.
async fn read_card_file(server: &Server, file: &str) -> Result<(CachedCard, bool), CallError> {
    let hint = format!("correct the file, or set `card` of `{}` to another one", server.spec.name);
    let fail = |why: &str| unreadable(server, &format!("{file}: {why}"), &hint);
    let path = Path::new(file).to_owned();
    let reading = tokio::task::spawn_blocking(move || read_file(&path));
    let text = match timeout(CARD_TIMEOUT, reading).await {
        Ok(Ok(text)) => text.map_err(|error| fail(&error.to_string()))?,
        Ok(Err(error)) => return Err(fail(&error.to_string())),
        Err(_) => return Err(fail(&format!("it could not be read within {}", HumanDuration(CARD_TIMEOUT)))),
    };
    let card = ServerCard::parse(text.as_bytes()).map_err(|error| fail(&error.to_string()))?;
    Ok((CachedCard::new(card, file, Duration::ZERO), true))
}

/// Reads the card of a server whose `card` is a file. Nothing is fetched, and the server is not started.
pub fn card_from_file(spec: &ServerSpec) -> Option<CardReport> {
    let source = spec.card.as_deref().filter(|at| !card::is_url(at))?.to_owned();
    let card = ServerCard::parse(read_file(Path::new(&source)).ok()?.as_bytes()).ok()?;
    let (server, differences) = (spec.name.clone(), Vec::new());
    Some(CardReport { server, source, seconds_ago: 0, compared: false, differences, card })
}

/// Describes a card, compared with the server if that runs for all callers.
fn card_report(server: &Server, kept: &CachedCard) -> CardReport {
    let is_shared = server.spec.isolation == Isolation::Shared;
    let live = server.slots().iter().filter(|_| is_shared).find_map(|slot| slot.state().live.clone());
    let url = match &server.spec.transport {
        ServerTransport::Http(endpoint) => Some(endpoint.url.as_str()).filter(|url| !url.contains("${")),
        ServerTransport::Stdio(_) => None,
    };
    let differences = live.as_ref().map(|live| {
        let hello = live.session.server_info();
        kept.card.differences(hello.implementation.as_deref(), &hello.version, url)
    });
    CardReport {
        server: server.spec.name.clone(),
        source: kept.source.to_string(),
        seconds_ago: kept.read_at.elapsed().as_secs(),
        compared: live.is_some(),
        differences: differences.unwrap_or_default(),
        card: ServerCard::clone(&kept.card),
    }
}

fn unreadable(server: &Server, why: &str, hint: &str) -> CallError {
    CallError::CardUnreadable { server: server.spec.name.clone(), why: why.into(), hint: hint.into() }
}
