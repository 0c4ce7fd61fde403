//! `PolicyEverywhere`: tools that a role may not use neither run nor are listed, on any route.

use std::collections::HashSet;

use super::records::{Records, route_name};
use super::{Promise, Violation};
use crate::history::{CallEnd, HistoryEvent, Purpose, Ran};

pub(super) fn check(records: &Records<'_>) -> Vec<Violation> {
    let mut found: Vec<Violation> = executed(records).collect();
    found.extend(listed_forbidden(records));
    found
}

/// Finds forbidden calls that ran, or were answered by their server.
fn executed<'r>(records: &'r Records<'_>) -> impl Iterator<Item = Violation> + 'r {
    let forbidden = records.calls().iter().filter(|call| call.invoke.purpose == Purpose::Forbidden);
    forbidden.filter_map(|call| {
        let runs = records.executions_of(call.invoke.call);
        let is_answered =
            matches!(call.end, Some((_, CallEnd::Ok { .. } | CallEnd::Fail { ran: Ran::Yes, .. })));
        if runs.is_empty() && !is_answered {
            return None;
        }
        let ran: Vec<String> = runs.iter().map(|run| records.describe_execution(run)).collect();
        let ran = if ran.is_empty() { "no execution bears its number".into() } else { ran.join("; ") };
        let what = format!(
            "{} is forbidden and was let through: {ran}; its caller got {}",
            records.describe_call(call),
            records.describe_end(call)
        );
        Some(Violation::new(Promise::PolicyEverywhere, [call.invoke.call], what))
    })
}

/// Finds lists that name tools that their reader may not use.
fn listed_forbidden<'r>(records: &'r Records<'_>) -> impl Iterator<Item = Violation> + 'r {
    let forbidden = forbidden(records);
    records.history.iter().filter_map(move |event| {
        let HistoryEvent::Listed { at, way, principal, role, tools } = event else { return None };
        let seen: Vec<&str> = tools
            .iter()
            .filter(|tool| forbidden.contains(&(&**role, (*tool).clone())))
            .map(String::as_str)
            .collect();
        if seen.is_empty() {
            return None;
        }
        let what = format!(
            "{principal}, role {role}, was shown {} by {}, {}",
            seen.join(", "),
            route_name(*way),
            records.format_time(*at)
        );
        Some(Violation::new(Promise::PolicyEverywhere, [], what))
    })
}

/// Returns the forbidden tools of each role: those that the run declares, and those of forbidden
/// calls.
fn forbidden<'a>(records: &Records<'a>) -> HashSet<(&'a str, String)> {
    let mut forbidden = HashSet::new();
    for event in records.history {
        match event {
            HistoryEvent::Forbidden { role, tools } => {
                forbidden.extend(tools.iter().map(|tool| (&**role, tool.clone())));
            }
            HistoryEvent::Invoke(invoke) if invoke.purpose == Purpose::Forbidden => {
                forbidden.insert((&*invoke.role, format!("{}__{}", invoke.server, invoke.tool)));
            }
            _ => {}
        }
    }
    forbidden
}

#[cfg(test)]
mod tests {
    use super::super::history_builder::{HistoryBuilder, MS, call, execution, failed, ok, refused, unknown};
    use super::{HistoryEvent, Promise, Purpose};
    use crate::history::{CallRoute, Invoke};
    use crate::ledger::Execution;

    fn forbidden(number: u64) -> Invoke {
        let (principal, role, tool) = ("cyd".into(), "some".into(), "misdeed".into());
        let purpose = Purpose::Forbidden;
        Invoke { principal, role, tool, purpose, way: CallRoute::Relay, ..call(number, 0) }
    }

    fn listed(role: &str, tools: &[&str]) -> HistoryEvent {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        HistoryEvent::Listed {
            at: 8 * MS,
            way: CallRoute::HttpFace,
            principal: "cyd".into(),
            role: role.into(),
            tools,
        }
    }

    #[test]
    fn refused_calls_and_lists_without_them_are_fine() {
        let builder = HistoryBuilder::default()
            .successful(call(1, 0))
            .invoke(forbidden(2))
            .end(2, MS, refused())
            .invoke(forbidden(3))
            .end(3, MS, unknown())
            .event(listed("some", &["a__deed", "b__misdeed"]))
            .event(listed("all", &["a__deed", "a__misdeed"]));
        builder.assert_kept(Promise::PolicyEverywhere);
    }

    #[test]
    fn a_forbidden_call_that_ran_is_found_whatever_its_caller_was_told() {
        let run = || Execution { tool: "misdeed".into(), ..execution(1, MS, 2 * MS) };
        for end in [refused(), unknown(), ok(1)] {
            let builder = HistoryBuilder::default().invoke(forbidden(1)).executed(run()).end(1, 3 * MS, end);
            builder.assert_broken(
                Promise::PolicyEverywhere,
                &[1],
                &["#1", "cyd", "role some", "relay", "a/misdeed", "process 7", "+0.001000 s"],
            );
        }
    }

    #[test]
    fn an_answer_is_enough_where_no_ledger_shows_it() {
        for end in [ok(1), failed()] {
            let builder = HistoryBuilder::default().invoke(forbidden(1)).end(1, 3 * MS, end);
            builder.assert_broken(Promise::PolicyEverywhere, &[1], &["let through"]);
        }
    }

    #[test]
    fn a_list_that_shows_what_is_forbidden_names_its_way_and_reader() {
        let shown = || HistoryBuilder::default().event(listed("some", &["a__deed", "a__misdeed"]));
        let rule = HistoryEvent::Forbidden { role: "some".into(), tools: vec!["a__misdeed".into()] };
        for builder in [shown().invoke(forbidden(1)).end(1, MS, refused()), shown().event(rule)] {
            builder.assert_broken(
                Promise::PolicyEverywhere,
                &[],
                &["cyd", "role some", "a__misdeed", "http-face", " s"],
            );
        }
    }
}
