//! Patience: how long people wait, and what they are told meanwhile.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;

use crate::output::{count, tell};

/// How long work may take before it is worth a word.
const SLOW: Duration = Duration::from_secs(1);

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

/// For people who wait; a script reads what comes of it.
pub(super) fn say_starting(servers: usize) {
    if std::io::stderr().is_terminal() {
        tell(&format!("waiting for {}…", count(servers, "server")));
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
