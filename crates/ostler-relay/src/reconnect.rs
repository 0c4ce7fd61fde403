//! Keeps one connection to the broker, for ever.
//!
//! ```text
//!            connected                     lost
//!  waiting ────────────▶ up ──────────────────────────▶ waiting
//!     │ ▲                                                  100 ms – 5 s, full jitter;
//!     └─┘ refused: tried again                             wrong credentials: 30 s
//! ```
//!
//! One task makes the connections, and everybody who waits for one waits for
//! that task: a broker that comes back sees one attempt and not one for each
//! call. It never gives up, and ends at once when it is closed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::{Broker, BrokerConnectError, RelayLink};

/// How long one attempt may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The first and the last ceiling of a pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The pause where only a person can help, at least half of it.
const CREDENTIALS_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A connection that lasted this long was a good one: the next pause is short.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// What is said to people about the connection, once for each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkReport {
    /// The broker can't be reached, and is waited for.
    Unreachable {
        /// Where it should be.
        address: String,
        /// Why not.
        why: String,
    },
    /// The broker does not accept the credentials; they are tried again slowly.
    Refused {
        /// Where it is.
        address: String,
        /// What it says.
        why: String,
    },
    /// The connection is there.
    Connected {
        /// Where to.
        address: String,
    },
    /// The connection was lost.
    Lost {
        /// Where to.
        address: String,
        /// Why.
        why: String,
    },
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address: place, why } => {
                write!(f, "the broker at {place} can't be reached, waiting for it: {why}")
            }
            Self::Refused { address: place, why } => {
                write!(f, "the broker at {place} does not accept the credentials: {why}")
            }
            Self::Connected { address: place } => write!(f, "connected to the broker at {place}"),
            Self::Lost { address: place, why } => {
                write!(f, "the connection to the broker at {place} was lost: {why}")
            }
        }
    }
}

/// Takes what is said to people.
pub type StatusSink = Arc<dyn Fn(&LinkReport) + Send + Sync>;

/// How the connection is.
#[derive(Clone)]
pub enum LinkState {
    /// There is none.
    Disconnected {
        /// Why the last attempt failed; none before the first.
        why: Option<BrokerConnectError>,
    },
    /// There is one.
    Connected(BrokerConnection),
    /// There will be none any more.
    Closed,
}

/// A connection, and the how manieth it is.
#[derive(Clone)]
pub struct BrokerConnection {
    /// The connection.
    pub link: Arc<dyn RelayLink>,
    /// Counts connections, from one.
    pub epoch: u64,
}

impl fmt::Debug for BrokerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Up").field(&self.epoch).finish()
    }
}

impl fmt::Debug for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected { why } => f.debug_struct("Waiting").field("why", why).finish(),
            Self::Connected(up) => up.fmt(f),
            Self::Closed => f.write_str("Over"),
        }
    }
}

/// Keeps one connection to the broker. Dropping it ends that.
pub struct Reconnector {
    state: watch::Receiver<LinkState>,
    closed: watch::Sender<bool>,
}

impl Reconnector {
    /// Begins to connect.
    pub fn start(broker: Arc<dyn Broker>, chance: fastrand::Rng, say: StatusSink) -> Self {
        let (tell, state) = watch::channel(LinkState::Disconnected { why: None });
        let (closed, mut is_over) = watch::channel(false);
        tokio::spawn(async move {
            let backoff = Backoff::new(PAUSE.0, PAUSE.1);
            let keeping = ReconnectTask {
                broker,
                rng: chance,
                status_sink: say,
                state_sender: tell,
                backoff,
                epoch: 0,
                last_report: None,
            };
            let tell = keeping.state_sender.clone();
            tokio::select! {
                never = keeping.run() => match never {},
                _ = is_over.wait_for(|is_over| *is_over) => {}
            }
            let last = tell.send_replace(LinkState::Closed);
            if let LinkState::Connected(up) = last {
                up.link.close();
            }
        });
        Self { state, closed }
    }

    /// The connection of this moment.
    pub fn connection(&self) -> Option<BrokerConnection> {
        match &*self.state.borrow() {
            LinkState::Connected(up) => Some(up.clone()),
            _ => None,
        }
    }

    /// How it is, and every change of that.
    pub fn watch_state(&self) -> watch::Receiver<LinkState> {
        self.state.clone()
    }

    /// Ends it at once, whatever is under way.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl fmt::Debug for Reconnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tether").field(&*self.state.borrow()).finish()
    }
}

enum Never {}

struct ReconnectTask {
    broker: Arc<dyn Broker>,
    rng: fastrand::Rng,
    status_sink: StatusSink,
    state_sender: watch::Sender<LinkState>,
    backoff: Backoff,
    epoch: u64,
    /// What was said last, so that it is said once.
    last_report: Option<std::mem::Discriminant<LinkReport>>,
}

impl ReconnectTask {
    async fn run(mut self) -> Never {
        loop {
            let pause = match self.connect().await {
                Ok(link) => {
                    let began = Instant::now();
                    self.hold_until_lost(link).await;
                    if began.elapsed() >= STABLE_AFTER {
                        self.backoff.reset();
                    }
                    self.backoff.next(&mut self.rng)
                }
                Err(refusal) => {
                    self.report_refusal(&refusal);
                    let pause = match &refusal {
                        BrokerConnectError::Unreachable(_) => self.backoff.next(&mut self.rng),
                        BrokerConnectError::Credentials(_) => {
                            CREDENTIALS_RETRY_DELAY / 2
                                + CREDENTIALS_RETRY_DELAY.mul_f64(self.rng.f64() / 2.0)
                        }
                    };
                    self.state_sender.send_replace(LinkState::Disconnected { why: Some(refusal) });
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn connect(&self) -> Result<Arc<dyn RelayLink>, BrokerConnectError> {
        match tokio::time::timeout(CONNECT, self.broker.connect()).await {
            Ok(connected) => connected,
            Err(_) => {
                Err(BrokerConnectError::Unreachable(format!("no answer within {} s", CONNECT.as_secs())))
            }
        }
    }

    /// Hands out the connection until it is lost.
    async fn hold_until_lost(&mut self, link: Arc<dyn RelayLink>) {
        self.epoch += 1;
        self.report_once(LinkReport::Connected { address: self.broker.address() });
        self.state_sender.send_replace(LinkState::Connected(BrokerConnection {
            link: Arc::clone(&link),
            epoch: self.epoch,
        }));
        let why = link.ended().await;
        link.close();
        self.report_once(LinkReport::Lost { address: self.broker.address(), why: why.clone() });
        self.state_sender
            .send_replace(LinkState::Disconnected { why: Some(BrokerConnectError::Unreachable(why)) });
    }

    fn report_refusal(&mut self, refusal: &BrokerConnectError) {
        let place = self.broker.address();
        match refusal {
            // Who has just lost it knows that it is waited for.
            BrokerConnectError::Unreachable(_) if self.last_report == Some(lost_discriminant()) => {}
            BrokerConnectError::Unreachable(why) => {
                self.report_once(LinkReport::Unreachable { address: place, why: why.clone() })
            }
            BrokerConnectError::Credentials(why) => {
                self.report_once(LinkReport::Refused { address: place, why: why.clone() })
            }
        }
    }

    fn report_once(&mut self, report: LinkReport) {
        let kind = std::mem::discriminant(&report);
        if self.last_report.replace(kind) != Some(kind) {
            (self.status_sink)(&report);
        }
    }
}

fn lost_discriminant() -> std::mem::Discriminant<LinkReport> {
    std::mem::discriminant(&LinkReport::Lost { address: String::new(), why: String::new() })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::broker::memory::{BrokerPermissions, MemoryBroker};

    type ReportLog = Arc<Mutex<Vec<String>>>;

    fn start(broker: Arc<dyn Broker>) -> (Reconnector, ReportLog) {
        let said = ReportLog::default();
        let sink = Arc::clone(&said);
        let say: StatusSink = Arc::new(move |report: &LinkReport| {
            let text = report.to_string();
            sink.lock().unwrap_or_else(|error| panic!("{error}")).push(text);
        });
        (Reconnector::start(broker, fastrand::Rng::with_seed(7), say), said)
    }

    fn lines(said: &ReportLog) -> Vec<String> {
        said.lock().unwrap_or_else(|error| panic!("{error}")).clone()
    }

    async fn wait_connected(tether: &Reconnector) -> u64 {
        let mut situation = tether.watch_state();
        let up = situation.wait_for(|situation| matches!(situation, LinkState::Connected(_))).await;
        match up.as_deref() {
            Ok(LinkState::Connected(up)) => up.epoch,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_down_at_the_start_is_waited_for_and_that_is_said_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (tether, said) = start(broker.for_user("a", BrokerPermissions::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        broker.come_up();
        assert_eq!(wait_connected(&tether).await, 1);
        let expected = [
            "the broker at memory can't be reached, waiting for it: the broker is down",
            "connected to the broker at memory",
        ];
        assert_eq!(lines(&said), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_made_again_within_the_longest_pause() {
        let broker = MemoryBroker::new();
        let (tether, _) = start(broker.for_user("a", BrokerPermissions::all()));
        for epoch in 1..=50 {
            let within = tokio::time::timeout(PAUSE.1, wait_connected(&tether));
            assert_eq!(within.await, Ok(epoch));
            broker.disconnect("a");
            let mut situation = tether.watch_state();
            let is_down = |situation: &LinkState| !matches!(situation, LinkState::Connected(_));
            assert!(situation.wait_for(is_down).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_credentials_are_said_once_and_tried_slowly() {
        let broker = MemoryBroker::new();
        let (tether, said) = start(broker.with_bad_credentials("a"));
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(tether.connection().is_none());
        let expected = ["the broker at memory does not accept the credentials: the credentials are wrong"];
        assert_eq!(lines(&said), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_a_pause_at_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (tether, _) = start(broker.for_user("a", BrokerPermissions::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        tether.close();
        let mut situation = tether.watch_state();
        assert!(situation.wait_for(|situation| matches!(situation, LinkState::Closed)).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_connection() {
        let broker = MemoryBroker::new();
        let (tether, _) = start(broker.for_user("a", BrokerPermissions::all()));
        wait_connected(&tether).await;
        assert_eq!(broker.link_count(), 1);
        drop(tether);
        while broker.link_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
