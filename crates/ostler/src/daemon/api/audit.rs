//! Routes of the audit.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{error_response, reply};
use crate::api::{AuditPage, AuditState};
use crate::audit::AuditStatus;
use crate::audit::query::{AuditFilter, AuditReader};
use crate::daemon::Daemon;
use crate::time_text::{TimeArg, Zone};

/// Default and largest number of rows in one response.
const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1_000;

/// Returns the newest rows that match the query, oldest first.
pub(super) async fn read(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let filter = match parse_filter(query.as_deref().unwrap_or_default()) {
        Ok(filter) => filter,
        Err(what) => return error_response(StatusCode::BAD_REQUEST, "invalid", &what),
    };
    let file = daemon.audit_file.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut events = Vec::new();
        if let Some(reader) = AuditReader::open(&file)? {
            reader.each(&filter, |event| {
                events.push(event);
                true
            })?;
        }
        Ok::<_, crate::audit::query::QueryError>(events)
    });
    let state = audit_state(&daemon);
    match reading.await {
        Ok(Ok(events)) => reply(StatusCode::OK, &AuditPage { events, state }),
        Ok(Err(error)) => error_response(StatusCode::SERVICE_UNAVAILABLE, "unreadable", &error.to_string()),
        Err(error) => error_response(StatusCode::INTERNAL_SERVER_ERROR, "unexpected", &error.to_string()),
    }
}

/// Returns the status of writing the audit.
pub(super) fn audit_state(daemon: &Daemon) -> AuditState {
    let Some(audit) = &daemon.audit else { return AuditState::default() };
    let AuditStatus { error, log_gone, dropped } = audit.status();
    AuditState { enabled: true, trouble: error, log_gone, lost: dropped }
}

fn parse_filter(query: &str) -> Result<AuditFilter, String> {
    let mut filter = AuditFilter { limit: Some(DEFAULT_LIMIT), ..AuditFilter::default() };
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let text = (!value.is_empty()).then(|| value.to_string());
        let number = || value.parse::<u32>().map_err(|_| format!("`{key}` wants a number"));
        match &*key {
            "since" => filter.since = Some(moment(&value)?),
            "until" => filter.until = Some(moment(&value)?),
            "role" => filter.role = text,
            "caller" => filter.caller = text,
            "server" => filter.server = text,
            "tool" => filter.tool = text,
            "outcome" => filter.outcome = text,
            "denied" => filter.denied = matches!(&*value, "" | "true" | "1"),
            "after" => filter.after = Some(i64::from(number()?)),
            "limit" => filter.limit = Some(number()?.clamp(1, MAX_LIMIT)),
            _ => return Err(format!("there is no `{key}`")),
        }
    }
    Ok(filter)
}

/// Parses a duration before now, or a date, as microseconds since 1970.
fn moment(text: &str) -> Result<i64, String> {
    let when = TimeArg::parse(text).map_err(|why| format!("`{text}`: {why}"))?;
    let since = when.to_system_time(Zone::Utc).duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
