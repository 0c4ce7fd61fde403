//! Check of the outcomes that callers got against the executions of the servers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;

use crate::caller_load::{EndedCall, LoadCallEnd};
use crate::site::Site;

/// Deadline of a call at a worker: the server's own timeout, and two seconds for the host's answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Summary of a load.
pub(crate) struct OutcomeTally {
    pub(crate) ok: usize,
    pub(crate) unknown: usize,
    pub(crate) unrun: usize,
    /// Largest overrun of a call's deadline.
    overrun: Duration,
    /// Longest time of a caller from one success to the next.
    outage: Duration,
    /// Errors of calls that did not succeed, with their counts.
    reasons: BTreeMap<String, usize>,
}

/// Asserts that every call ran at most once, that successful ones ran, that those reported as not run did not, and that
/// all of them ended in time.
pub(crate) fn check(calls: &[EndedCall], sites: &[Site]) -> OutcomeTally {
    let runs = count(sites);
    for (number, count) in &runs {
        assert_eq!(*count, 1, "the call {number} ran {count} times");
    }
    let mut told = HashMap::new();
    for call in calls {
        let ran = runs.contains_key(&call.number);
        match call.end {
            LoadCallEnd::Ok => assert!(ran, "it never ran: {call:?}"),
            LoadCallEnd::Unrun => assert!(!ran, "it ran all the same: {call:?}"),
            LoadCallEnd::Unknown => {}
        }
        assert!(call.took() < DEADLINE + SLACK, "it took too long: {call:?}");
        assert!(told.insert(call.number, ()).is_none(), "it ended twice: {call:?}");
    }
    assert!(runs.keys().all(|number| told.contains_key(number)), "something ran that nobody asked for");
    let with = |end: LoadCallEnd| calls.iter().filter(|call| call.end == end).count();
    OutcomeTally {
        ok: with(LoadCallEnd::Ok),
        unknown: with(LoadCallEnd::Unknown),
        unrun: with(LoadCallEnd::Unrun),
        overrun: calls.iter().map(|call| call.took().saturating_sub(DEADLINE)).max().unwrap_or_default(),
        outage: outage(calls),
        reasons: reasons(calls),
    }
}

impl OutcomeTally {
    /// Prints a summary in one line, and the errors.
    pub(crate) fn print(&self, what: &str, kills: usize) {
        let Self { ok, unknown, unrun, overrun, outage, reasons } = self;
        println!(
            "{what}: {kills} kills, {ok} ok, {unknown} unknown, {unrun} not run, none twice; longest outage of a \
             caller {outage:.1?}, largest overrun of a deadline {overrun:.1?}"
        );
        reasons.iter().for_each(|(reason, count)| println!("  {count} × {reason}"));
    }
}

/// Returns the number of executions of each call.
fn count(sites: &[Site]) -> HashMap<u64, usize> {
    let mut runs = HashMap::new();
    for line in sites.iter().flat_map(Site::ledger) {
        *runs.entry(number(&line)).or_default() += 1;
    }
    runs
}

/// Returns the number of the call in a line of a ledger.
fn number(line: &str) -> u64 {
    let arguments = line.splitn(4, '\t').nth(3).unwrap_or_else(|| panic!("{line}"));
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{error}: {line}"));
    arguments["n"].as_u64().unwrap_or_else(|| panic!("{line}"))
}

fn outage(calls: &[EndedCall]) -> Duration {
    let mut last = HashMap::new();
    let mut longest = Duration::ZERO;
    for call in calls.iter().filter(|call| call.end == LoadCallEnd::Ok) {
        if let Some(before) = last.insert(call.caller, call.ended) {
            longest = longest.max(call.ended - before);
        }
    }
    longest
}

fn reasons(calls: &[EndedCall]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for call in calls.iter().filter(|call| call.end != LoadCallEnd::Ok) {
        let reason = format!("{:?}: {}", call.end, call.told["error"]["message"]);
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}
