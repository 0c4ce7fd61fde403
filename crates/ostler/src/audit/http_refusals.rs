//! Refusals over HTTP: a row for each request that was answered with 401 or 403.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use ostler_gateway::OnRefusal;

use super::AuditLog;
use super::row::{AuditRow, RowFields, RowKind};

/// Returns the callback that records refusals of the HTTP server.
pub(crate) fn refusal_recorder(audit: &Arc<AuditLog>) -> OnRefusal {
    let audit = Arc::clone(audit);
    Arc::new(move |method, path, status, why| audit.record_refusal(method, path, status, why))
}

impl AuditLog {
    /// Records a refusal.
    fn record_refusal(&self, method: &Method, path: &str, status: StatusCode, why: &str) {
        let outcome = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            _ => return,
        };
        let said = RowFields { action: &format!("{method} {path}"), detail: why, ..RowFields::default() };
        self.push(AuditRow::now(RowKind::Refusal, outcome, &said));
    }
}
