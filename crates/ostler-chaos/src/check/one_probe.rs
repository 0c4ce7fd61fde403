//! `OneProbe`: an open breaker admits one probe at a time.
//!
//! The breaker itself is not in the records; its state is inferred from the answers that callers
//! got. The daemon settles a call before it answers. So once a caller has seen enough failures, all
//! admitted while the breaker was closed, the breaker is open for that caller at least. From then
//! on, its later calls are checked: none begins before the wait is over, and then they begin one at
//! a time, each after twice the wait. Any event that might have closed the breaker ends the check.

mod timeline;

use std::collections::BTreeSet;

use self::timeline::{ExecutionRun, TimelineEvent, breaker_events};
use super::records::Records;
use super::{CLOCK_TOLERANCE, Promise, Violation};
use crate::history::{HistoryEvent, Micros};

/// The longest wait that doubling reaches.
const MAX_WAIT: Micros = 300_000_000;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let callers = callers(records);
    let pairs = breakers(records).flat_map(|settings| callers.iter().map(move |caller| (settings, *caller)));
    pairs.flat_map(|(settings, caller)| check_caller(records, settings, caller)).collect()
}

/// Counts the failures that the promise is checked against: without any, no breaker opens.
pub(super) fn count(records: &Records<'_>) -> usize {
    let callers = callers(records);
    let failures = |settings: KnownBreaker<'_>| {
        let steps = callers.iter().flat_map(|caller| breaker_events(records, settings.server, caller));
        steps.filter(|(_, step)| matches!(step, TimelineEvent::Failed(_))).count()
    };
    breakers(records).map(failures).sum()
}

fn callers<'a>(records: &Records<'a>) -> BTreeSet<&'a str> {
    records.calls().iter().map(|call| &*call.invoke.principal).collect()
}

fn breakers<'a>(records: &Records<'a>) -> impl Iterator<Item = KnownBreaker<'a>> {
    records.history.iter().filter_map(|event| match event {
        HistoryEvent::Breaker { server, failures, wait } if *failures > 0 => {
            Some(KnownBreaker { server, failures: *failures as usize, wait: *wait })
        }
        _ => None,
    })
}

/// The settings of a server's breaker.
#[derive(Clone, Copy)]
struct KnownBreaker<'a> {
    server: &'a str,
    failures: usize,
    wait: Micros,
}

/// The certain knowledge about a breaker.
enum BreakerKnowledge<'a> {
    /// No more than these failures, in the order of their ends.
    Unknown(Vec<ExecutionRun<'a>>),
    Open(OpenBreaker<'a>),
}

struct OpenBreaker<'a> {
    /// Calls made before this may have been admitted before.
    opened_at: Micros,
    /// No call is admitted earlier.
    earliest_probe: Micros,
    wait: Micros,
    /// The last admitted call whose caller has waited for its answer.
    probe: Option<ExecutionRun<'a>>,
}

fn check_caller(records: &Records<'_>, settings: KnownBreaker<'_>, caller: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut phase = BreakerKnowledge::Unknown(Vec::new());
    // Calls made before `since` are not checked, nor any while something resets the breaker.
    let (mut since, mut clearing) = (0, 0_usize);
    for (at, step) in breaker_events(records, settings.server, caller) {
        match step {
            TimelineEvent::Reset { begins } => {
                clearing = if begins { clearing + 1 } else { clearing.saturating_sub(1) };
                since = at;
                phase = BreakerKnowledge::Unknown(Vec::new());
            }
            TimelineEvent::Succeeded { until } => {
                since = since.max(until);
                phase = BreakerKnowledge::Unknown(Vec::new());
            }
            TimelineEvent::Failed(run) => {
                if let BreakerKnowledge::Unknown(failures) = &mut phase
                    && run.called_at >= since
                    && clearing == 0
                {
                    failures.push(run);
                    if let Some(open) = open_after(failures, settings, at) {
                        phase = BreakerKnowledge::Open(open);
                    }
                }
            }
            TimelineEvent::Started(run) => {
                if let BreakerKnowledge::Open(open) = &mut phase {
                    found.extend(open.check_admitted(records, run));
                }
            }
        }
    }
    found
}

/// Returns the open breaker after enough failures within less than the wait: had it been open in
/// between, they could not all have been admitted. The last of them was admitted before it opened,
/// so it stays open for the wait from there at least.
fn open_after<'a>(
    failures: &[ExecutionRun<'a>],
    settings: KnownBreaker<'_>,
    now: Micros,
) -> Option<OpenBreaker<'a>> {
    let last = failures.len().checked_sub(settings.failures).map(|from| &failures[from..])?;
    let made = last.iter().map(|run| run.called_at);
    let (first, latest) = (made.clone().min()?, made.max()?);
    if now >= first + settings.wait {
        return None;
    }
    Some(OpenBreaker {
        opened_at: now,
        earliest_probe: latest + settings.wait,
        wait: settings.wait,
        probe: None,
    })
}

impl<'a> OpenBreaker<'a> {
    fn check_admitted(&mut self, records: &Records<'_>, run: ExecutionRun<'a>) -> Option<Violation> {
        if run.called_at <= self.opened_at {
            return None;
        }
        let earlier = self.probe.take();
        let fault = match earlier {
            // A call whose caller has left may have been admitted before, and be late.
            Some(probe) if !run.is_certain && run.called_at <= probe.answered => {
                self.probe = Some(probe);
                return None;
            }
            Some(probe) if run.execution.began + CLOCK_TOLERANCE < probe.ended => {
                Some("while that was under way")
            }
            Some(probe) if probe.execution.has_failed => {
                self.wait = self.wait.saturating_mul(2).min(MAX_WAIT);
                self.earliest_probe = probe.ended + self.wait;
                self.is_early(run).then_some("before the wait after that was over")
            }
            _ => self.is_early(run).then_some("before the wait was over"),
        };
        let violation = fault.map(|why| self.violation(records, run, earlier, why));
        self.probe = if run.is_certain { Some(run) } else { earlier };
        violation
    }

    fn is_early(&self, run: ExecutionRun<'_>) -> bool {
        run.execution.began + CLOCK_TOLERANCE < self.earliest_probe
    }

    fn violation(
        &self,
        records: &Records<'_>,
        run: ExecutionRun<'_>,
        earlier: Option<ExecutionRun<'_>>,
        why: &str,
    ) -> Violation {
        let tell = |run: ExecutionRun<'_>| {
            let call = records.call(run.call).map(|call| records.describe_call(call)).unwrap_or_default();
            format!("{call}, {}", records.describe_execution(run.execution))
        };
        let before = earlier.map(|run| format!(", after {}", tell(run))).unwrap_or_default();
        let what = format!(
            "the breaker has been open since {} at the latest, next wait over {}{before}; and yet, {why}: {}",
            records.format_time(self.opened_at),
            records.format_time(self.earliest_probe),
            tell(run)
        );
        let calls = earlier.into_iter().map(|run| run.call).chain([run.call]);
        Violation::new(Promise::OneProbe, calls, what)
    }
}

#[cfg(test)]
mod tests;
