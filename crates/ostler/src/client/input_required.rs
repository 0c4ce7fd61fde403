//! `input_required` rounds of a modern server: its result asks for input, and the request is repeated with the
//! responses.

use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{ResultHead, ResultKind};
use serde_json::value::RawValue;

use crate::call_events::{ELICITATION, parse_raw};
use crate::terminal::Terminal;

/// Upper bound on rounds of one call.
pub(super) const MAX_ROUNDS: u32 = 10;
/// Pause before the request is repeated for a server that asks for no input, times the round.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Parameters that the repeated request adds.
pub(super) struct InputResponses {
    pub(super) responses: Option<Box<RawValue>>,
    /// As the server sent it.
    pub(super) request_state: Option<Box<RawValue>>,
}

/// Asks a person for the input that a result requires. Returns `None` if the result is final, or if it requires what
/// can't be answered here.
pub(super) async fn answer_input_requests(
    terminal: Option<&mut Terminal>,
    server: &str,
    result: &Bytes,
    round: u32,
) -> Option<InputResponses> {
    let terminal = terminal?;
    ResultHead::parse(result).ok().filter(|head| head.kind == ResultKind::InputRequired)?;
    let requests = ostler_wire::member(result, "inputRequests").and_then(ostler_wire::all_members);
    let requests = requests.unwrap_or_default();
    let is_elicitation =
        |request: &[u8]| ostler_wire::text_member(request, "method").is_some_and(|it| it == ELICITATION);
    if !requests.iter().all(|(_, request)| is_elicitation(request)) {
        return None;
    }
    let state = ostler_wire::member(result, "requestState").and_then(parse_raw);
    if requests.is_empty() {
        tokio::time::sleep(RETRY_PAUSE * (round + 1)).await;
        return Some(InputResponses { responses: None, request_state: state });
    }
    let mut responses = b"{".to_vec();
    for (key, request) in &requests {
        let params = ostler_wire::member(request, "params").unwrap_or(b"{}");
        let answer = terminal.elicit(server, params).await;
        if responses.len() > 1 {
            responses.push(b',');
        }
        ostler_wire::push_json_string(&mut responses, key);
        responses.push(b':');
        responses.extend_from_slice(answer.as_bytes());
    }
    responses.push(b'}');
    Some(InputResponses { responses: parse_raw(&responses), request_state: state })
}
