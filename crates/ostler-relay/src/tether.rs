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

use crate::broker::{Broker, Link, Refusal};

/// How long one attempt may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The first and the last ceiling of a pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The pause where only a person can help, at least half of it.
const SLOW: Duration = Duration::from_secs(30);

/// A connection that lasted this long was a good one: the next pause is short.
const GOOD: Duration = Duration::from_secs(1);

/// What is said to people about the connection, once for each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The broker can't be reached, and is waited for.
    Waiting {
        /// Where it should be.
        place: String,
        /// Why not.
        why: String,
    },
    /// The broker does not accept the credentials; they are tried again slowly.
    Refused {
        /// Where it is.
        place: String,
        /// What it says.
        why: String,
    },
    /// The connection is there.
    Connected {
        /// Where to.
        place: String,
    },
    /// The connection was lost.
    Lost {
        /// Where to.
        place: String,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { place, why } => {
                write!(f, "the broker at {place} can't be reached, waiting for it: {why}")
            }
            Self::Refused { place, why } => {
                write!(f, "the broker at {place} does not accept the credentials: {why}")
            }
            Self::Connected { place } => write!(f, "connected to the broker at {place}"),
            Self::Lost { place, why } => write!(f, "the connection to the broker at {place} was lost: {why}"),
        }
    }
}

/// Takes what is said to people.
pub type Say = Arc<dyn Fn(&Report) + Send + Sync>;

/// How the connection is.
#[derive(Clone)]
pub enum Situation {
    /// There is none.
    Waiting {
        /// Why the last attempt failed; none before the first.
        why: Option<Refusal>,
    },
    /// There is one.
    Up(Up),
    /// There will be none any more.
    Over,
}

/// A connection, and the how manieth it is.
#[derive(Clone)]
pub struct Up {
    /// The connection.
    pub link: Arc<dyn Link>,
    /// Counts connections, from one.
    pub epoch: u64,
}

impl fmt::Debug for Up {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Up").field(&self.epoch).finish()
    }
}

impl fmt::Debug for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { why } => f.debug_struct("Waiting").field("why", why).finish(),
            Self::Up(up) => up.fmt(f),
            Self::Over => f.write_str("Over"),
        }
    }
}

/// Keeps one connection to the broker. Dropping it ends that.
pub struct Tether {
    situation: watch::Receiver<Situation>,
    over: watch::Sender<bool>,
}

impl Tether {
    /// Begins to connect.
    pub fn start(broker: Arc<dyn Broker>, chance: fastrand::Rng, say: Say) -> Self {
        let (tell, situation) = watch::channel(Situation::Waiting { why: None });
        let (over, mut is_over) = watch::channel(false);
        tokio::spawn(async move {
            let backoff = Backoff::new(PAUSE.0, PAUSE.1);
            let keeping = Keeping { broker, chance, say, tell, backoff, epoch: 0, said: None };
            let tell = keeping.tell.clone();
            tokio::select! {
                never = keeping.run() => match never {},
                _ = is_over.wait_for(|is_over| *is_over) => {}
            }
            let last = tell.send_replace(Situation::Over);
            if let Situation::Up(up) = last {
                up.link.close();
            }
        });
        Self { situation, over }
    }

    /// The connection of this moment.
    pub fn up(&self) -> Option<Up> {
        match &*self.situation.borrow() {
            Situation::Up(up) => Some(up.clone()),
            _ => None,
        }
    }

    /// How it is, and every change of that.
    pub fn situation(&self) -> watch::Receiver<Situation> {
        self.situation.clone()
    }

    /// Ends it at once, whatever is under way.
    pub fn close(&self) {
        self.over.send_replace(true);
    }
}

impl fmt::Debug for Tether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tether").field(&*self.situation.borrow()).finish()
    }
}

enum Never {}

struct Keeping {
    broker: Arc<dyn Broker>,
    chance: fastrand::Rng,
    say: Say,
    tell: watch::Sender<Situation>,
    backoff: Backoff,
    epoch: u64,
    /// What was said last, so that it is said once.
    said: Option<std::mem::Discriminant<Report>>,
}

impl Keeping {
    async fn run(mut self) -> Never {
        loop {
            let pause = match self.connect().await {
                Ok(link) => {
                    let began = Instant::now();
                    self.keep(link).await;
                    if began.elapsed() >= GOOD {
                        self.backoff.reset();
                    }
                    self.backoff.next(&mut self.chance)
                }
                Err(refusal) => {
                    self.report_refusal(&refusal);
                    let pause = match &refusal {
                        Refusal::Away(_) => self.backoff.next(&mut self.chance),
                        Refusal::Credentials(_) => SLOW / 2 + SLOW.mul_f64(self.chance.f64() / 2.0),
                    };
                    self.tell.send_replace(Situation::Waiting { why: Some(refusal) });
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn connect(&self) -> Result<Arc<dyn Link>, Refusal> {
        match tokio::time::timeout(CONNECT, self.broker.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(Refusal::Away(format!("no answer within {} s", CONNECT.as_secs()))),
        }
    }

    /// Hands out the connection until it is lost.
    async fn keep(&mut self, link: Arc<dyn Link>) {
        self.epoch += 1;
        self.say(Report::Connected { place: self.broker.place() });
        self.tell.send_replace(Situation::Up(Up { link: Arc::clone(&link), epoch: self.epoch }));
        let why = link.ended().await;
        link.close();
        self.say(Report::Lost { place: self.broker.place(), why: why.clone() });
        self.tell.send_replace(Situation::Waiting { why: Some(Refusal::Away(why)) });
    }

    fn report_refusal(&mut self, refusal: &Refusal) {
        let place = self.broker.place();
        match refusal {
            // Who has just lost it knows that it is waited for.
            Refusal::Away(_) if self.said == Some(lost()) => {}
            Refusal::Away(why) => self.say(Report::Waiting { place, why: why.clone() }),
            Refusal::Credentials(why) => self.say(Report::Refused { place, why: why.clone() }),
        }
    }

    fn say(&mut self, report: Report) {
        let kind = std::mem::discriminant(&report);
        if self.said.replace(kind) != Some(kind) {
            (self.say)(&report);
        }
    }
}

fn lost() -> std::mem::Discriminant<Report> {
    std::mem::discriminant(&Report::Lost { place: String::new(), why: String::new() })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::broker::memory::{MemoryBroker, Rights};

    type Said = Arc<Mutex<Vec<String>>>;

    fn start(broker: Arc<dyn Broker>) -> (Tether, Said) {
        let said = Said::default();
        let sink = Arc::clone(&said);
        let say: Say = Arc::new(move |report: &Report| {
            let text = report.to_string();
            sink.lock().unwrap_or_else(|error| panic!("{error}")).push(text);
        });
        (Tether::start(broker, fastrand::Rng::with_seed(7), say), said)
    }

    fn lines(said: &Said) -> Vec<String> {
        said.lock().unwrap_or_else(|error| panic!("{error}")).clone()
    }

    async fn wait_up(tether: &Tether) -> u64 {
        let mut situation = tether.situation();
        let up = situation.wait_for(|situation| matches!(situation, Situation::Up(_))).await;
        match up.as_deref() {
            Ok(Situation::Up(up)) => up.epoch,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_down_at_the_start_is_waited_for_and_that_is_said_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (tether, said) = start(broker.door("a", Rights::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        broker.come_up();
        assert_eq!(wait_up(&tether).await, 1);
        let expected = [
            "the broker at memory can't be reached, waiting for it: the broker is down",
            "connected to the broker at memory",
        ];
        assert_eq!(lines(&said), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_made_again_within_the_longest_pause() {
        let broker = MemoryBroker::new();
        let (tether, _) = start(broker.door("a", Rights::all()));
        for epoch in 1..=50 {
            let within = tokio::time::timeout(PAUSE.1, wait_up(&tether));
            assert_eq!(within.await, Ok(epoch));
            broker.cut("a");
            let mut situation = tether.situation();
            let is_down = |situation: &Situation| !matches!(situation, Situation::Up(_));
            assert!(situation.wait_for(is_down).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_credentials_are_said_once_and_tried_slowly() {
        let broker = MemoryBroker::new();
        let (tether, said) = start(broker.wrong_door("a"));
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(tether.up().is_none());
        let expected = ["the broker at memory does not accept the credentials: the credentials are wrong"];
        assert_eq!(lines(&said), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_a_pause_at_once() {
        let broker = MemoryBroker::new();
        broker.go_down();
        let (tether, _) = start(broker.door("a", Rights::all()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        tether.close();
        let mut situation = tether.situation();
        assert!(situation.wait_for(|situation| matches!(situation, Situation::Over)).await.is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_connection() {
        let broker = MemoryBroker::new();
        let (tether, _) = start(broker.door("a", Rights::all()));
        wait_up(&tether).await;
        assert_eq!(broker.links(), 1);
        drop(tether);
        while broker.links() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
