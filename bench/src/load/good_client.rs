//! Good client: makes one call after another while other clients misbehave.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::http::LoadConnection;
use super::mcp;
use super::result_rows::LoadRow;

/// Pause between two calls.
const PAUSE: Duration = Duration::from_millis(5);

/// An answer that takes longer counts as an error.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// A client that calls `echo` of the server `good` again and again.
pub(crate) struct GoodClient {
    stats: Rc<RefCell<GoodClientStats>>,
    task: tokio::task::JoinHandle<()>,
}

/// The good client's counts and times.
#[derive(Debug, Default, Clone)]
pub(crate) struct GoodClientStats {
    times: Vec<Duration>,
    pub(crate) errors: usize,
    pub(crate) last_error: Option<String>,
}

impl GoodClient {
    /// Starts the client; needs a `LocalSet`.
    pub(crate) fn start(address: SocketAddr) -> Self {
        let stats = Rc::new(RefCell::new(GoodClientStats::default()));
        let task = tokio::task::spawn_local(call_repeatedly(address, Rc::clone(&stats)));
        Self { stats, task }
    }

    /// Returns the statistics since the last call.
    pub(crate) fn take_stats(&self) -> GoodClientStats {
        self.stats.take()
    }
}

impl Drop for GoodClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn call_repeatedly(address: SocketAddr, seen: Rc<RefCell<GoodClientStats>>) {
    let request = mcp::call("good", "echo", r#"{"text":"how do you do"}"#);
    let mut connection = None;
    loop {
        let began = Instant::now();
        let outcome = tokio::time::timeout(CALL_TIMEOUT, async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => LoadConnection::open(address).await.map_err(|error| error.to_string())?,
            };
            let answer = open.request(&request).await.map_err(|error| error.to_string())?;
            match answer.is_result() {
                true => Ok(open),
                false => Err(format!("{} {}", answer.head, String::from_utf8_lossy(&answer.body))),
            }
        });
        let outcome = outcome.await.unwrap_or_else(|_| Err("no answer".into()));
        match outcome {
            Ok(open) => {
                connection = Some(open);
                seen.borrow_mut().times.push(began.elapsed());
            }
            Err(why) => {
                seen.borrow_mut().errors += 1;
                seen.borrow_mut().last_error = Some(why);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl GoodClientStats {
    /// Makes a row of its statistics during the disruption, beside those before.
    pub(crate) fn row(&self, part: &'static str, figure: impl Into<String>, before: &Self) -> LoadRow {
        LoadRow::new(part, figure, format!("{self}; before: {before}")).aim("no error", self.errors == 0)
    }

    /// Returns the duration of each call.
    pub(crate) fn into_times(self) -> Vec<Duration> {
        self.times
    }

    pub(crate) fn quantile(&self, of: f64) -> Duration {
        quantile(&self.times, of)
    }
}

impl std::fmt::Display for GoodClientStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "p50 {}, p99 {}, max {} of {}, {} errors",
            ms(self.quantile(0.5)),
            ms(self.quantile(0.99)),
            ms(self.quantile(1.0)),
            self.times.len(),
            self.errors
        )?;
        self.last_error.as_ref().map_or(Ok(()), |why| write!(f, " ({})", why.lines().next().unwrap_or("")))
    }
}

/// Returns the quantile `of`.
pub(crate) fn quantile(times: &[Duration], of: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * of) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// Formats a duration in milliseconds.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
