//! The host in memory: scripted servers in paused time. Every test checks one promise of the host.

#![expect(clippy::unwrap_used, reason = "what tests share fails like a test")]

mod applying;
mod breaker;
mod budget;
mod cache;
mod concealment;
mod delivery;
mod fairness;
mod hosts;
mod idle_servers;
mod leases;
mod lifecycle;
mod lifecycle_events;
mod list_changes;
mod list_kinds;
mod listing;
mod liveness;
mod overload;
mod persisted_lists;
mod pins;
mod pool;
mod registration;
mod request_subject;
mod resolving;
mod roles;
mod sealed_tokens;
mod starting;
mod subscriptions;
mod validation;

use std::time::Duration;

use ostler_core::error::{CallError, UnavailableState};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the state that keeps a server from being called, by the error.
fn state_of(error: &CallError) -> UnavailableState {
    match error {
        CallError::Unavailable(unavailable) => unavailable.state,
        other => panic!("not about an unavailable server: {other:?}"),
    }
}

/// Returns the codes of all failures, sorted and counted.
fn codes(results: &[ostler_testkit::Result]) -> Vec<(&'static str, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for result in results {
        *counts.entry(result.as_ref().map_or_else(CallError::code, |_| "ok")).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}
