//! The audit: who called what, and what came of it.
//!
//! ```text
//! a call ends ──▶ Record ─┐                         ┌─ layout.rs, batch.rs, retention.rs: tables and statements
//! a server ends ▶ Happening┼─▶ row.rs ─▶ queue.rs ─▶ writer.rs, one thread
//! an operator acts, somebody is refused ─┘           └─ fingerprint.rs, redact.rs: arguments
//!
//! ostler audit, GET /api/v1/audit ──▶ query.rs ──▶ the same file, read only
//! ```
//!
//! Whoever brings a row copies some words and goes on. What takes time, the
//! hash included, is done by the writer; what the writer can't keep up with is
//! counted and not waited for. The file and the thread are those of `ostler-store`.

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

/// How long a command waits at its end until its rows are written.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the process stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessLifetime {
    /// A daemon.
    Daemon,
    /// A command, which ends soon.
    Command,
}

impl ProcessLifetime {
    /// Says something about the audit on stderr. In a log a line is worth little without its time.
    pub(super) fn print(self, text: &str) {
        match self {
            Self::Daemon => print_timed(text),
            Self::Command => print_stderr(text),
        }
    }
}

/// Takes rows, until it is closed.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: RowQueue,
    thread: WriterThread<PendingRows>,
    health: Arc<WriterHealth>,
    /// Hides values that rows must not hold.
    redactor: Arc<AuditRedactor>,
    /// Whether what happens to servers in between is of interest.
    lifetime: ProcessLifetime,
    when_full: WhenFull,
}

/// How writing goes.
#[derive(Debug, Clone)]
pub(crate) struct AuditStatus {
    /// Why nothing can be written now.
    pub(crate) error: Option<String>,
    /// What happened last to the log beside the file, which had to be begun anew.
    pub(crate) log_gone: Option<String>,
    /// Rows that were dropped so far.
    pub(crate) dropped: u64,
}

/// Something that an operator did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AuditedAction<'a> {
    /// What: a word, such as `config-applied` or `token-created`.
    pub(crate) action: &'a str,
    /// With which server.
    pub(crate) server: &'a str,
    /// With which tool, token or the like.
    pub(crate) subject: &'a str,
    /// What else there is to say.
    pub(crate) detail: &'a str,
    /// Who did it.
    pub(crate) actor: AuditedActor,
}

/// Actor of something that is not a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AuditedActor {
    #[default]
    Operator,
    /// Any process of this user: the daemon found the trace of it.
    Unknown,
}

/// Who did it, unless a credential says otherwise.
const OPERATOR: &str = "operator";

impl AuditLog {
    /// Begins to take rows; `None` if the config does not want any. No file is
    /// touched before the first one.
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

    /// Notes something that an operator did.
    pub(crate) fn record_action(&self, note: &AuditedAction<'_>) {
        let AuditedAction { action, server, subject, detail, actor } = *note;
        let principal = if actor == AuditedActor::Operator { OPERATOR } else { "" };
        let said =
            RowFields { principal, role: principal, server, action, subject, detail, ..RowFields::default() };
        let outcome = if action == "config-refused" { "refused" } else { "ok" };
        self.push(AuditRow::now(RowKind::Admin, outcome, &said));
    }

    /// Tells how writing goes.
    pub(crate) fn status(&self) -> AuditStatus {
        AuditStatus {
            error: self.health.error(),
            log_gone: self.health.log_gone(),
            dropped: self.queue.dropped(),
        }
    }

    /// Takes no more rows, and waits until those it has are written, but not
    /// longer than this. Tells how many are not.
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

    /// Waits until a call of a principal has room for its row; `None` if it has.
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

/// Notes something that an operator did with a command, in whichever process.
/// The command has done its work; that nobody wrote it down is said, and is no
/// reason for it to fail.
pub(crate) fn record_action(spot: &DaemonInstance, settings: &config::AuditConfig, note: &AuditedAction<'_>) {
    if let Some(audit) = AuditLog::start(spot, settings, ProcessLifetime::Command) {
        audit.record_action(note);
        audit.close(CLOSE_TIMEOUT);
    }
}
