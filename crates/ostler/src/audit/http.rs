//! Refusals at the door: a row for whoever was not let in.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ostler_gateway::{OnRefusal, Refusal};

use super::Audit;
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
        let said = Said { action: &format!("{method} {path}"), detail: why, ..Said::default() };
        self.push(Row::now(Kind::Refusal, outcome, &said));
    }
}
