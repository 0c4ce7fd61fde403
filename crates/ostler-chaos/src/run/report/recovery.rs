//! Recovery times: from an act to the next successful call to the same target.

use std::collections::{BTreeMap, HashMap};

use ostler_chaos::history::{CallEnd, CallNumber, CallRoute, HistoryEvent, Invoke, Micros, Purpose};
use serde::Serialize;

/// Times until the first success of a call that began after the act.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct Recovery {
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Acts without a success before the next act on the same target.
    pub(super) without: usize,
}

/// An act that is over and has no recovery yet.
struct EndedAct<'a> {
    act: &'a str,
    over: Micros,
}

/// Returns the recoveries by kind of act.
pub(super) fn measure(history: &[HistoryEvent]) -> BTreeMap<String, Recovery> {
    let mut open: HashMap<&str, Vec<EndedAct<'_>>> = HashMap::new();
    let mut calls: HashMap<CallNumber, &Invoke> = HashMap::new();
    let mut times: BTreeMap<String, Vec<Micros>> = BTreeMap::new();
    let mut without: BTreeMap<String, usize> = BTreeMap::new();
    for event in history {
        match event {
            HistoryEvent::Nemesis { target, begins: true, .. } => {
                for lost in open.remove(target.as_str()).unwrap_or_default() {
                    *without.entry(lost.act.to_owned()).or_default() += 1;
                }
            }
            HistoryEvent::Nemesis { act, target, at, begins: false } => {
                open.entry(target).or_default().push(EndedAct { act, over: *at });
            }
            HistoryEvent::Invoke(invoke) if matches!(invoke.purpose, Purpose::Once | Purpose::Sick) => {
                calls.insert(invoke.call, invoke);
            }
            HistoryEvent::End { call, at, end } => {
                let Some(invoke) = calls.remove(call) else { continue };
                if !matches!(end, CallEnd::Ok { .. }) {
                    continue;
                }
                for target in proven_targets(invoke) {
                    let Some(acts) = open.get_mut(target) else { continue };
                    acts.retain(|act| {
                        let is_after = invoke.at >= act.over;
                        if is_after {
                            times.entry(act.act.to_owned()).or_default().push(at - act.over);
                        }
                        !is_after
                    });
                }
            }
            _ => {}
        }
    }
    let mut recoveries: BTreeMap<String, Recovery> =
        times.into_iter().map(|(act, times)| (act, Recovery::from_times(times))).collect();
    for (act, count) in without {
        recoveries.entry(act).or_default().without = count;
    }
    recoveries
}

/// Returns the targets that a successful call proves to work.
fn proven_targets(invoke: &Invoke) -> impl Iterator<Item = &str> {
    let way = match invoke.way {
        CallRoute::Relay => Some("relay"),
        CallRoute::Stdio => Some("stdio"),
        CallRoute::HttpLegacy | CallRoute::HttpModern | CallRoute::HttpFace => Some("clients"),
    };
    let broker = (invoke.way == CallRoute::Relay).then_some("broker");
    [Some(invoke.server.as_str()), Some("daemon"), way, broker].into_iter().flatten()
}

impl Recovery {
    fn from_times(mut times: Vec<Micros>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let rank = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len());
            times[rank - 1] as f64 / 1e3
        };
        Self { count: times.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0), without: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, server: &str, at: Micros, took: Micros) -> [HistoryEvent; 2] {
        let invoke = Invoke {
            call: CallNumber(number),
            at,
            way: CallRoute::HttpModern,
            principal: "ada".into(),
            role: "all".into(),
            server: server.into(),
            tool: "deed".into(),
            purpose: Purpose::Once,
            deadline: at + 1_000_000,
        };
        let end = CallEnd::Ok { echoed: Some(CallNumber(number)), stamp: None };
        [HistoryEvent::Invoke(invoke), HistoryEvent::End { call: CallNumber(number), at: at + took, end }]
    }

    #[test]
    fn a_recovery_is_the_first_good_answer_of_a_later_call_of_that_server() {
        let act =
            |at, begins| HistoryEvent::Nemesis { at, act: "kill-server".into(), target: "a".into(), begins };
        let [early, early_end] = call(1, "a", 900, 500);
        let mut history = vec![early, act(1_000, true), act(1_000, false), early_end];
        history.extend(call(2, "b", 1_100, 10));
        history.extend(call(3, "a", 2_000, 3_000));
        let measured = measure(&history);
        assert_eq!(
            measured["kill-server"],
            Recovery { count: 1, p50_ms: 4.0, p99_ms: 4.0, max_ms: 4.0, without: 0 }
        );
    }
}
