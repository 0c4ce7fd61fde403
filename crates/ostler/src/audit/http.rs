//! Refusals over HTTP: a row for each request that was answered with 401 or 403.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use ostler_gateway::OnRefusal;

use super::Audit;
use super::row::{Kind, Row, Said};

/// Notes refusals of the HTTP server.
pub(crate) fn noting_refusals(audit: &Arc<Audit>) -> OnRefusal {
    let audit = Arc::clone(audit);
    Arc::new(move |method, path, status, why| audit.refused(method, path, status, why))
}

impl Audit {
    /// Notes a refusal.
    fn refused(&self, method: &Method, path: &str, status: StatusCode, why: &str) {
        let outcome = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            _ => return,
        };
        let said = Said { action: &format!("{method} {path}"), detail: why, ..Said::default() };
        self.push(Row::now(Kind::Refusal, outcome, &said));
    }
}
