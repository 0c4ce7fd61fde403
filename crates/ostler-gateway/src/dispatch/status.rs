//! `ostler://status`: the states of servers as a resource of `/mcp`, for clients that miss a server. It is not listed,
//! so that lists contain only items of servers.

use ostler_core::status::{ServerState, ServerStatus};
use ostler_wire::Era;
use serde_json::{Value, json};

use crate::client_request::{ClientRequest, GatewayReply};
use crate::gateway::Gateway;

/// URI of the resource. At `/mcp` no server is asked for it.
pub(super) const URI: &str = "ostler://status";

/// Answers a read of the resource with the servers that the caller may see.
pub(super) fn read(gateway: &Gateway, exchange: &ClientRequest) -> GatewayReply {
    let servers: Vec<Value> = gateway.0.host.visible_status(&exchange.caller).iter().map(row).collect();
    let text = json!({"servers": servers}).to_string();
    let mut result = json!({"contents": [{"uri": URI, "mimeType": "application/json", "text": text}]});
    if exchange.client.era() == Era::Modern {
        result["resultType"] = "complete".into();
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    GatewayReply::result(result.to_string().into_bytes())
}

/// Describes one server with the fields that errors of its calls also carry, and without its processes.
fn row(status: &ServerStatus) -> Value {
    let mut row = json!({"name": status.name.as_str(), "state": status.state.as_str()});
    if let Some(start) = &status.start {
        row["start"] = json!({"stage": start.stage, "ageMs": start.age_ms});
        if let Some(hint) = &start.hint {
            row["start"]["hint"] = hint.as_str().into();
        }
    }
    let is_out = matches!(status.state, ServerState::Backoff | ServerState::Ejected | ServerState::NeedsAuth);
    if let Some(error) = status.last_error.as_ref().filter(|_| is_out) {
        row["error"] = error.to_string().into();
    }
    if let Some(wait) = status.retry_after_ms {
        row["retryAfterMs"] = wait.into();
    }
    if let Some(invalid) = &status.invalid_definitions {
        row["invalidDefinitions"] = json!(invalid);
    }
    row
}
