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
mod fingerprint;
mod flood;
pub(crate) mod http;
mod layout;
pub(crate) mod query;
mod queue;
mod redact;
mod retention;
mod row;
mod sources;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use ostler_core::config::{self, AuditedArguments, WhenFull};
use ostler_core::fault::Span;
use ostler_host::upstream::BoxFuture;
use ostler_store::Thread;

use self::queue::{RowQueue, Rows};
use self::redact::Veil;
use self::row::{Kind, Row, Said};
use self::writer::{Health, Place, Writer};
use crate::output::tell;
use crate::spot::Spot;

/// How long a command waits at its end until its rows are written.
pub(crate) const PARTING: Duration = Duration::from_secs(1);

/// Whether the process stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// A daemon.
    Long,
    /// A command, which ends soon.
    Short,
}

/// Takes rows, until it is closed.
#[derive(Debug)]
pub(crate) struct Audit {
    queue: RowQueue,
    thread: Thread<Rows>,
    health: Arc<Health>,
    /// Hides values that rows must not hold.
    veil: Arc<Veil>,
    /// Whether what happens to servers in between is of interest.
    stay: Stay,
    when_full: WhenFull,
}

/// How writing goes.
#[derive(Debug, Clone)]
pub(crate) struct Going {
    /// Why nothing can be written now.
    pub(crate) trouble: Option<String>,
    /// Rows that were dropped so far.
    pub(crate) lost: u64,
}

/// Something that an operator did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Note<'a> {
    /// What: a word, such as `config-applied` or `token-created`.
    pub(crate) action: &'a str,
    /// With which server.
    pub(crate) server: &'a str,
    /// With which tool, token or the like.
    pub(crate) subject: &'a str,
    /// What else there is to say.
    pub(crate) detail: &'a str,
}

/// Who did it, unless a credential says otherwise.
const OPERATOR: &str = "operator";

impl Audit {
    /// Begins to take rows; `None` if the config does not want any. No file is
    /// touched before the first one.
    pub(crate) fn begin(spot: &Spot, settings: &config::Audit, stay: Stay) -> Option<Arc<Self>> {
        if !settings.enabled {
            return None;
        }
        let place = Place {
            file: spot.audit_file(),
            key: spot.audit_key_file(),
            is_full: settings.arguments == AuditedArguments::Full,
            is_passing: stay == Stay::Short,
            veil: Arc::default(),
        };
        let veil = Arc::clone(&place.veil);
        let (queue, health) = (RowQueue::new(), Arc::<Health>::default());
        let writer = Writer::new(queue.clone(), Arc::clone(&health), place, *settings);
        match Thread::begin("audit", Arc::clone(&queue.rows), writer) {
            Ok(thread) => {
                Some(Arc::new(Self { queue, thread, health, veil, stay, when_full: settings.when_full }))
            }
            Err(error) => {
                tell(&format!("warning: the audit can't be written: no thread for it: {error}"));
                None
            }
        }
    }

    /// Notes something that an operator did.
    pub(crate) fn note(&self, note: &Note<'_>) {
        let Note { action, server, subject, detail } = *note;
        let said =
            Said { principal: OPERATOR, role: OPERATOR, server, action, subject, detail, ..Said::default() };
        let outcome = if action == "config-refused" { "refused" } else { "ok" };
        self.push(Row::now(Kind::Admin, outcome, &said));
    }

    /// Tells how writing goes.
    pub(crate) fn going(&self) -> Going {
        Going { trouble: self.health.trouble(), lost: self.queue.dropped() }
    }

    /// Takes no more rows, and waits until those it has are written, but not
    /// longer than this. Tells how many are not.
    pub(crate) fn close(&self, within: Duration) {
        let has_ended = self.thread.close(within);
        self.queue.release();
        let unwritten = self.queue.unwritten();
        if unwritten > 0 {
            let why = match has_ended {
                true => String::new(),
                false => format!(": the disk has not taken them within {}", Span(within)),
            };
            tell(&format!("warning: {unwritten} rows of the audit could not be written{why}"));
        }
    }

    /// Waits until a call has room for its row; `None` if it has.
    fn room(self: &Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        self.queue.is_worth_waiting().then(|| {
            let audit = Arc::clone(self);
            Box::pin(async move {
                if audit.queue.room().await {
                    audit.health.stalled();
                }
            }) as BoxFuture<'static, ()>
        })
    }

    fn push(&self, row: Row) {
        self.queue.push(row);
    }
}

/// Notes something that an operator did with a command, in whichever process.
/// The command has done its work; that nobody wrote it down is said, and is no
/// reason for it to fail.
pub(crate) fn note(spot: &Spot, settings: &config::Audit, note: &Note<'_>) {
    if let Some(audit) = Audit::begin(spot, settings, Stay::Short) {
        audit.note(note);
        audit.close(PARTING);
    }
}
