//! The audit: who called what, and what came of it.
//!
//! ```text
//! a call ends ──▶ Record ─┐                         ┌─ store.rs, layout.rs, batch.rs, retention.rs: SQLite
//! a server ends ▶ Happening┼─▶ row.rs ─▶ queue.rs ─▶ writer.rs, one thread
//! an operator acts, somebody is refused ─┘           └─ fingerprint.rs, redact.rs: arguments
//!
//! ostler audit, GET /api/v1/audit ──▶ query.rs ──▶ the same file, read only
//! ```
//!
//! Whoever brings a row copies some words and goes on. What takes time, the
//! hash included, is done by the writer; what the writer can't keep up with is
//! counted and not waited for.

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
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use ostler_core::config::{self, AuditedArguments, WhenFull};
use ostler_host::upstream::BoxFuture;

use self::queue::Queue;
use self::redact::Veil;
use self::row::{Kind, Row, Said};
use self::store::Place;
use self::writer::{Health, Writer};
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
    queue: Arc<Queue>,
    health: Arc<Health>,
    /// Hides values that rows must not hold.
    veil: Arc<Veil>,
    /// Hangs up when the writer has ended.
    ended: Mutex<Option<mpsc::Receiver<()>>>,
    /// Whether what happens to servers in between is of interest.
    stay: Stay,
    when_full: WhenFull,
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
        let (queue, health) = (Arc::<Queue>::default(), Arc::<Health>::default());
        let writer = Writer::new(Arc::clone(&queue), Arc::clone(&health), place, *settings);
        let (ending, ended) = mpsc::channel::<()>();
        let run = move || {
            writer.run();
            drop(ending);
        };
        if let Err(error) = std::thread::Builder::new().name("audit".into()).spawn(run) {
            tell(&format!("warning: the audit can't be written: no thread for it: {error}"));
            return None;
        }
        let ended = Mutex::new(Some(ended));
        Some(Arc::new(Self { queue, health, veil, ended, stay, when_full: settings.when_full }))
    }

    /// Notes something that an operator did.
    pub(crate) fn note(&self, note: &Note<'_>) {
        let Note { action, server, subject, detail } = *note;
        let said =
            Said { principal: OPERATOR, role: OPERATOR, server, action, subject, detail, ..Said::default() };
        let outcome = if action == "config-refused" { "refused" } else { "ok" };
        self.push(Row::now(Kind::Admin, outcome, &said));
    }

    /// How writing goes.
    pub(crate) fn going(&self) -> writer::Going {
        self.health.going()
    }

    /// Takes no more rows, and waits until those it has are written, but not
    /// longer than this.
    pub(crate) fn close(&self, within: Duration) {
        self.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The writer hangs up; nothing is ever sent.
        let is_late =
            ended.is_some_and(|ended| ended.recv_timeout(within) == Err(mpsc::RecvTimeoutError::Timeout));
        if is_late {
            tell("warning: the last rows of the audit were not written in time");
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
