//! Refusals at the door: a row for whoever was not let in.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ostler_gateway::{OnRefusal, Refusal};

use super::Audit;
use super::flood::Passage;
use super::row::{Kind, Row, Said};

/// Notes what was answered with 401 or 403, and passes everything on.
pub(crate) async fn note_refusals(State(audit): State<Arc<Audit>>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    let why = response.extensions().get::<Refusal>().map_or("", |refusal| &refusal.0);
    audit.answered(&method, uri.path(), response.status(), why);
    response
}

/// The same for the endpoints that no layer sees.
pub(crate) fn noting_refusals(audit: &Arc<Audit>) -> OnRefusal {
    let audit = Arc::clone(audit);
    Arc::new(move |method, path, status, why| audit.answered(method, path, status, why))
}

impl Audit {
    /// Notes an answer that lets nobody in.
    fn answered(&self, method: &Method, path: &str, status: StatusCode, why: &str) {
        let outcome = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            _ => return,
        };
        self.refused(outcome, &format!("{method} {path}"), why);
    }

    /// Notes that somebody was not let in, or counts it if there are too many.
    fn refused(&self, outcome: &'static str, what: &str, why: &str) {
        let Passage::Row { others } = self.flood.pass(Instant::now()) else { return };
        self.note_others(others);
        let said = Said { action: what, detail: why, ..Said::default() };
        self.push(Row::now(Kind::Refusal, outcome, &said));
    }

    /// Notes those that were only counted.
    pub(super) fn settle_flood(&self) {
        self.note_others(self.flood.rest());
    }

    fn note_others(&self, others: u64) {
        if others > 0 {
            let detail = "too many at once for a row each";
            let said = Said { action: "others", detail, ..Said::default() };
            self.push(Row { count: Some(others), ..Row::now(Kind::Refusal, "refused", &said) });
        }
    }
}
