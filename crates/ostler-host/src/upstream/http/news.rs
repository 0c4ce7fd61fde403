//! A legacy session: what was agreed upon, and the stream of what nobody asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::headers::SESSION_ID;
use ostler_wire::{ClientIdentity, Hello, Message};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::answers::Answers;
use super::ear::Asked;
use super::road::{Reply, header};
use super::session::Link;
use super::shake;
use super::stream::{EventStream, Place};
use super::turn_down;
use crate::upstream::Renewed;
use crate::upstream::heard::Heard;

/// The longest wait between two attempts to get the stream.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The least time between two occasions on which a server is told what it has
/// forgotten. One that forgets at once would be told, and asked, for ever.
const RETELLING: Duration = Duration::from_secs(10);
/// How long another handshake may take.
const RENEWAL: Duration = Duration::from_secs(20);

/// What was agreed upon in the handshake. A server may forget it at any time.
pub(crate) struct Agreed {
    current: Mutex<(HeaderMap, u64)>,
    /// Held while the session is opened anew, so that all who find it expired share one handshake.
    renewing: tokio::sync::Mutex<()>,
    /// Grows with every handshake.
    epoch: watch::Sender<u64>,
    identity: ClientIdentity,
    /// Lets the host know that what was listed is in doubt.
    doubted: Renewed,
    /// The changes that the server announces.
    announced: Heard,
    /// Whether it tells of them on a stream that is open, or that can be picked
    /// up where it ended.
    is_heard: AtomicBool,
}

impl Agreed {
    pub(crate) fn new(
        headers: HeaderMap,
        (identity, doubted): (ClientIdentity, Renewed),
        hello: &Hello,
    ) -> Self {
        Self {
            current: Mutex::new((headers, 0)),
            renewing: tokio::sync::Mutex::default(),
            epoch: watch::Sender::new(0),
            identity,
            doubted,
            announced: Heard::announced(hello),
            is_heard: AtomicBool::new(false),
        }
    }

    /// The stream has ended and can't be picked up where it was: whatever
    /// changes before the next one is there goes unheard.
    fn fall_silent(&self, link: &Link) {
        if self.is_heard.swap(false, Ordering::AcqRel) {
            self.announced.missed().for_each(|event| link.ear.tell(event));
        }
    }

    /// Whether the server can tell of changes now.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, (HeaderMap, u64)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The headers of a request, and of which handshake they are.
    pub(crate) fn current(&self) -> (HeaderMap, u64) {
        self.lock().clone()
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.lock().0.clone()
    }

    /// Whether the server keeps a session that can expire.
    pub(crate) fn has_id(&self) -> bool {
        self.lock().0.contains_key(header(SESSION_ID))
    }

    /// Opens the session anew, unless somebody has since `stale`. A request
    /// that found it expired was not executed, whatever comes of this.
    pub(crate) async fn renew(&self, link: &Link, stale: u64) -> Result<(), Fault> {
        let _turn = self.renewing.lock().await;
        if self.lock().1 != stale {
            return Ok(());
        }
        let opened = timeout(RENEWAL, shake::initialize(&link.road, &self.identity)).await;
        let headers = match opened {
            Ok(Ok(Some((_, headers)))) => headers,
            Ok(Ok(None)) => {
                let kind =
                    FaultKind::Handshake("the server has forgotten the session and opens no other".into());
                link.lose(&kind);
                return Err(Fault::rejected(kind));
            }
            Ok(Err(fault)) => {
                link.heed(&fault);
                return Err(match fault.kind {
                    kind @ (FaultKind::Connect(_) | FaultKind::Permanent(_)) => Fault::not_sent(kind),
                    kind => Fault::rejected(kind),
                });
            }
            Err(_) => return Err(Fault::rejected(FaultKind::StartTimeout(RENEWAL))),
        };
        // Whoever sees the new headers sees the doubt.
        (self.doubted)();
        *self.lock() = (headers, stale + 1);
        self.epoch.send_replace(stale + 1);
        Ok(())
    }
}

/// Has the server told again what it has forgotten, each time that it has.
/// What happens before the future is polled counts too.
pub(crate) fn retell(agreed: &Agreed, renewed: Renewed) -> impl Future<Output = ()> + Send + use<> {
    let mut epoch = agreed.epoch.subscribe();
    async move {
        while epoch.changed().await.is_ok() {
            renewed();
            sleep(RETELLING).await;
        }
    }
}

/// Follows the stream of what nobody asked for, as long as there is one.
pub(crate) async fn follow(link: Arc<Link>, agreed: Arc<Agreed>) {
    let mut epoch = agreed.epoch.subscribe();
    let mut place = Place::default();
    let mut failures = 0;
    loop {
        epoch.mark_unchanged();
        let wait = match link.road.get(agreed.headers(), place.clone()).await {
            Ok(Reply::Events(mut stream)) => {
                agreed.is_heard.store(true, Ordering::Release);
                let has_spoken = tokio::select! {
                    has_spoken = read(&link, &agreed, &mut stream) => has_spoken,
                    _ = epoch.changed() => {
                        (place, failures) = (Place::default(), 0);
                        agreed.fall_silent(&link);
                        continue;
                    }
                };
                place = stream.place.clone();
                if place.last_id.is_none() {
                    agreed.fall_silent(&link);
                }
                failures = if has_spoken { 0 } else { failures + 1 };
                Some(pause(&place, failures))
            }
            Err(Fault { kind: FaultKind::Paused { wait, .. }, .. }) => Some(wait),
            Err(Fault { kind: FaultKind::NeedsAuth { .. }, .. }) => None,
            Err(_) => {
                failures += 1;
                Some(pause(&place, failures))
            }
            Ok(Reply::Refused(status, _)) if status.is_server_error() => {
                failures += 1;
                Some(pause(&place, failures))
            }
            // The server offers none, or has forgotten the session.
            Ok(_) => {
                agreed.fall_silent(&link);
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
                place = Place::default();
                agreed.fall_silent(&link);
            }
        }
    }
}

fn pause(place: &Place, failures: u32) -> Duration {
    place.retry.saturating_mul(1 << failures.min(6)).min(MAX_WAIT)
}

/// Reads a stream to its end; true if anything was said.
async fn read(link: &Arc<Link>, agreed: &Agreed, stream: &mut EventStream) -> bool {
    let mut answers = Answers::default();
    let mut has_spoken = false;
    while let Ok(Some(event)) = stream.next().await.map_err(turn_down::while_reading) {
        has_spoken = true;
        match Message::parse(event.data) {
            Ok(Message::Notification { method, params }) => {
                link.ear.notice((&link.calls, &link.road.tally), (method, params), None);
            }
            Ok(Message::Request { id, method, params }) => {
                let asked = Asked { id: id.detached(), method, params, call: None };
                answers.begin(link, asked, (link.road.clone(), agreed.headers()));
            }
            Ok(Message::Response { .. }) | Err(_) => link.road.tally.skip(),
        }
    }
    has_spoken
}
