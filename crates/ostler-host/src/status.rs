//! Status of servers, for operators and for callers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::breaker::BreakerState;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::spec::Isolation;
use ostler_core::status::{
    LastError, ProcessStatus, Restarts, ServerState, ServerStatus, StartStage, StartStatus,
};
use ostler_core::supervisor::{Phase, ServerFailure, Supervisor};
use tokio::time::Instant;

use crate::host::Host;
use crate::lists::Kind;
use crate::registry::UnusableServer;
use crate::server::Server;
use crate::server::slot::Slot;

impl Host {
    /// Returns the status of every server, sorted by name.
    pub fn status(&self) -> Vec<ServerStatus> {
        let current = self.current();
        let servers = current.servers.values().map(|server| self.describe(server));
        by_name(servers.chain(current.unusable.values().map(UnusableServer::status)).collect())
    }

    /// Describes the servers that a caller may see: failures and definitions only where the caller may use all of the
    /// server, and nothing of other callers' own sessions.
    pub fn visible_status(&self, caller: &Caller) -> Vec<ServerStatus> {
        let describe = |server: &Arc<Server>| {
            if server.spec.isolation != Isolation::Shared {
                return ServerStatus::registered(&server.spec);
            }
            let mut status = self.describe(server);
            if self.is_restricted_at(caller, server.spec.name.as_str()) {
                (status.invalid_definitions, status.last_error) = (None, None);
            }
            status
        };
        let unusable = |it: &UnusableServer| match self.is_restricted_at(caller, it.spec().name.as_str()) {
            true => ServerStatus { last_error: None, ..it.status() },
            false => it.status(),
        };
        let current = self.current();
        let servers = self.visible_servers(caller);
        by_name(
            servers.iter().map(describe).chain(current.unusable_visible_to(caller).map(unusable)).collect(),
        )
    }

    /// Returns the status of one server.
    pub fn status_of(&self, name: &str) -> Result<ServerStatus, CallError> {
        match self.current().unusable.get(name) {
            Some(unusable) => Ok(unusable.status()),
            None => Ok(self.describe(&self.server(name)?)),
        }
    }

    /// Returns the reason why a server with a status can't be used at all: it is disabled, or its spec could not be
    /// registered.
    pub fn unusable_reason(&self, name: &str) -> Option<CallError> {
        self.current().unusable.get(name).map(UnusableServer::error)
    }

    /// Returns the timeouts of a server's calls: without a sign of progress, and in total.
    pub fn call_timeouts(&self, name: &str) -> Option<(Duration, Duration)> {
        let current = self.current();
        current.servers.get(name).map(|server| (server.spec.call_timeout, server.spec.max_call_time))
    }

    /// Describes a server. One with a process per caller is described by the sum of its sessions, and by the state of
    /// the one that is furthest up.
    fn describe(&self, server: &Arc<Server>) -> ServerStatus {
        let slots = server.slots();
        let each: Vec<ServerStatus> = slots.iter().map(|slot| describe(slot)).collect();
        let mut processes: Vec<ProcessStatus> = Vec::new();
        if server.spec.isolation != Isolation::Shared {
            let up = slots.iter().zip(&each).filter(|(_, status)| status.state != ServerState::Idle);
            processes.extend(up.map(|(slot, status)| process_status(slot, status)));
            processes.sort_by(|a, b| (&a.of, a.pid).cmp(&(&b.of, b.pid)));
        }
        let whole = each.into_iter().reduce(merge);
        let mut whole = whole.unwrap_or_else(|| ServerStatus::registered(&server.spec));
        whole.processes = processes;
        whole.containment = server.connector.containment();
        self.add_pin_counts(server, &mut whole);
        slots.iter().for_each(|slot| slot.flush_misses());
        whole.card = self.known_card(server).map(Into::into);
        whole.cache = self.cache().stats_of(&server.spec.name);
        whole
    }
}

fn by_name(mut statuses: Vec<ServerStatus>) -> Vec<ServerStatus> {
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

/// Describes a process by its principal. A session's name is left out: it is the right to send in
/// that session.
fn process_status(slot: &Slot, status: &ServerStatus) -> ProcessStatus {
    let of = slot.session_owner().unwrap_or(&slot.key.partition).to_owned();
    let ServerStatus { state, pid, in_flight, uptime_ms, .. } = *status;
    ProcessStatus { of, state, pid, in_flight, uptime_ms }
}

fn describe(slot: &Slot) -> ServerStatus {
    let now = Instant::now().into_std();
    let live = slot.state().live.clone();
    // Read before the state is locked again: it takes the session's own lock.
    let vitals = live.as_ref().map(|live| live.session.stats()).unwrap_or_default();
    let start = slot.startup.load().as_ref().map(|startup| startup.status());
    let desk = slot.state();
    let supervisor = &desk.supervisor;
    let (used, budget) = supervisor.restarts(now);
    let circuit = supervisor.circuit(now);
    ServerStatus {
        state: state_of(supervisor.phase(), start.as_ref()),
        active: live.is_some(),
        pid: vitals.pid.or_else(|| start.as_ref()?.pid),
        protocol: live.as_ref().map(|live| live.session.server_info().version.clone()),
        generation: supervisor.generation(),
        leases: supervisor.leases(),
        in_flight: slot.call_queue.permits_in_use(),
        queued: slot.call_queue.waiting(),
        restarts: Restarts { used, budget },
        starts_total: supervisor.generation(),
        consecutive_failures: supervisor.consecutive_failures(),
        circuit: circuit.into(),
        held_back: supervisor.held_back(),
        retry_after_ms: retry_after(supervisor, circuit, now),
        ejected: matches!(supervisor.phase(), Phase::Ejected { .. }),
        start,
        last_error: supervisor.failure().map(|failure| last_error(slot, failure, now)),
        uptime_ms: live.as_ref().map(|live| millis(live.since.elapsed())),
        start_ms: live.as_ref().map(|live| millis(live.start.took)),
        start_wait_ms: live.map(|live| millis(live.start.waited)),
        tools: slot.cached_list(Kind::Tools).map(|known| known.items.len()),
        left_out: Kind::ALL
            .into_iter()
            .filter_map(|kind| slot.cached_list(kind))
            .map(|known| known.left_out)
            .sum(),
        invalid_definitions: slot.invalid_definitions(),
        skipped_lines: vitals.skipped_lines,
        dropped_notifications: vitals.dropped_notifications,
        ..ServerStatus::registered(&slot.spec)
    }
}

fn state_of(phase: &Phase, start: Option<&StartStatus>) -> ServerState {
    match phase {
        Phase::Idle => ServerState::Idle,
        Phase::Starting { .. } => match start.map(|start| start.stage) {
            Some(StartStage::WaitingForDownload | StartStage::Fetching) => ServerState::Fetching,
            _ => ServerState::Starting,
        },
        Phase::Ready { .. } => ServerState::Ready,
        Phase::Backoff { .. } => ServerState::Backoff,
        Phase::Ejected { .. } => ServerState::Ejected,
        Phase::NeedsAuth { .. } => ServerState::NeedsAuth,
        Phase::Draining { .. } => ServerState::Draining,
        Phase::Stopped => ServerState::Stopped,
    }
}

fn retry_after(supervisor: &Supervisor, circuit: BreakerState, now: std::time::Instant) -> Option<u64> {
    match (supervisor.phase(), circuit) {
        (Phase::Backoff { .. } | Phase::NeedsAuth { .. } | Phase::Ejected { .. }, _) => {
            supervisor.next_wake().map(|until| millis(until.saturating_duration_since(now)))
        }
        (_, BreakerState::Open { retry_after }) => Some(millis(retry_after)),
        _ => None,
    }
}

fn last_error(slot: &Slot, failure: &ServerFailure, now: std::time::Instant) -> LastError {
    LastError {
        message: failure.kind.to_string(),
        cause: failure.cause.clone(),
        hint: slot.remedy_of(failure),
        exit: failure.exit,
        stderr: failure.stderr.clone(),
        seconds_ago: now.saturating_duration_since(failure.at).as_secs(),
    }
}

fn merge(a: ServerStatus, b: ServerStatus) -> ServerStatus {
    let (mut top, other) = if rank(a.state) >= rank(b.state) { (a, b) } else { (b, a) };
    top.active |= other.active;
    top.leases += other.leases;
    top.in_flight += other.in_flight;
    top.queued += other.queued;
    top.held_back += other.held_back;
    top.starts_total += other.starts_total;
    top.skipped_lines += other.skipped_lines;
    top.dropped_notifications += other.dropped_notifications;
    top.last_error = top.last_error.or(other.last_error);
    top
}

fn rank(state: ServerState) -> u8 {
    match state {
        ServerState::Ready => 7,
        ServerState::Starting | ServerState::Fetching => 6,
        ServerState::Draining => 5,
        ServerState::Backoff => 4,
        ServerState::Ejected => 3,
        ServerState::NeedsAuth => 2,
        ServerState::Idle => 1,
        ServerState::Stopped | ServerState::Disabled => 0,
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
