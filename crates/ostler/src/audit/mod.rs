//! Audit: a row for each call, lifecycle event, operator's action and refusal.
//!
//! ```text
//! calls, lifecycle events ──▶ host_events.rs ─┐                        ┌─ schema.rs, batch.rs, retention.rs: the file
//! refusals ──▶ http_refusals.rs ──────────────┼▶ row.rs ─▶ queue.rs ─▶ writer.rs, one thread
//! operators' actions ─────────────────────────┘                        └─ keyed_hash.rs, redact.rs: arguments
//!
//! ostler audit, GET /api/v1/audit ──▶ query.rs ──▶ the same file, read only
//! ```
//!
//! The source of a row copies some fields and goes on. The writer does everything that takes time, hashes included.
//! Rows that the writer can't keep up with are counted and dropped. The file and the thread are those of
//! `ostler-store`.

mod batch;
mod host_events;
pub(crate) mod http_refusals;
mod keyed_hash;
pub(crate) mod query;
mod queue;
mod redact;
mod refusal_limiter;
mod retention;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use ostler_core::config::{self, AuditedArguments, WhenFull};
use ostler_core::fault::HumanDuration;
use ostler_host::upstream::BoxFuture;
use ostler_store::WriterThread;

use self::queue::{PendingRows, RowQueue};
use self::redact::AuditRedactor;
use self::row::{AuditRow, RowFields, RowKind};
use self::writer::{AuditWriter, AuditWriterOptions, WriterHealth};
use crate::instance::DaemonInstance;
use crate::output::{print_stderr, print_timed};

/// Upper bound on the wait for unwritten rows when a command ends.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Lifetime of the process that keeps the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessLifetime {
    /// A daemon.
    Daemon,
    /// A command, which ends soon.
    Command,
}

impl ProcessLifetime {
    /// Prints a message about the audit on stderr. In a log each line has its time.
    pub(super) fn print(self, text: &str) {
        match self {
            Self::Daemon => print_timed(text),
            Self::Command => print_stderr(text),
        }
    }
}

/// Audit log: takes rows until it is closed.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: RowQueue,
    thread: WriterThread<PendingRows>,
    health: Arc<WriterHealth>,
    /// Redacts values that rows must not hold.
    redactor: Arc<AuditRedactor>,
    /// Decides whether transitions of servers between calls are recorded.
    lifetime: ProcessLifetime,
    when_full: WhenFull,
}

/// Status of writing the audit.
#[derive(Debug, Clone)]
pub(crate) struct AuditStatus {
    /// Current failure; `None` while rows can be written.
    pub(crate) error: Option<String>,
    /// Last incident with the write-ahead log, which had to be recreated.
    pub(crate) log_gone: Option<String>,
    /// Rows dropped since the start.
    pub(crate) dropped: u64,
}

/// Action of an operator.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AuditedAction<'a> {
    /// Name of the action, such as `config-applied` or `token-created`.
    pub(crate) action: &'a str,
    /// Server that the action changes.
    pub(crate) server: &'a str,
    /// Tool, token or the like that the action changes.
    pub(crate) subject: &'a str,
    /// Further details for people.
    pub(crate) detail: &'a str,
    /// Actor of the action.
    pub(crate) actor: AuditedActor,
}

/// Actor of an action that is not a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AuditedActor {
    #[default]
    Operator,
    /// Any process of this user: the daemon found only the effect.
    Unknown,
}

/// Principal of operators without a credential of their own.
const OPERATOR: &str = "operator";

impl AuditLog {
    /// Starts the audit; `None` if the config disables it. No file is touched before the first row.
    pub(crate) fn start(
        spot: &DaemonInstance,
        settings: &config::AuditConfig,
        stay: ProcessLifetime,
    ) -> Option<Arc<Self>> {
        if !settings.enabled {
            return None;
        }
        let place = AuditWriterOptions {
            file: spot.audit_file(),
            key: spot.audit_key_file(),
            keeps_arguments: settings.arguments == AuditedArguments::Full,
            lifetime: stay,
            redactor: Arc::default(),
        };
        let veil = Arc::clone(&place.redactor);
        let (queue, health) = (RowQueue::new(), Arc::<WriterHealth>::default());
        let writer = AuditWriter::new(queue.clone(), Arc::clone(&health), place, *settings);
        match WriterThread::spawn("audit", Arc::clone(&queue.rows), writer) {
            Ok(thread) => Some(Arc::new(Self {
                queue,
                thread,
                health,
                redactor: veil,
                lifetime: stay,
                when_full: settings.when_full,
            })),
            Err(error) => {
                stay.print(&format!("warning: the audit can't be written: no thread for it: {error}"));
                None
            }
        }
    }

    /// Records an action of an operator.
    pub(crate) fn record_action(&self, note: &AuditedAction<'_>) {
        let AuditedAction { action, server, subject, detail, actor } = *note;
        let principal = if actor == AuditedActor::Operator { OPERATOR } else { "" };
        let said =
            RowFields { principal, role: principal, server, action, subject, detail, ..RowFields::default() };
        let outcome = if action == "config-refused" { "refused" } else { "ok" };
        self.push(AuditRow::now(RowKind::Admin, outcome, &said));
    }

    /// Returns the status of writing.
    pub(crate) fn status(&self) -> AuditStatus {
        AuditStatus {
            error: self.health.error(),
            log_gone: self.health.log_gone(),
            dropped: self.queue.dropped(),
        }
    }

    /// Closes the queue, waits at most `within` until its rows are written, and reports how many are not.
    pub(crate) fn close(&self, within: Duration) {
        let has_ended = self.thread.close(within);
        self.queue.release_waiters();
        let unwritten = self.queue.unwritten();
        if unwritten > 0 {
            let why = match has_ended {
                true => String::new(),
                false => format!(": the disk has not taken them within {}", HumanDuration(within)),
            };
            self.lifetime.print(&format!("warning: {unwritten} rows of the audit could not be written{why}"));
        }
    }

    /// Waits until a call of a principal has room for its row; `None` if it has room now.
    fn wait_for_room(self: &Arc<Self>, principal: &str) -> Option<BoxFuture<'static, ()>> {
        self.queue.should_wait(principal).then(|| {
            let (audit, principal) = (Arc::clone(self), principal.to_owned());
            Box::pin(async move {
                if audit.queue.wait_for_room(&principal).await {
                    audit.health.report_stall(audit.lifetime);
                }
            }) as BoxFuture<'static, ()>
        })
    }

    fn push(&self, row: AuditRow) {
        self.queue.push(row);
    }
}

/// Records an operator's action that a command has done in any process. The action is complete, so a row that can't be
/// written is reported and does not fail the command.
pub(crate) fn record_action(spot: &DaemonInstance, settings: &config::AuditConfig, note: &AuditedAction<'_>) {
    if let Some(audit) = AuditLog::start(spot, settings, ProcessLifetime::Command) {
        audit.record_action(note);
        audit.close(CLOSE_TIMEOUT);
    }
}
