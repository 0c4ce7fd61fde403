//! Legacy session: the state of its handshake, and the stream of messages without a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::headers::SESSION_ID;
use ostler_wire::{ClientInfo, Message, ServerInfo};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::endpoint_client::{HttpReply, header};
use super::event_stream::{EventStream, StreamPosition};
use super::faults;
use super::handshake;
use super::reply_tasks::ReplyTasks;
use super::server_messages::IncomingServerRequest;
use super::session::HttpSessionState;
use crate::upstream::SessionCallback;
use crate::upstream::subscription_ack::NotifiedLists;

/// Upper bound on the delay between two attempts to open the stream.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Minimum time between two resyncs of a server that has forgotten its session. A server that forgets at once would
/// otherwise cause an endless loop.
const MIN_RESYNC_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of another handshake.
const REINITIALIZE_TIMEOUT: Duration = Duration::from_secs(20);

/// State of the handshake. A server may forget it at any time.
pub(crate) struct LegacySession {
    current: Mutex<(HeaderMap, u64)>,
    /// Held while the session is reopened, so that all requests that find it expired share one handshake.
    reinitialize_lock: tokio::sync::Mutex<()>,
    /// Incremented with every handshake.
    epoch: watch::Sender<u64>,
    identity: ClientInfo,
    /// Tells the host that its lists are stale.
    on_lists_stale: SessionCallback,
    /// The changes that the server announces.
    announced: NotifiedLists,
    /// True while the stream of announcements is open or can be resumed where it ended.
    is_stream_open: AtomicBool,
}

impl LegacySession {
    pub(crate) fn new(
        headers: HeaderMap,
        (identity, on_lists_stale): (ClientInfo, SessionCallback),
        hello: &ServerInfo,
    ) -> Self {
        Self {
            current: Mutex::new((headers, 0)),
            reinitialize_lock: tokio::sync::Mutex::default(),
            epoch: watch::Sender::new(0),
            identity,
            on_lists_stale,
            announced: NotifiedLists::announced(hello),
            is_stream_open: AtomicBool::new(false),
        }
    }

    /// Handles a stream that has ended and can't be resumed: changes before the next one opens are missed.
    fn on_stream_lost(&self, link: &HttpSessionState) {
        if self.is_stream_open.swap(false, Ordering::AcqRel) {
            self.announced.assumed_changes().for_each(|event| link.server_messages.emit(event));
        }
    }

    /// Returns whether the server can announce changes now.
    pub(crate) fn is_stream_open(&self) -> bool {
        self.is_stream_open.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, (HeaderMap, u64)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the headers of a request, and the epoch of their handshake.
    pub(crate) fn current(&self) -> (HeaderMap, u64) {
        self.lock().clone()
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.lock().0.clone()
    }

    /// Returns whether the server keeps a session that can expire.
    pub(crate) fn has_id(&self) -> bool {
        self.lock().0.contains_key(header(SESSION_ID))
    }

    /// Reopens the session, unless another request has done so since `stale`. A request that found it expired was not
    /// executed, even if the handshake fails.
    pub(crate) async fn reinitialize(&self, link: &HttpSessionState, stale: u64) -> Result<(), Fault> {
        let _turn = self.reinitialize_lock.lock().await;
        if self.lock().1 != stale {
            return Ok(());
        }
        let opened = timeout(REINITIALIZE_TIMEOUT, handshake::initialize(&link.client, &self.identity)).await;
        let headers = match opened {
            Ok(Ok(Some((_, headers)))) => headers,
            Ok(Ok(None)) => {
                let kind =
                    FaultKind::Handshake("the server has forgotten the session and opens no other".into());
                link.fail(&kind);
                return Err(Fault::rejected(kind));
            }
            Ok(Err(fault)) => {
                link.fail_if_endpoint_lost(&fault);
                return Err(match fault.kind {
                    kind @ (FaultKind::Connect(_) | FaultKind::Permanent(_)) => Fault::not_sent(kind),
                    kind => Fault::rejected(kind),
                });
            }
            Err(_) => return Err(Fault::rejected(FaultKind::StartTimeout(REINITIALIZE_TIMEOUT))),
        };
        // Any request that reads the new headers finds the lists stale.
        (self.on_lists_stale)();
        *self.lock() = (headers, stale + 1);
        self.epoch.send_replace(stale + 1);
        Ok(())
    }
}

/// Restores the settings of a server each time that it has forgotten them. Resets before the future is polled count
/// too.
pub(crate) fn resync_on_reset(
    agreed: &LegacySession,
    renewed: SessionCallback,
) -> impl Future<Output = ()> + Send + use<> {
    let mut epoch = agreed.epoch.subscribe();
    async move {
        while epoch.changed().await.is_ok() {
            renewed();
            sleep(MIN_RESYNC_INTERVAL).await;
        }
    }
}

/// Reads the stream of messages without a request, for as long as the server offers one.
pub(crate) async fn follow(link: Arc<HttpSessionState>, agreed: Arc<LegacySession>) {
    let mut epoch = agreed.epoch.subscribe();
    let mut place = StreamPosition::default();
    let mut failures = 0;
    loop {
        epoch.mark_unchanged();
        let wait = match link.client.get(agreed.headers(), place.clone()).await {
            Ok(HttpReply::Events(mut stream)) => {
                agreed.is_stream_open.store(true, Ordering::Release);
                let has_spoken = tokio::select! {
                    has_spoken = read(&link, &agreed, &mut stream) => has_spoken,
                    _ = epoch.changed() => {
                        (place, failures) = (StreamPosition::default(), 0);
                        agreed.on_stream_lost(&link);
                        continue;
                    }
                };
                place = stream.position.clone();
                if place.last_id.is_none() {
                    agreed.on_stream_lost(&link);
                }
                failures = if has_spoken { 0 } else { failures + 1 };
                Some(pause(&place, failures))
            }
            Err(Fault { kind: FaultKind::RetryAfter { wait, .. }, .. }) => Some(wait),
            Err(Fault { kind: FaultKind::NeedsAuth { .. }, .. }) => None,
            Err(_) => {
                failures += 1;
                Some(pause(&place, failures))
            }
            Ok(HttpReply::Refused(status, _)) if status.is_server_error() => {
                failures += 1;
                Some(pause(&place, failures))
            }
            // The server offers no stream, or has forgotten the session.
            Ok(_) => {
                agreed.on_stream_lost(&link);
                None
            }
        };
        let over = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => {}
            changed = epoch.changed() => {
                if changed.is_err() {
                    return;
                }
                place = StreamPosition::default();
                agreed.on_stream_lost(&link);
            }
        }
    }
}

fn pause(place: &StreamPosition, failures: u32) -> Duration {
    place.retry.saturating_mul(1 << failures.min(6)).min(MAX_WAIT)
}

/// Reads a stream to its end; returns whether it brought any message.
async fn read(link: &Arc<HttpSessionState>, agreed: &LegacySession, stream: &mut EventStream) -> bool {
    let mut answers = ReplyTasks::default();
    let mut has_spoken = false;
    while let Ok(Some(event)) = stream.next().await.map_err(faults::reading_fault) {
        has_spoken = true;
        match Message::parse(event.data) {
            Ok(Message::Notification { method, params }) => {
                link.server_messages.on_notification(
                    (&link.pending_calls, &link.client.counters),
                    (method, params),
                    None,
                );
            }
            Ok(Message::Request { id, method, params }) => {
                let asked = IncomingServerRequest { id: id.detached(), method, params, call: None };
                answers.begin(link, asked, (link.client.clone(), agreed.headers()));
            }
            Ok(Message::Response { .. }) | Err(_) => link.client.counters.skip(),
        }
    }
    has_spoken
}
