//! An open breaker lets one call through, to try.
//!
//! The breaker itself is not in the records; what it must have done is told from
//! what callers were answered. The daemon settles a call before it answers, so
//! once a caller has seen enough failures, all admitted while the breaker was
//! closed, it is open for that caller at least. From there on, its calls that were
//! not made before are held to it: none begins before the wait is over, and then
//! one at a time, each with twice the wait behind it. Whatever might have closed
//! the breaker, even if nobody knows, ends this.

mod timeline;

use std::collections::BTreeSet;

use self::timeline::{Run, Step, steps};
use super::records::Records;
use super::{CLOCK, Promise, Violation};
use crate::history::{Event, Micros};

/// The longest wait that doubling reaches.
const MAX_WAIT: Micros = 300_000_000;

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let callers = callers(records);
    let pairs = breakers(records).flat_map(|settings| callers.iter().map(move |caller| (settings, *caller)));
    pairs.flat_map(|(settings, caller)| check_caller(records, settings, caller)).collect()
}

/// How many failures of servers it is held against: without any, no breaker opens.
pub(super) fn count(records: &Records<'_>) -> usize {
    let callers = callers(records);
    let failures = |settings: Settings<'_>| {
        let steps = callers.iter().flat_map(|caller| steps(records, settings.server, caller));
        steps.filter(|(_, step)| matches!(step, Step::Failed(_))).count()
    };
    breakers(records).map(failures).sum()
}

fn callers<'a>(records: &Records<'a>) -> BTreeSet<&'a str> {
    records.calls().iter().map(|call| &*call.invoke.principal).collect()
}

fn breakers<'a>(records: &Records<'a>) -> impl Iterator<Item = Settings<'a>> {
    records.history.iter().filter_map(|event| match event {
        Event::Breaker { server, failures, wait } if *failures > 0 => {
            Some(Settings { server, failures: *failures as usize, wait: *wait })
        }
        _ => None,
    })
}

/// How the breaker of a server is set.
#[derive(Clone, Copy)]
struct Settings<'a> {
    server: &'a str,
    failures: usize,
    wait: Micros,
}

/// What is surely known about the breaker.
enum Phase<'a> {
    /// Nothing but these failures, the last of which came last.
    Perhaps(Vec<Run<'a>>),
    Open(Open<'a>),
}

struct Open<'a> {
    /// Calls made before this may have been let in before.
    tripped: Micros,
    /// No call is let in earlier.
    gate: Micros,
    wait: Micros,
    /// The last that was let in, and whose caller has waited for its answer.
    probe: Option<Run<'a>>,
}

fn check_caller(records: &Records<'_>, settings: Settings<'_>, caller: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut phase = Phase::Perhaps(Vec::new());
    // Calls made before this say nothing, nor do any while something clears the breaker.
    let (mut since, mut clearing) = (0, 0_usize);
    for (at, step) in steps(records, settings.server, caller) {
        match step {
            Step::Clearing { begins } => {
                clearing = if begins { clearing + 1 } else { clearing.saturating_sub(1) };
                since = at;
                phase = Phase::Perhaps(Vec::new());
            }
            Step::Worked { until } => {
                since = since.max(until);
                phase = Phase::Perhaps(Vec::new());
            }
            Step::Failed(run) => {
                if let Phase::Perhaps(failures) = &mut phase
                    && run.made >= since
                    && clearing == 0
                {
                    failures.push(run);
                    if let Some(open) = trip(failures, settings, at) {
                        phase = Phase::Open(open);
                    }
                }
            }
            Step::Began(run) => {
                if let Phase::Open(open) = &mut phase {
                    found.extend(open.let_in(records, run));
                }
            }
        }
    }
    found
}

/// Enough failures within less than the wait: had the breaker been open in
/// between, they could not all have been let in. The last of them was let in
/// before it opened, so it stays open for the wait from there at least.
fn trip<'a>(failures: &[Run<'a>], settings: Settings<'_>, now: Micros) -> Option<Open<'a>> {
    let last = failures.len().checked_sub(settings.failures).map(|from| &failures[from..])?;
    let made = last.iter().map(|run| run.made);
    let (first, latest) = (made.clone().min()?, made.max()?);
    if now >= first + settings.wait {
        return None;
    }
    Some(Open { tripped: now, gate: latest + settings.wait, wait: settings.wait, probe: None })
}

impl<'a> Open<'a> {
    fn let_in(&mut self, records: &Records<'_>, run: Run<'a>) -> Option<Violation> {
        if run.made <= self.tripped {
            return None;
        }
        let earlier = self.probe.take();
        let fault = match earlier {
            // One whose caller has left may have been let in before, and be late.
            Some(probe) if !run.is_certain && run.made <= probe.answered => {
                self.probe = Some(probe);
                return None;
            }
            Some(probe) if run.execution.began + CLOCK < probe.ended => Some("while that was under way"),
            Some(probe) if probe.execution.has_failed => {
                self.wait = self.wait.saturating_mul(2).min(MAX_WAIT);
                self.gate = probe.ended + self.wait;
                self.is_early(run).then_some("before the wait after that was over")
            }
            _ => self.is_early(run).then_some("before the wait was over"),
        };
        let violation = fault.map(|why| self.violation(records, run, earlier, why));
        self.probe = if run.is_certain { Some(run) } else { earlier };
        violation
    }

    fn is_early(&self, run: Run<'_>) -> bool {
        run.execution.began + CLOCK < self.gate
    }

    fn violation(
        &self,
        records: &Records<'_>,
        run: Run<'_>,
        earlier: Option<Run<'_>>,
        why: &str,
    ) -> Violation {
        let tell = |run: Run<'_>| {
            let call = records.call(run.call).map(|call| records.tell(call)).unwrap_or_default();
            format!("{call}, {}", records.tell_execution(run.execution))
        };
        let before = earlier.map(|run| format!(", after {}", tell(run))).unwrap_or_default();
        let what = format!(
            "the breaker has been open since {} at the latest, next wait over {}{before}; and yet, {why}: {}",
            records.at(self.tripped),
            records.at(self.gate),
            tell(run)
        );
        let calls = earlier.into_iter().map(|run| run.call).chain([run.call]);
        Violation::new(Promise::OneProbe, calls, what)
    }
}

#[cfg(test)]
mod tests;
