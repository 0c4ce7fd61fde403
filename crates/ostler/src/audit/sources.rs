//! Where rows come from: calls, and what happens to servers.

use std::fmt::Write as _;
use std::sync::Arc;

use ostler_core::config::WhenFull;
use ostler_core::fault::{Delivery, Span};
use ostler_host::{Happening, Host, Record, What};

use super::row::{Arguments, Kind, Row, Said};
use super::{Audit, OPERATOR, Stay};

/// Arguments up to this size are copied; of larger ones the request's own
/// buffer is kept, which is hardly larger than they are.
const COPIED: usize = 64 << 10;

impl Audit {
    /// Writes down what a host does from now on.
    pub(crate) fn watch(self: &Arc<Self>, host: &Host) {
        self.veil.lay(host.clone());
        let audit = Arc::clone(self);
        host.set_recorder(Some(Arc::new(move |record| audit.push(row_of_call(record)))));
        if self.when_full == WhenFull::Wait {
            let audit = Arc::clone(self);
            host.set_record_room(Some(Arc::new(move || audit.room())));
        }
        let audit = Arc::clone(self);
        host.set_observer(Some(Arc::new(move |happening| {
            if audit.is_of_interest(happening) {
                audit.push(row_of_happening(happening));
            }
        })));
    }

    /// A command registers all servers for itself alone and ends them with
    /// itself, which is nothing that an operator does.
    fn is_of_interest(&self, happening: &Happening<'_>) -> bool {
        let is_routine = matches!(happening.what, What::Operated { .. } | What::Ended { .. });
        self.stay == Stay::Long || !is_routine
    }
}

fn row_of_call(record: &Record<'_>) -> Row {
    let said = Said {
        principal: record.principal,
        role: record.role,
        session: record.session.unwrap_or_default(),
        server: record.server,
        action: record.method,
        subject: record.subject,
        rule: record.denied.unwrap_or_default(),
        detail: record.detail.unwrap_or_default(),
    };
    // The caller was told that there is no such thing; here it says what was.
    let outcome = if record.denied.is_some() { "denied" } else { record.outcome };
    Row {
        delivery: record.delivery.map(Delivery::as_str),
        generation: record.generation,
        took: Some(record.took),
        arguments: record.keep_arguments(COPIED).map_or(Arguments::None, Arguments::Kept),
        ..Row::now(Kind::Call, outcome, &said)
    }
}

fn row_of_happening(happening: &Happening<'_>) -> Row {
    let Happening { server, partition, what } = *happening;
    let said = Said { server, principal: owner(partition), ..Said::default() };
    let about =
        |action, outcome, detail: &str| Row::now(Kind::Server, outcome, &Said { action, detail, ..said });
    match what {
        What::Started { generation, pid, took } => {
            let pid = pid.map_or_else(String::new, |pid| format!("pid {pid}"));
            Row { generation: Some(generation), took: Some(took), ..about("started", "ok", &pid) }
        }
        What::StartFailed { generation, cause } => {
            Row { generation: Some(generation), ..about("start-failed", "failed", cause) }
        }
        What::Lost { generation, cause } => {
            Row { generation: Some(generation), ..about("lost", "failed", cause) }
        }
        What::Ended { generation } => Row { generation: Some(generation), ..about("ended", "ok", "") },
        What::RestartPlanned { delay } => about("restart-planned", "ok", &after("in", delay)),
        What::Ejected { ejection, cause, .. } => {
            about("ejected", "failed", &format!("{ejection} (last: {cause})"))
        }
        What::NeedsAuth { cause, .. } => about("needs-auth", "failed", cause),
        What::Readmitted => about("readmitted", "ok", ""),
        What::BreakerOpened { wait } => about("breaker-opened", "failed", &after("for", wait)),
        What::BreakerClosed => about("breaker-closed", "ok", ""),
        What::ResourceShadowed { uri, owner } => {
            let detail = format!("`{owner}` answers for it");
            let said = Said { subject: uri, action: "resource-shadowed", detail: &detail, ..said };
            Row::now(Kind::Server, "failed", &said)
        }
        What::DefinitionChanged { tool, standing, .. } => {
            let said = Said { subject: tool, action: "definition-changed", detail: standing, ..said };
            Row::now(Kind::Server, "failed", &said)
        }
        What::Operated { act, by } => {
            let (principal, role) =
                by.map_or((OPERATOR, OPERATOR), |caller| (caller.principal(), caller.role()));
            Row::now(Kind::Admin, "ok", &Said { principal, role, server, action: act.as_str(), ..said })
        }
    }
}

/// `in 1s`, `for 30s`.
fn after(word: &str, time: std::time::Duration) -> String {
    let mut text = word.to_owned();
    let _ = write!(text, " {}", Span(time));
    text
}

/// Whose process of an isolated server it is; the name of a session stays out.
fn owner(partition: &str) -> &str {
    partition.split('\0').next().unwrap_or_default()
}
