//! Patience: how long people wait, and what they are told meanwhile.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_core::status::{ServerStatus, Stage, State};

use crate::invocation::command;
use crate::output::{clean, tell};

/// How long work may take before it is worth a word.
const SLOW: Duration = Duration::from_secs(1);

/// Time between two words about the same start, for a person and for a log.
const EVERY: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];

/// Does work, and says something if it takes long.
pub(super) async fn patiently<T>(work: impl Future<Output = T>, say: impl FnOnce()) -> T {
    let mut work = pin!(work);
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            say();
            work.await
        }
    }
}

/// How long a server may take for a list before it is named, with what to do about it.
const SLOW_LIST: Duration = Duration::from_secs(3);

/// What a person may do who does not want to wait for a list.
fn do_not_wait() -> String {
    format!(
        "waiting: Ctrl-C gives up; {} asks one server alone, {} shows what it says",
        command("tools NAME"),
        command("status NAME --probe")
    )
}

/// Asks servers for lists, and tells on stderr which of them are waited for.
pub(super) async fn listing<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let slow = async {
        tokio::time::sleep(SLOW_LIST).await;
        let statuses = statuses().await;
        // A start is told by itself, and a server that sleeps is not asked.
        let is_asked = |it: &&ServerStatus| {
            it.start.is_none() && it.state == State::Ready && (it.in_flight > 0 || it.tools.is_none())
        };
        for status in statuses.iter().filter(is_asked) {
            tell(&format!("waiting: `{}` has not answered with its list yet", status.name));
        }
        tell(&do_not_wait());
    };
    let mut work = pin!(reporting(work, &statuses));
    tokio::select! {
        biased;
        done = &mut work => done,
        () = slow => work.await,
    }
}

/// Does work, and tells on stderr which starts it waits for.
pub(super) async fn reporting<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let mut work = pin!(work);
    let mut told: HashMap<ServerName, (Stage, Instant)> = HashMap::new();
    let mut advised: HashSet<ServerName> = HashSet::new();
    let every = EVERY[usize::from(!std::io::stderr().is_terminal())];
    loop {
        // Neither the work nor the look at it may hold up the other.
        let look = async {
            tokio::time::sleep(SLOW).await;
            statuses().await
        };
        let statuses = tokio::select! {
            biased;
            done = &mut work => return done,
            statuses = look => statuses,
        };
        for status in statuses {
            let Some(start) = status.start else { continue };
            let is_told = told
                .get(&status.name)
                .is_some_and(|(stage, at)| *stage == start.stage && at.elapsed() < every);
            if !is_told {
                tell(&clean(&format!("waiting: `{}` {start}", status.name)));
                if let Some(hint) = &start.hint
                    && advised.insert(status.name.clone())
                {
                    tell(&clean(&format!("  hint: {hint}")));
                }
                told.insert(status.name, (start.stage, Instant::now()));
            }
        }
    }
}

/// The end of somebody's patience.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    patience: Duration,
}

impl Deadline {
    /// That long from now.
    pub(crate) fn after(patience: Duration) -> Self {
        Self { began: Instant::now(), patience }
    }

    /// How long somebody wanted to wait.
    pub(crate) fn patience(self) -> Duration {
        self.patience
    }

    /// Whether it has come.
    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// What is left until then.
    pub(super) fn left(self) -> Duration {
        self.patience.saturating_sub(self.began.elapsed())
    }

    /// Work for a server, before anything is sent to it that could do harm.
    pub(crate) async fn bound<T, E: From<CallError>>(
        deadline: Option<Self>,
        server: &ServerName,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some(deadline) = deadline else { return work.await };
        tokio::time::timeout(deadline.left(), work).await.unwrap_or_else(|_| {
            let after = deadline.patience;
            Err(CallError::TimedOut { server: server.clone(), after, delivery: Delivery::NotSent }.into())
        })
    }
}
