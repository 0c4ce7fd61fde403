//! Reconnector: keeps one connection to the broker until it is closed.
//!
//! ```text
//!                    connected                  lost
//!  disconnected ────────────▶ connected ──────────────────▶ disconnected
//!      │ ▲                                                  100 ms – 5 s, full jitter;
//!      └─┘ failed: retry                                    wrong credentials: 15 – 30 s
//! ```
//!
//! One task makes all connection attempts and every caller waits for that task, so that a broker which comes
//! back sees one attempt instead of one per call. The task retries without limit and stops at once on close.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::{Broker, BrokerConnectError, RelayLink};

/// Timeout of one connection attempt.
const CONNECT: Duration = Duration::from_secs(5);

/// First and last ceiling of the retry delay.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Retry delay after refused credentials, at least half of it: only an operator can correct them.
const CREDENTIALS_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Duration after which a connection counts as stable and resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Connection event for the log and the terminal, reported once per change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkReport {
    /// The broker is unreachable; the task retries.
    Unreachable {
        /// Address of the broker.
        address: String,
        /// Error of the last attempt.
        why: String,
    },
    /// The broker rejects the credentials; the task retries slowly.
    Refused {
        /// Address of the broker.
        address: String,
        /// The broker's error.
        why: String,
    },
    /// The connection is established.
    Connected {
        /// Address of the broker.
        address: String,
    },
    /// The connection was lost; the task reconnects.
    Lost {
        /// Address of the broker.
        address: String,
        /// Reason that the link gave.
        why: String,
    },
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, why } => {
                write!(f, "the broker at {address} can't be reached, waiting for it: {why}")
            }
            Self::Refused { address, why } => {
                write!(f, "the broker at {address} does not accept the credentials: {why}")
            }
            Self::Connected { address } => write!(f, "connected to the broker at {address}"),
            Self::Lost { address, why } => {
                write!(f, "the connection to the broker at {address} was lost: {why}")
            }
        }
    }
}

/// Callback that takes connection events.
pub type StatusSink = Arc<dyn Fn(&LinkReport) + Send + Sync>;

/// State of the connection.
#[derive(Clone)]
pub enum LinkState {
    /// No connection; the task retries.
    Disconnected {
        /// Error of the last attempt; `None` before the first.
        why: Option<BrokerConnectError>,
    },
    /// One live connection.
    Connected(BrokerConnection),
    /// Closed; no connection follows.
    Closed,
}

impl LinkState {
    /// Returns whether the connection of this epoch is up.
    pub(crate) fn is_connected(&self, epoch: u64) -> bool {
        matches!(self, Self::Connected(connection) if connection.epoch == epoch)
    }
}

/// One live connection and its epoch.
#[derive(Clone)]
pub struct BrokerConnection {
    /// Link of this epoch; once ended it never comes back.
    pub link: Arc<dyn RelayLink>,
    /// Number of this connection, counted from one for each reconnector.
    pub epoch: u64,
}

impl fmt::Debug for BrokerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrokerConnection").field(&self.epoch).finish()
    }
}

impl fmt::Debug for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected { why } => f.debug_struct("Disconnected").field("why", why).finish(),
            Self::Connected(connection) => connection.fmt(f),
            Self::Closed => f.write_str("Closed"),
        }
    }
}

/// Handle of the reconnect task. Dropping it closes the connection.
pub struct Reconnector {
    state: watch::Receiver<LinkState>,
    closed: watch::Sender<bool>,
}

impl Reconnector {
    /// Starts the reconnect task.
    pub fn start(broker: Arc<dyn Broker>, rng: fastrand::Rng, status_sink: StatusSink) -> Self {
        let (state_sender, state) = watch::channel(LinkState::Disconnected { why: None });
        let (closed, mut close_requested) = watch::channel(false);
        tokio::spawn(async move {
            let backoff = Backoff::new(PAUSE.0, PAUSE.1);
            let task = ReconnectTask {
                broker,
                rng,
                status_sink,
                state_sender,
                backoff,
                epoch: 0,
                last_report: None,
            };
            let state_sender = task.state_sender.clone();
            tokio::select! {
                never = task.run() => match never {},
                _ = close_requested.wait_for(|close_requested| *close_requested) => {}
            }
            let last = state_sender.send_replace(LinkState::Closed);
            if let LinkState::Connected(connection) = last {
                connection.link.close();
            }
        });
        Self { state, closed }
    }

    /// Returns the current connection.
    pub fn connection(&self) -> Option<BrokerConnection> {
        match &*self.state.borrow() {
            LinkState::Connected(connection) => Some(connection.clone()),
            _ => None,
        }
    }

    /// Subscribes to the connection state.
    pub fn watch_state(&self) -> watch::Receiver<LinkState> {
        self.state.clone()
    }

    /// Closes the connection at once and aborts an attempt in progress.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl fmt::Debug for Reconnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reconnector").field(&*self.state.borrow()).finish()
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
    /// Kind of the last report; prevents repeating it.
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

    /// Publishes the connection and waits until it is lost.
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
        let address = self.broker.address();
        match refusal {
            // `Lost` was reported and implies the retry.
            BrokerConnectError::Unreachable(_) if self.last_report == Some(lost_discriminant()) => {}
            BrokerConnectError::Unreachable(why) => {
                self.report_once(LinkReport::Unreachable { address, why: why.clone() })
            }
            BrokerConnectError::Credentials(why) => {
                self.report_once(LinkReport::Refused { address, why: why.clone() })
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
        let reports = ReportLog::default();
        let sink = Arc::clone(&reports);
        let status_sink: StatusSink = Arc::new(move |report: &LinkReport| {
            let text = report.to_string();
            sink.lock().unwrap_or_else(|error| panic!("{error}")).push(text);
        });
        (Reconnector::start(broker, fastrand::Rng::with_seed(7), status_sink), reports)
    }

    fn lines(reports: &ReportLog) -> Vec<String> {
        reports.lock().unwrap_or_else(|error| panic!("{error}")).clone()
    }

    async fn wait_connected(reconnector: &Reconnector) -> u64 {
        let mut link_state = reconnector.watch_state();
        let connection =
            link_state.wait_for(|link_state| matches!(link_state, LinkState::Connected(_))).await;
        match connection.as_deref() {
            Ok(LinkState::Connected(connection)) => connection.epoch,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_down_at_the_start_is_waited_for_and_that_is_said_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (reconnector, reports) = start(broker.for_user("a", BrokerPermissions::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        broker.come_up();
        assert_eq!(wait_connected(&reconnector).await, 1);
        let expected = [
            "the broker at memory can't be reached, waiting for it: the broker is down",
            "connected to the broker at memory",
        ];
        assert_eq!(lines(&reports), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_made_again_within_the_longest_pause() {
        let broker = MemoryBroker::new();
        let (reconnector, _) = start(broker.for_user("a", BrokerPermissions::all()));
        for epoch in 1..=50 {
            let within = tokio::time::timeout(PAUSE.1, wait_connected(&reconnector));
            assert_eq!(within.await, Ok(epoch));
            broker.disconnect("a");
            let mut link_state = reconnector.watch_state();
            let is_down = |link_state: &LinkState| !matches!(link_state, LinkState::Connected(_));
            assert!(link_state.wait_for(is_down).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_credentials_are_said_once_and_tried_slowly() {
        let broker = MemoryBroker::new();
        let (reconnector, reports) = start(broker.with_bad_credentials("a"));
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(reconnector.connection().is_none());
        let expected = ["the broker at memory does not accept the credentials: the credentials are wrong"];
        assert_eq!(lines(&reports), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_a_pause_at_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (reconnector, _) = start(broker.for_user("a", BrokerPermissions::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        reconnector.close();
        let mut link_state = reconnector.watch_state();
        assert!(link_state.wait_for(|link_state| matches!(link_state, LinkState::Closed)).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_connection() {
        let broker = MemoryBroker::new();
        let (reconnector, _) = start(broker.for_user("a", BrokerPermissions::all()));
        wait_connected(&reconnector).await;
        assert_eq!(broker.link_count(), 1);
        drop(reconnector);
        while broker.link_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
