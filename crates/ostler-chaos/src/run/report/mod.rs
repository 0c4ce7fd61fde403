//! Report of a run: checks the records and counts the ends of calls.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use ostler_chaos::check::{Evidence, Violation, check, evidence, is_whole};
use ostler_chaos::history::{CallEnd, CallNumber, HistoryEvent, Invoke};
use ostler_chaos::ledger::{self, Execution};
use serde::Serialize;

use super::HISTORY;

mod daemon_samples;
mod print;
mod recovery;

pub(crate) use daemon_samples::DaemonSamples;
pub(crate) use recovery::Recovery;

/// The most panics in one report.
const PANICS: usize = 5;

/// Counts of the ends of calls of one kind.
#[derive(Debug, Default, Clone, Serialize)]
pub(crate) struct EndCounts {
    calls: u64,
    good: u64,
    failed: u64,
    unknown: u64,
}

/// The report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<String>,
    seconds: f64,
    by_way: BTreeMap<String, EndCounts>,
    by_purpose: BTreeMap<String, EndCounts>,
    /// Counts of the reasons for failed and unknown calls.
    reasons: BTreeMap<String, u64>,
    acts: BTreeMap<String, u64>,
    recoveries: BTreeMap<String, Recovery>,
    executions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    vitals: Option<DaemonSamples>,
    promises: Vec<PromiseReport>,
    violations: Vec<Violation>,
    /// Defects of the run itself, which belong to no promise.
    mishaps: Vec<String>,
    /// The length of the daemon's log, if there is one.
    log_lines: Option<usize>,
    /// Lines of both records for the violations that are shown in full.
    #[serde(skip)]
    excerpts: Vec<String>,
}

impl RunReport {
    /// Reads the records of a folder and checks them.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let history = read_history(&folder.join(HISTORY))?;
        let executions = read_ledgers(&folder.join("ledgers"))?;
        let violations = check(&history, &executions);
        let promises = outcomes(evidence(&history, &executions), &violations);
        let mut mishaps = Vec::new();
        if !is_whole(&history) {
            mishaps.push("the history does not go on to the end of the run: calls that were under way seem never to end".into());
        }
        let log = read_log(&folder.join("daemon.log"))?;
        mishaps.extend(log.as_deref().map(panics).unwrap_or_default());
        let excerpts = violations
            .iter()
            .take(print::SHOWN)
            .map(|broken| excerpt(broken, &history, &executions))
            .collect();
        let mut report = Self {
            seed: None,
            again: None,
            seconds: duration_secs(&history),
            by_way: BTreeMap::new(),
            by_purpose: BTreeMap::new(),
            reasons: BTreeMap::new(),
            acts: BTreeMap::new(),
            recoveries: recovery::measure(&history),
            executions: executions.len(),
            vitals: None,
            promises,
            violations,
            mishaps,
            log_lines: log.map(|text| text.lines().count()),
            excerpts,
        };
        report.count(&history);
        Ok(report)
    }

    /// Adds the data that the records do not hold.
    pub(crate) fn complete(&mut self, mut samples: DaemonSamples, seed: u64, again: String) {
        self.mishaps.append(&mut samples.mishaps);
        self.vitals = Some(samples);
        self.seed = Some(seed);
        self.again = Some(again);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.violations.is_empty() && self.mishaps.is_empty()
    }

    fn count(&mut self, history: &[HistoryEvent]) {
        let mut open: BTreeMap<CallNumber, &Invoke> = BTreeMap::new();
        for event in history {
            match event {
                HistoryEvent::Invoke(invoke) => {
                    open.insert(invoke.call, invoke);
                }
                HistoryEvent::End { call, end, .. } => {
                    let Some(invoke) = open.remove(call) else { continue };
                    self.by_way.entry(serialized_name(&invoke.way)).or_default().add(end);
                    self.by_purpose.entry(serialized_name(&invoke.purpose)).or_default().add(end);
                    if let Some(reason) = reason(end) {
                        *self.reasons.entry(reason).or_default() += 1;
                    }
                }
                HistoryEvent::Nemesis { act, begins: true, .. } => {
                    *self.acts.entry(act.clone()).or_default() += 1
                }
                _ => {}
            }
        }
    }
}

impl EndCounts {
    fn add(&mut self, end: &CallEnd) {
        self.calls += 1;
        match end {
            CallEnd::Ok { .. } => self.good += 1,
            CallEnd::Fail { .. } => self.failed += 1,
            CallEnd::Unknown { .. } => self.unknown += 1,
        }
    }
}

fn reason(end: &CallEnd) -> Option<String> {
    match end {
        CallEnd::Ok { .. } => None,
        CallEnd::Fail { kind, ran, .. } => Some(format!("failed, ran {}: {kind}", serialized_name(ran))),
        CallEnd::Unknown { why } => Some(format!("unknown: {why}")),
    }
}

/// Returns the name of a value in the records.
fn serialized_name(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn duration_secs(history: &[HistoryEvent]) -> f64 {
    let at = |event: &HistoryEvent| match event {
        HistoryEvent::Invoke(invoke) => Some(invoke.at),
        HistoryEvent::End { at, .. } | HistoryEvent::Nemesis { at, .. } | HistoryEvent::Census { at, .. } => {
            Some(*at)
        }
        _ => None,
    };
    let first = history.iter().find_map(at).unwrap_or_default();
    history.iter().rev().find_map(at).unwrap_or_default().saturating_sub(first) as f64 / 1e6
}

fn read_log(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", file.display())),
    }
}

/// Returns the panics in the log. A caught panic counts too.
fn panics(log: &str) -> Vec<String> {
    let panics = log.lines().filter(|line| line.contains("panicked at"));
    panics.take(PANICS).map(|line| format!("the daemon's log: {line}")).collect()
}

fn read_history(file: &Path) -> anyhow::Result<Vec<HistoryEvent>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", file.display(), number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

fn read_ledgers(folder: &Path) -> anyhow::Result<Vec<Execution>> {
    let mut executions = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))? {
        let file = entry?.path();
        let read = ledger::load(&file).with_context(|| format!("can't use {}", file.display()))?;
        executions.extend(read);
    }
    executions.sort_by_key(|execution| execution.began);
    Ok(executions)
}

/// The verdict on a promise. Kept means: checked against something, without a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum PromiseOutcome {
    Kept,
    Broken,
    NotTried,
}

/// A promise with the evidence for it.
#[derive(Debug, Serialize)]
struct PromiseReport {
    #[serde(flatten)]
    evidence: Evidence,
    ruling: PromiseOutcome,
}

fn outcomes(evidence: Vec<Evidence>, violations: &[Violation]) -> Vec<PromiseReport> {
    let of = |evidence: Evidence| {
        let is_broken = violations.iter().any(|violation| violation.promise == evidence.promise);
        let ruling = match evidence.count {
            _ if is_broken => PromiseOutcome::Broken,
            0 => PromiseOutcome::NotTried,
            _ => PromiseOutcome::Kept,
        };
        PromiseReport { evidence, ruling }
    };
    evidence.into_iter().map(of).collect()
}

impl fmt::Display for PromiseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::NotTried => "not tried",
        })
    }
}

/// Lines of each record that are enough to show a violation.
const LINES: usize = 12;

fn excerpt(violation: &Violation, history: &[HistoryEvent], executions: &[Execution]) -> String {
    let calls: HashSet<CallNumber> = violation.calls.iter().copied().collect();
    let events = history.iter().filter(|event| call_of(event).is_some_and(|call| calls.contains(&call)));
    let run = executions.iter().filter(|execution| execution.call.is_some_and(|call| calls.contains(&call)));
    let events = events.take(LINES).map(|event| format!("  history: {}\n", line(event)));
    let run = run.take(LINES).map(|execution| format!("  ledger:  {}\n", line(execution)));
    events.chain(run).collect()
}

fn call_of(event: &HistoryEvent) -> Option<CallNumber> {
    match event {
        HistoryEvent::Invoke(invoke) => Some(invoke.call),
        HistoryEvent::End { call, .. } => Some(*call),
        _ => None,
    }
}

fn line(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}
