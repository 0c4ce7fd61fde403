//! Reading of answers: maps codes to the end of a call.

use ostler_chaos::history::{CallEnd, CallNumber, Ran};
use serde_json::Value;

/// Returns the end that a JSON-RPC answer means.
pub(crate) fn end_of(answer: &Value) -> CallEnd {
    match (answer.get("result"), answer.get("error")) {
        (Some(result), _) => end_of_result(result),
        (None, Some(error)) => end_of_error(error),
        (None, None) => CallEnd::Unknown { why: "the answer is neither result nor error".into() },
    }
}

fn end_of_result(result: &Value) -> CallEnd {
    let content = &result["structuredContent"];
    if result["isError"] == true || !content.is_object() {
        return CallEnd::Fail { kind: "tool-error".into(), code: 0, ran: Ran::Yes };
    }
    let stamp = content["stamp"].as_str().map(str::to_owned);
    CallEnd::Ok { echoed: content["nonce"].as_u64().map(CallNumber), stamp }
}

fn end_of_error(error: &Value) -> CallEnd {
    let code = error["code"].as_i64().unwrap_or_default();
    let data = &error["data"];
    let fail = |kind: &str, ran| CallEnd::Fail { kind: kind.to_owned(), code, ran };
    let Some(kind) = data["code"].as_str() else {
        // The server itself answered if the data carries the stamp of an execution.
        return match data["stamp"].is_string() {
            true => fail("upstream-error", Ran::Yes),
            false => fail("refused", Ran::No),
        };
    };
    let was_sent = matches!(data["delivery"].as_str(), Some("unknown" | "answered"));
    match kind {
        "outcome-unknown" | "upstream-protocol" => CallEnd::Unknown { why: kind.to_owned() },
        "timed-out" if data["delivery"].is_null() => CallEnd::Unknown { why: kind.to_owned() },
        _ if was_sent => CallEnd::Unknown { why: kind.to_owned() },
        "server-unavailable" => fail(data["state"].as_str().unwrap_or(kind), Ran::No),
        _ => fail(kind, Ran::No),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(data: Value) -> CallEnd {
        end_of(&json!({"error": {"code": -31000, "message": "outcome-unknown, not sent", "data": data}}))
    }

    #[test]
    fn codes_decide_and_text_does_not() {
        assert!(matches!(error(json!({"code": "outcome-unknown"})), CallEnd::Unknown { .. }));
        assert!(matches!(
            error(json!({"code": "timed-out", "delivery": "not-sent"})),
            CallEnd::Fail { ran: Ran::No, .. }
        ));
        assert!(matches!(
            error(json!({"code": "timed-out", "delivery": "unknown"})),
            CallEnd::Unknown { .. }
        ));
        assert!(matches!(error(json!({"code": "overloaded"})), CallEnd::Fail { ran: Ran::No, .. }));
        assert!(matches!(error(json!({"stamp": "1-2-3"})), CallEnd::Fail { ran: Ran::Yes, .. }));
        let lost = json!({"code": "server-unavailable", "state": "lost", "delivery": "unknown"});
        assert!(matches!(error(lost), CallEnd::Unknown { .. }));
    }
}
