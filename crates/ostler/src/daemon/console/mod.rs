//! Console of the daemon: one line on stderr for each lifecycle event of a server.
//!
//! Each line says what happened, why, and which command to type next. A server that flaps gets [`MAX_LINES_PER_MINUTE`]
//! lines a minute and then one that sums up. A thread of its own writes the lines, so a terminal that does not read
//! blocks no server.

mod line_quota;
mod messages;
mod writer;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use ostler_core::config::redact_tokens;
use ostler_host::{Host, LifecycleEvent, LifecycleEventKind, OperatorAction};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use self::line_quota::{LineDecision, LineQuota};
use self::messages::{CauseText, ConsoleMessage};
use self::writer::ConsoleWriter;
use crate::invocation::Invocation;
use crate::output::{Style, Tint, escape_line};
use crate::time_text::log_time;

/// Lines about one server in a minute: a crash and its recovery five times over.
const MAX_LINES_PER_MINUTE: u32 = 10;

/// Time in which changed definitions of one list gather for one line.
const GATHER_TIME: Duration = Duration::from_millis(200);

/// Upper bound on the processes of one isolated server whose failures are kept. Recovery of others is not reported.
const MAX_PARTITIONS: usize = 64;

/// Upper bound on names of definitions in one line.
const MAX_NAMES: usize = 3;

/// Console of one daemon.
#[derive(Debug)]
pub(crate) struct Console {
    writer: ConsoleWriter,
    style: Style,
    /// True for a terminal: a time of day is enough there.
    is_terminal: bool,
    hints: Invocation,
    servers: Mutex<BTreeMap<String, ConsoleServer>>,
}

/// Console state of a server.
#[derive(Debug, Default)]
struct ConsoleServer {
    quota: LineQuota,
    /// Failures without a recovery, by partition.
    failures: BTreeMap<String, PartitionFailure>,
    /// True if an open breaker was reported.
    is_breaker_open: bool,
    /// Unapproved definitions, gathered for one line.
    unapproved: UnapprovedItems,
}

#[derive(Debug, Default)]
struct PartitionFailure {
    /// Failure whose consequence the same task reports next.
    unreported: Option<UnreportedFailure>,
    /// Last printed line: a repeated failure is printed once.
    last_message: Option<(ConsoleMessage, String)>,
}

#[derive(Debug)]
struct UnreportedFailure {
    was_up: bool,
    cause: String,
}

#[derive(Debug, Default)]
struct UnapprovedItems {
    names: Vec<String>,
    more: usize,
    is_refused: bool,
}

impl Console {
    /// Opens the console on stderr. Hints name the config as it was typed.
    pub(super) fn open(config: Option<&Path>) -> Arc<Self> {
        Arc::new(Self {
            writer: ConsoleWriter::stderr(),
            style: Style::stderr(),
            is_terminal: std::io::stderr().is_terminal(),
            hints: Invocation::new(config),
            servers: Mutex::default(),
        })
    }

    /// Returns the commands that lines name.
    pub(super) fn hints(&self) -> &Invocation {
        &self.hints
    }

    /// Prints lifecycle events of a host's servers from now on.
    pub(super) fn observe(self: &Arc<Self>, host: &Host) {
        let (console, secrets) = (Arc::clone(self), host.clone());
        host.add_observer(Arc::new(move |happening| {
            console.handle_event(happening, &|text| secrets.redact(&redact_tokens(text)).into_owned());
        }));
    }

    /// Writes a line after its time.
    pub(super) fn write_line(&self, tint: Tint, text: &str) {
        let stamp = log_time(SystemTime::now(), self.is_terminal);
        self.writer.write(format!(
            "{} {}",
            self.style.paint(Tint::Faint, &stamp),
            self.style.paint(tint, text)
        ));
    }

    /// Waits until all lines are written, at most `patience`.
    pub(super) fn close(&self, patience: Duration) {
        self.writer.close(patience);
    }

    fn handle_event(self: &Arc<Self>, happening: &LifecycleEvent<'_>, hide: &dyn Fn(&str) -> String) {
        let LifecycleEvent { server, partition, kind: what } = *happening;
        if let LifecycleEventKind::DefinitionChanged { tool, is_refused, .. } = what {
            return self.gather_unapproved(server, &escape_line(&hide(tool)), is_refused);
        }
        let mut servers = self.servers();
        if let LifecycleEventKind::Operated { action: OperatorAction::Remove, .. } = what {
            servers.remove(server);
            return;
        }
        let known = servers.entry(server.to_owned()).or_default();
        let Some((note, cause)) = known.handle_event(partition, what, hide) else { return };
        self.write_server_line(
            server,
            known,
            (note.tint(), note.render(server, partition, &cause, &self.hints)),
        );
    }

    /// Prints a line about a server within its quota; holds it for the summary otherwise.
    fn write_server_line(
        self: &Arc<Self>,
        server: &str,
        known: &mut ConsoleServer,
        (tint, text): (Tint, String),
    ) {
        match known.quota.check(Instant::now(), (tint, &text)) {
            LineDecision::Print { before } => {
                before
                    .into_iter()
                    .for_each(|(tint, text)| self.write_line(tint, &self.summary(server, &text)));
                self.write_line(tint, &text);
            }
            LineDecision::Hold { until: Some(until) } => {
                self.run_later(server, until, |console, server, known| {
                    if let Some((tint, text)) = known.quota.take_held() {
                        console.write_line(tint, &console.summary(server, &text));
                    }
                })
            }
            LineDecision::Hold { until: None } => {}
        }
    }

    fn summary(&self, server: &str, held: &line_quota::HeldLines) -> String {
        messages::summary_line(server, held, &self.hints)
    }

    /// Gathers unapproved definitions; the first one schedules their line.
    fn gather_unapproved(self: &Arc<Self>, server: &str, name: &str, is_refused: bool) {
        let mut servers = self.servers();
        let unapproved = &mut servers.entry(server.to_owned()).or_default().unapproved;
        let is_first = unapproved.names.is_empty();
        unapproved.is_refused = is_refused;
        match unapproved.names.len() < MAX_NAMES {
            true => unapproved.names.push(name.to_owned()),
            false => unapproved.more += 1,
        }
        drop(servers);
        if is_first {
            self.run_later(server, Instant::now() + GATHER_TIME, |console, server, known| {
                let UnapprovedItems { names, more, is_refused } = std::mem::take(&mut known.unapproved);
                let text = messages::unapproved_line(server, (&names, more), is_refused, &console.hints);
                console.write_server_line(server, known, (Tint::Warning, text));
            });
        }
    }

    /// Calls a function with the state of a server later, if console and server still exist.
    fn run_later(self: &Arc<Self>, server: &str, at: Instant, act: fn(&Arc<Self>, &str, &mut ConsoleServer)) {
        let (console, server): (Weak<Self>, String) = (Arc::downgrade(self), server.to_owned());
        // Without a runtime the host is ending, and nothing runs later.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            sleep_until(at).await;
            let Some(console) = console.upgrade() else { return };
            let mut servers = console.servers();
            if let Some(known) = servers.get_mut(&server) {
                act(&console, &server, known);
            }
        });
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, ConsoleServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleServer {
    /// Updates the state of a server; returns the message to print and its cause.
    fn handle_event(
        &mut self,
        partition: &str,
        what: LifecycleEventKind<'_>,
        hide: &dyn Fn(&str) -> String,
    ) -> Option<(ConsoleMessage, String)> {
        let cause_of = |cause: &str| CauseText(&hide(cause)).to_string();
        match what {
            LifecycleEventKind::Lost { cause, .. } => self.note_failure(partition, true, cause_of(cause)),
            LifecycleEventKind::StartFailed { cause, .. } => {
                self.note_failure(partition, false, cause_of(cause))
            }
            LifecycleEventKind::RestartPlanned { delay } => self.restart_message(partition, Some(delay)),
            LifecycleEventKind::RestartOnDemand => self.restart_message(partition, None),
            LifecycleEventKind::Ejected { ejection, remedy, readmit_in, .. } => {
                let UnreportedFailure { cause, .. } = self.take_failure(partition)?;
                let remedy = remedy.map(cause_of);
                self.unless_repeated(
                    partition,
                    ConsoleMessage::Ejected { ejection, remedy, readmit_in },
                    cause,
                )
            }
            LifecycleEventKind::NeedsAuth { retry_in, .. } => {
                let UnreportedFailure { cause, .. } = self.take_failure(partition)?;
                self.unless_repeated(partition, ConsoleMessage::NeedsAuth { retry_in }, cause)
            }
            LifecycleEventKind::Started { took, .. } => {
                self.failures.remove(partition)?;
                Some((ConsoleMessage::Recovered { took }, String::new()))
            }
            LifecycleEventKind::BreakerOpened { wait } => {
                self.is_breaker_open = true;
                Some((ConsoleMessage::BreakerOpened { wait }, String::new()))
            }
            LifecycleEventKind::BreakerClosed => std::mem::take(&mut self.is_breaker_open)
                .then(|| (ConsoleMessage::BreakerClosed, String::new())),
            LifecycleEventKind::Operated { action: OperatorAction::Stop, .. } => {
                self.failures.clear();
                None
            }
            LifecycleEventKind::Ended { .. }
            | LifecycleEventKind::Readmitted
            | LifecycleEventKind::Operated { .. }
            | LifecycleEventKind::ResourceShadowed { .. }
            | LifecycleEventKind::DefinitionChanged { .. } => None,
        }
    }

    fn note_failure(
        &mut self,
        partition: &str,
        was_up: bool,
        cause: String,
    ) -> Option<(ConsoleMessage, String)> {
        if self.failures.len() < MAX_PARTITIONS || self.failures.contains_key(partition) {
            self.failures.entry(partition.to_owned()).or_default().unreported =
                Some(UnreportedFailure { was_up, cause });
        }
        None
    }

    /// Returns the message of a failure and its restart: after a delay, or with the next call.
    fn restart_message(
        &mut self,
        partition: &str,
        delay: Option<Duration>,
    ) -> Option<(ConsoleMessage, String)> {
        let UnreportedFailure { was_up, cause } = self.take_failure(partition)?;
        let message =
            if was_up { ConsoleMessage::Lost { delay } } else { ConsoleMessage::NotStarted { delay } };
        self.unless_repeated(partition, message, cause)
    }

    fn take_failure(&mut self, partition: &str) -> Option<UnreportedFailure> {
        self.failures.get_mut(partition)?.unreported.take()
    }

    /// Returns `None` for a failure with the same text as the last one, until the server recovers.
    fn unless_repeated(
        &mut self,
        partition: &str,
        note: ConsoleMessage,
        cause: String,
    ) -> Option<(ConsoleMessage, String)> {
        let down = self.failures.get_mut(partition)?;
        let is_known =
            down.last_message.as_ref().is_some_and(|(told, why)| told.is_same_kind(&note) && *why == cause);
        if is_known {
            return None;
        }
        down.last_message = Some((note.clone(), cause.clone()));
        Some((note, cause))
    }
}

#[cfg(test)]
mod tests;
