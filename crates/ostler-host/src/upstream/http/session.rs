//! A session with a remote endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ostler_core::fault::{Fault, FaultKind};
use ostler_core::supervisor::Failure;
use ostler_wire::{ClientIdentity, Hello, Outcome};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::calls::{Calls, Ticket};
use super::ear::Ear;
use super::listen::Listening;
use super::marks::Marks;
use super::news::{self, Agreed};
use super::road::Road;
use super::shake::Opened;
use super::wire;
use crate::lists::Kind;
use crate::secrets::Veil;
use crate::upstream::{Ask, BoxFuture, Force, Plan, Session, Vitals};

/// How long the end of a session may take to be said.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long something that nobody waits for may take to be sent.
const ERRAND: Duration = Duration::from_secs(10);

/// Messages that nobody waits for and that are under way at once; what is
/// beyond is dropped.
const MAX_ERRANDS: usize = 32;

/// What all parts of a session share.
pub(crate) struct Link {
    pub(crate) road: Road,
    /// What its faults must not say.
    veil: Arc<Veil>,
    pub(crate) calls: Calls,
    pub(crate) ear: Ear,
    /// Places for messages that nobody waits for.
    errands: Arc<Semaphore>,
    /// Why the session is over, once it is.
    lost: watch::Sender<Option<Failure>>,
    /// Whether the host has closed it.
    closed: watch::Sender<bool>,
}

/// How the endpoint is spoken to, and what that takes.
pub(crate) enum Way {
    Modern {
        marks: Marks,
        listening: Listening,
    },
    Legacy(Arc<Agreed>),
    /// Messages go out on this way, and come in on a stream that a task reads.
    Wire(Road),
}

/// A session with a remote endpoint.
pub(crate) struct HttpSession {
    pub(crate) hello: Hello,
    pub(crate) link: Arc<Link>,
    pub(crate) way: Way,
}

/// What a session is made of.
pub(crate) struct Beginning {
    pub(crate) road: Road,
    pub(crate) plan: Plan,
    pub(crate) identity: ClientIdentity,
    /// How much time a progress notification gives a call.
    pub(crate) patience: Duration,
    /// Set when it could not be told whose question one was.
    pub(crate) is_confused: Arc<AtomicBool>,
    pub(crate) veil: Arc<Veil>,
}

impl Link {
    /// Waits until the host has closed the session or the endpoint is lost.
    pub(crate) async fn over(&self) {
        let (mut lost, mut closed) = (self.lost.subscribe(), self.closed.subscribe());
        tokio::select! {
            _ = lost.wait_for(Option::is_some) => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
    }

    /// Why nothing can be sent any more, if so.
    fn end(&self) -> Option<FaultKind> {
        if *self.closed.borrow() {
            return Some(FaultKind::Retired);
        }
        self.lost.borrow().is_some().then_some(FaultKind::Closed)
    }

    /// Ends the session for a reason that supervision must know. The first one counts.
    pub(crate) fn lose(&self, kind: &FaultKind) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| Failure::new(self.veil.over(kind.clone()), Instant::now().into_std()));
            is_first
        });
    }

    /// Looks at a fault for signs that the endpoint is lost.
    pub(crate) fn heed(&self, fault: &Fault) {
        if matches!(fault.kind, FaultKind::Connect(_) | FaultKind::Permanent(_) | FaultKind::NeedsAuth { .. })
        {
            self.lose(&fault.kind);
        }
    }

    /// Does something that nobody waits for, unless the session ends first.
    pub(crate) fn run(self: &Arc<Self>, errand: impl Future<Output = ()> + Send + 'static) {
        let link = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = errand => {}
                () = link.over() => {}
            }
        });
    }
}

impl HttpSession {
    pub(crate) fn begin(opened: Opened, beginning: Beginning) -> Arc<dyn Session> {
        let Beginning { road, plan, identity, patience, is_confused, veil } = beginning;
        let link = Arc::new(Link {
            road,
            veil,
            calls: Calls::default(),
            ear: Ear::new(plan.events, patience, is_confused),
            errands: Arc::new(Semaphore::new(MAX_ERRANDS)),
            lost: watch::Sender::new(None),
            closed: watch::Sender::new(false),
        });
        let (hello, way) = match opened {
            Opened::Modern(hello) => {
                let marks = Marks::new(plan.definitions);
                (hello, Way::Modern { marks, listening: Listening::default() })
            }
            Opened::Legacy(hello, headers) => {
                let agreed = Arc::new(Agreed::new(headers, (identity, plan.doubted), &hello));
                link.run(news::retell(&agreed, plan.renewed));
                link.run(news::follow(Arc::clone(&link), Arc::clone(&agreed)));
                (hello, Way::Legacy(agreed))
            }
            Opened::Wire(hello, out, stream) => {
                link.run(wire::read(Arc::clone(&link), out.clone(), stream));
                (hello, Way::Wire(out))
            }
        };
        Arc::new(Self { hello, link, way })
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Outcome, Fault> {
        let (ticket, answer) = self.link.calls.begin(&ask);
        // Looked at after the call is noted: whoever ends the session ends what is noted.
        if let Some(kind) = self.link.end() {
            return Err(Fault::not_sent(kind));
        }
        let mut errand = Cancel { session: self, id: Some(ticket.id) };
        let conversation = async {
            match &self.way {
                Way::Modern { marks, .. } => self.talk_modern(&ask, ticket.id, marks).await,
                Way::Legacy(agreed) => self.talk_legacy(&ask, ticket.id, agreed).await,
                Way::Wire(out) => wire::talk((&self.link, out), self.body(&ask, ticket.id), answer).await,
            }
        };
        let result = tokio::select! {
            result = conversation => result,
            fault = self.end_of_patience(&ticket) => Err(fault),
        };
        if !matches!(&result, Err(Fault { kind: FaultKind::TimedOut(_), .. })) {
            errand.id = None;
        }
        if let Err(fault) = &result {
            self.link.heed(fault);
        }
        result.map_err(|fault| self.link.veil.over_fault(fault))
    }

    /// Waits until the call's time is over or the session is closed. Whether
    /// any byte had left nobody knows: connections are made and used below.
    async fn end_of_patience(&self, ticket: &Ticket<'_>) -> Fault {
        let mut closed = self.link.closed.subscribe();
        tokio::select! {
            time = ticket.expired() => Fault::unknown(FaultKind::TimedOut(time)),
            _ = closed.wait_for(|closed| *closed) => Fault::unknown(FaultKind::Retired),
        }
    }

    /// Sends a message that nobody waits for, unless too many are under way.
    pub(crate) fn send(&self, body: Vec<u8>) {
        let link = Arc::clone(&self.link);
        let (road, headers) = match &self.way {
            Way::Modern { .. } => return,
            Way::Legacy(agreed) => (self.link.road.clone(), agreed.headers()),
            Way::Wire(out) => (out.clone(), http::HeaderMap::new()),
        };
        let Ok(place) = Arc::clone(&link.errands).try_acquire_owned() else { return };
        link.run(async move {
            let _place = place;
            let _ = timeout(ERRAND, road.post(body, headers)).await;
        });
    }
}

impl Drop for HttpSession {
    /// Whatever runs for the session ends with it.
    fn drop(&mut self) {
        self.link.closed.send_replace(true);
    }
}

/// Tells a legacy server that a call is given up, when it is dropped with the
/// number still in it. A modern one sees that the request is closed.
struct Cancel<'a> {
    session: &'a HttpSession,
    id: Option<u64>,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut body = Vec::new();
        ostler_wire::write_cancelled(&mut body, id, "the caller does not wait any more");
        self.session.send(body);
    }
}

impl Session for HttpSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.exchange(ask))
    }

    fn notify(&self, method: &str, params: Option<&[u8]>) {
        let mut body = Vec::new();
        ostler_wire::write_notification(&mut body, method, params);
        self.send(body);
    }

    fn listen(&self, resources: &[String]) {
        if let Way::Modern { listening, .. } = &self.way {
            listening.begin(&self.link, &self.hello, resources);
        }
    }

    fn hears_changes(&self, kind: Kind) -> bool {
        match &self.way {
            Way::Modern { listening, .. } => listening.hears(kind),
            Way::Legacy(agreed) => agreed.is_heard(),
            Way::Wire(_) => true,
        }
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        let mut lost = self.link.lost.subscribe();
        Box::pin(async move {
            match lost.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(failure)) => failure.clone(),
                Ok(None) | Err(_) => Failure::new(FaultKind::Closed, Instant::now().into_std()),
            }
        })
    }

    fn close(&self, force: Force) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.link.closed.send_replace(true);
            self.link.calls.fail_all(&FaultKind::Retired);
            if let (Way::Legacy(agreed), Force::Gentle) = (&self.way, force)
                && self.link.lost.borrow().is_none()
                && agreed.has_id()
            {
                let _ = timeout(GOODBYE, self.link.road.delete(agreed.headers())).await;
            }
        })
    }

    fn vitals(&self) -> Vitals {
        let tally = &self.link.road.tally;
        Vitals { skipped_lines: tally.skipped(), dropped_notifications: tally.dropped(), ..Vitals::default() }
    }

    /// A session without calls counts as heard, so that it is not probed.
    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        match self.link.calls.oldest() {
            Some(oldest) => (self.link.road.tally.last_heard().max(Some(oldest)), Some(oldest)),
            None => (Some(Instant::now()), None),
        }
    }
}
