//! Messages about waiting: deadlines of commands, and progress on stderr meanwhile.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use ostler_core::error::CallError;
use ostler_core::fault::{Delivery, HumanDuration};
use ostler_core::server_name::ServerName;
use ostler_core::status::{ServerState, ServerStatus, StartStage, StartStatus};

use crate::invocation::command;
use crate::output::{self, escape_line, print_stderr};

/// Duration from which work is reported as slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Interval of messages about the same start, for a person and for a log.
const REPEAT_INTERVALS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];

/// Interval of the check whether a call waits for the retry of a failed start.
const RETRY_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Upper bound on server names in one line.
const MAX_NAMES: usize = 3;

/// Runs work, and prints a message if it is slow.
pub(super) async fn with_slow_message<T>(work: impl Future<Output = T>, say: impl FnOnce()) -> T {
    let mut work = pin!(work);
    match tokio::time::timeout(SLOW_AFTER, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            say();
            work.await
        }
    }
}

/// Duration from which a server with an unanswered list is named, with a remedy.
const SLOW_LIST_AFTER: Duration = Duration::from_secs(3);

/// Returns the remedy for a person who does not want to wait for a list.
fn waiting_hint() -> String {
    format!(
        "waiting: Ctrl-C gives up; {} asks one server alone, {} shows what it says",
        command("tools NAME"),
        command("status NAME --probe")
    )
}

/// Runs lists, and reports on stderr the servers that they wait for.
pub(super) async fn with_list_messages<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let slow = async {
        print_slow_lists(&statuses).await;
        print_stderr(&waiting_hint());
    };
    let mut work = pin!(with_start_messages(work, &statuses));
    tokio::select! {
        biased;
        done = &mut work => done,
        () = slow => work.await,
    }
}

/// Runs lists of named servers, and reports on stderr the servers that they wait for. Named servers can't be left out.
pub(super) async fn with_named_list_messages<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let mut work = pin!(with_start_messages(work, &statuses));
    tokio::select! {
        biased;
        done = &mut work => done,
        () = print_slow_lists(&statuses) => work.await,
    }
}

/// Reports the servers that have not answered with their lists after a while.
async fn print_slow_lists(statuses: impl AsyncFn() -> Vec<ServerStatus>) {
    tokio::time::sleep(SLOW_LIST_AFTER).await;
    let statuses = statuses().await;
    // Starts have messages of their own, and a sleeping server is not asked.
    let is_asked = |it: &&ServerStatus| {
        it.start.is_none() && it.state == ServerState::Ready && (it.in_flight > 0 || it.tools.is_none())
    };
    for status in statuses.iter().filter(is_asked) {
        print_stderr(&format!("waiting: `{}` has not answered with its list yet", status.name));
    }
}

/// Runs a call, and reports on stderr the start or the retry that it waits for.
pub(super) async fn with_retry_messages<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let retries = async {
        let mut told = None;
        loop {
            tokio::time::sleep(RETRY_POLL_INTERVAL).await;
            // A call waits for one server, and each of its failed starts is reported once.
            let told_of = statuses().await.iter().find_map(|it| Some((it.starts_total, retry_message(it)?)));
            if let Some((starts, retry)) = told_of
                && told.replace(starts) != Some(starts)
            {
                print_stderr(&escape_line(&retry));
            }
        }
    };
    tokio::select! {
        biased;
        done = with_start_messages(work, &statuses) => done,
        never = retries => never,
    }
}

/// Returns the failure of a server that a call waits for, and the time of its retry.
fn retry_message(status: &ServerStatus) -> Option<String> {
    let error = status.last_error.as_ref().filter(|_| status.state == ServerState::Backoff)?;
    let wait = HumanDuration(Duration::from_secs(status.retry_after_ms?.div_ceil(1_000)));
    let what = error.message.strip_prefix("the server ").unwrap_or(&error.message);
    Some(format!("waiting: `{}` {what}, next try in {wait}", status.name))
}

/// Runs work, and reports on stderr the starts that it waits for.
pub(super) async fn with_start_messages<T>(
    work: impl Future<Output = T>,
    statuses: impl AsyncFn() -> Vec<ServerStatus>,
) -> T {
    let mut work = pin!(work);
    let mut messages = StartMessages::default();
    let every = REPEAT_INTERVALS[usize::from(!std::io::stderr().is_terminal())];
    loop {
        // The work and the look at it must not delay each other.
        let look = async {
            tokio::time::sleep(SLOW_AFTER).await;
            statuses().await
        };
        let statuses = tokio::select! {
            biased;
            done = &mut work => return done,
            statuses = look => statuses,
        };
        let starts = statuses.into_iter().filter_map(|status| Some((status.name, status.start?)));
        for line in messages.take(starts.collect(), every) {
            print_stderr(&escape_line(&line));
        }
    }
}

/// Messages about starts that were printed.
#[derive(Default)]
struct StartMessages {
    told: HashMap<ServerName, (StartStage, Instant)>,
    advised: HashSet<ServerName>,
    /// Time of the last message about queued starts.
    told_waiting: Option<Instant>,
}

impl StartMessages {
    /// Returns the lines that are due: one for each running start, and one for all queued ones.
    fn take(&mut self, starts: Vec<(ServerName, StartStatus)>, every: Duration) -> Vec<String> {
        let (mut running, waiting): (Vec<_>, Vec<_>) =
            starts.into_iter().partition(|(_, start)| !start.stage.is_waiting());
        let mut lines = Vec::new();
        if waiting.len() <= 1 {
            running.extend(waiting);
        } else if self.told_waiting.is_none_or(|at| at.elapsed() >= every) {
            self.told_waiting = Some(Instant::now());
            let names = output::quote_names(waiting.iter().take(MAX_NAMES).map(|(name, _)| name.as_str()));
            let more = match waiting.len().saturating_sub(MAX_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!("waiting: {} servers wait for others to start: {names}{more}", waiting.len()));
        }
        for (name, start) in running {
            let is_told =
                self.told.get(&name).is_some_and(|(stage, at)| *stage == start.stage && at.elapsed() < every);
            if is_told {
                continue;
            }
            lines.push(format!("waiting: `{name}` {start}"));
            if let Some(hint) = &start.hint
                && self.advised.insert(name.clone())
            {
                lines.push(format!("  hint: {hint}"));
            }
            self.told.insert(name, (start.stage, Instant::now()));
        }
        lines
    }
}

/// Deadline of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Returns the deadline after a timeout.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { began: Instant::now(), timeout }
    }

    /// Returns the whole timeout.
    pub(crate) fn timeout(self) -> Duration {
        self.timeout
    }

    /// Returns whether the deadline has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the time until the deadline.
    pub(super) fn remaining(self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }

    /// Returns the time until the deadline in milliseconds, rounded up: a server that ends slightly early must not end
    /// before this deadline.
    pub(super) fn remaining_ms(self) -> u64 {
        u64::try_from(self.remaining().as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Bounds work for a server by the deadline, before anything is sent that could have effects.
    pub(crate) async fn bound<T, E: From<CallError>>(
        deadline: Option<Self>,
        server: &ServerName,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some(deadline) = deadline else { return work.await };
        tokio::time::timeout(deadline.remaining(), work).await.unwrap_or_else(|_| {
            let after = deadline.timeout;
            Err(CallError::TimedOut { server: server.clone(), after, delivery: Delivery::NotSent }.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::spec::ServerSpec;
    use ostler_core::status::LastError;

    use super::*;

    #[test]
    fn a_request_with_what_is_left_of_a_deadline_does_not_end_before_it() {
        // Less than a millisecond is left; it becomes less with every reading.
        let deadline = Deadline::after(Duration::from_millis(2_000) - Duration::from_nanos(1));
        let asked = Duration::from_millis(deadline.remaining_ms());
        assert!(asked >= deadline.remaining(), "{asked:?}");
        let longest =
            Deadline { began: Instant::now() + Duration::from_secs(60), timeout: Duration::from_nanos(1) };
        assert_eq!(longest.remaining_ms(), 1);
    }

    #[test]
    fn servers_that_wait_for_others_share_a_line() {
        let start = |stage| StartStatus {
            stage,
            downloader: None,
            pid: None,
            age_ms: 1_000,
            stderr: Vec::new(),
            serves_http: false,
            hint: None,
        };
        let starts = |stages: &[StartStage]| {
            let named = |(at, stage): (usize, &StartStage)| {
                (ServerName::new(&format!("s{at}")).unwrap(), start(*stage))
            };
            stages.iter().enumerate().map(named).collect::<Vec<_>>()
        };
        use StartStage::{Queued, Starting, WaitingForDownload};
        let (mut messages, hour) = (StartMessages::default(), Duration::from_secs(3_600));
        let lines = messages.take(starts(&[Starting, Queued, Queued, WaitingForDownload, Queued]), hour);
        let expected = [
            "waiting: 4 servers wait for others to start: `s1`, `s2`, `s3` and 1 more",
            "waiting: `s0` has been starting for 1s",
        ];
        assert_eq!(lines, expected);
        assert!(messages.take(starts(&[Starting, Queued, Queued]), hour).is_empty(), "told already");
        let last = messages.take(starts(&[Starting, Starting, Queued]), hour);
        assert_eq!(
            last,
            [
                "waiting: `s1` has been starting for 1s",
                "waiting: `s2` waits for other servers to start for 1s"
            ]
        );
        let again = messages.take(starts(&[Queued, Queued]), Duration::ZERO);
        assert_eq!(again, ["waiting: 2 servers wait for others to start: `s0`, `s1`"]);
    }

    #[test]
    fn a_failed_start_is_told_with_its_cause_and_the_next_try() {
        let spec = ServerSpec::stdio(ServerName::new("n500").unwrap(), "n500");
        let last_error = LastError {
            message: "the server answered HTTP 500".into(),
            cause: None,
            hint: None,
            exit: None,
            stderr: Vec::new(),
            seconds_ago: 1,
        };
        let mut status = ServerStatus {
            state: ServerState::Backoff,
            retry_after_ms: Some(2_100),
            last_error: Some(last_error),
            ..ServerStatus::registered(&spec)
        };
        let told = retry_message(&status).unwrap();
        assert_eq!(told, "waiting: `n500` answered HTTP 500, next try in 3s");
        status.state = ServerState::Starting;
        assert_eq!(retry_message(&status), None);
    }
}
