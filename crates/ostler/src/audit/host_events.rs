//! Sources of audit rows in the host: calls and lifecycle events of servers.

use std::fmt::Write as _;
use std::sync::Arc;

use ostler_core::config::WhenFull;
use ostler_core::fault::{Delivery, HumanDuration};
use ostler_host::{Host, LifecycleEvent, LifecycleEventKind, RequestRecord};

use super::row::{AuditRow, RowArguments, RowFields, RowKind};
use super::{AuditLog, OPERATOR, ProcessLifetime};

/// Arguments up to this size are copied. For larger ones the request's own buffer is kept, which is hardly larger than
/// they are.
const MAX_COPIED_ARGUMENTS: usize = 64 << 10;

impl AuditLog {
    /// Records calls and lifecycle events of a host from now on.
    pub(crate) fn observe(self: &Arc<Self>, host: &Host) {
        self.redactor.attach(host.clone());
        let audit = Arc::clone(self);
        host.set_recorder(Some(Arc::new(move |record| audit.push(call_row(record)))));
        if self.when_full == WhenFull::Wait {
            let audit = Arc::clone(self);
            host.set_record_backpressure(Some(Arc::new(move |caller| {
                audit.wait_for_room(caller.principal())
            })));
        }
        let audit = Arc::clone(self);
        host.set_observer(Some(Arc::new(move |happening| {
            if audit.should_record(happening) {
                lifecycle_row(happening).into_iter().for_each(|row| audit.push(row));
            }
        })));
    }

    /// Returns whether an event is recorded. A command registers all servers for itself and ends them with itself,
    /// which is no action of an operator.
    fn should_record(&self, happening: &LifecycleEvent<'_>) -> bool {
        let is_routine =
            matches!(happening.kind, LifecycleEventKind::Operated { .. } | LifecycleEventKind::Ended { .. });
        self.lifetime == ProcessLifetime::Daemon || !is_routine
    }
}

fn call_row(record: &RequestRecord<'_>) -> AuditRow {
    let said = RowFields {
        principal: record.principal,
        role: record.role,
        session: record.session.unwrap_or_default(),
        server: record.server,
        action: record.method,
        subject: record.subject,
        rule: record.denied_by.unwrap_or_default(),
        detail: record.detail.unwrap_or_default(),
    };
    // The caller was told that the item does not exist; the audit tells hidden from missing.
    let outcome = if record.denied_by.is_some() { "denied" } else { record.outcome };
    AuditRow {
        delivery: record.delivery.map(Delivery::as_str),
        generation: record.generation,
        took: Some(record.took),
        arguments: record
            .owned_arguments(MAX_COPIED_ARGUMENTS)
            .map_or(RowArguments::None, RowArguments::Kept),
        ..AuditRow::now(RowKind::Call, outcome, &said)
    }
}

/// Returns the row of an event; `None` for one that is not recorded.
fn lifecycle_row(happening: &LifecycleEvent<'_>) -> Option<AuditRow> {
    let LifecycleEvent { server, partition, kind: what } = *happening;
    let said = RowFields { server, principal: partition_owner(partition), ..RowFields::default() };
    let about = |action, outcome, detail: &str| {
        AuditRow::now(RowKind::Server, outcome, &RowFields { action, detail, ..said })
    };
    let row = match what {
        LifecycleEventKind::RestartOnDemand => return None,
        LifecycleEventKind::Started { generation, pid, took } => {
            let pid = pid.map_or_else(String::new, |pid| format!("pid {pid}"));
            AuditRow { generation: Some(generation), took: Some(took), ..about("started", "ok", &pid) }
        }
        LifecycleEventKind::StartFailed { generation, cause } => {
            AuditRow { generation: Some(generation), ..about("start-failed", "failed", cause) }
        }
        LifecycleEventKind::Lost { generation, cause } => {
            AuditRow { generation: Some(generation), ..about("lost", "failed", cause) }
        }
        LifecycleEventKind::Ended { generation } => {
            AuditRow { generation: Some(generation), ..about("ended", "ok", "") }
        }
        LifecycleEventKind::RestartPlanned { delay } => {
            about("restart-planned", "ok", &with_duration("in", delay))
        }
        LifecycleEventKind::Ejected { ejection, cause, .. } => {
            about("ejected", "failed", &format!("{ejection} (last: {cause})"))
        }
        LifecycleEventKind::NeedsAuth { cause, .. } => about("needs-auth", "failed", cause),
        LifecycleEventKind::Readmitted => about("readmitted", "ok", ""),
        LifecycleEventKind::BreakerOpened { wait } => {
            about("breaker-opened", "failed", &with_duration("for", wait))
        }
        LifecycleEventKind::BreakerClosed => about("breaker-closed", "ok", ""),
        LifecycleEventKind::ResourceShadowed { uri, owner } => {
            let detail = format!("`{owner}` answers for it");
            let said = RowFields { subject: uri, action: "resource-shadowed", detail: &detail, ..said };
            AuditRow::now(RowKind::Server, "failed", &said)
        }
        LifecycleEventKind::DefinitionChanged { tool, pin_status: standing, .. } => {
            let said = RowFields { subject: tool, action: "definition-changed", detail: standing, ..said };
            AuditRow::now(RowKind::Server, "failed", &said)
        }
        LifecycleEventKind::Operated { action: act, by } => {
            let (principal, role) =
                by.map_or((OPERATOR, OPERATOR), |caller| (caller.principal(), caller.role()));
            AuditRow::now(
                RowKind::Admin,
                "ok",
                &RowFields { principal, role, server, action: act.as_str(), ..said },
            )
        }
    };
    Some(row)
}

/// `in 1s`, `for 30s`.
fn with_duration(word: &str, time: std::time::Duration) -> String {
    let mut text = word.to_owned();
    let _ = write!(text, " {}", HumanDuration(time));
    text
}

/// Returns the owner of an isolated server's process. The name of a session is left out.
fn partition_owner(partition: &str) -> &str {
    partition.split('\0').next().unwrap_or_default()
}
