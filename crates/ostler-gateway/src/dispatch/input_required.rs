//! Rounds: the `input_required` of a modern server becomes requests to a legacy client on the stream of the call, and
//! the call is sent again with the answers.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memchr::memmem::Finder;
use ostler_core::error::CallError;
use ostler_host::{Answer, REQUEST_STATE_TTL};
use ostler_wire::{Era, MemberEdit, Params, ResultHead, ResultKind, RpcError, RpcOutcome};
use tokio::time::{Instant, timeout_at};

use crate::client_request::{ClientRequest, GatewayReply};
use crate::client_session::ClientSession;

/// Timeout of the person at the client in one round. It ends before the server's request state expires.
const ROUND_TIMEOUT: Duration = REQUEST_STATE_TTL.saturating_sub(Duration::from_secs(30));

/// Rounds that one call may have; bounds a server that never stops asking.
const MAX_ROUNDS: u32 = 10;

/// Delay before the retry for a server that only wants to be asked again, times the round.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Result of a round.
pub(crate) enum RoundOutcome {
    /// The call is sent again with these parameters.
    Retry(Box<Params>),
    /// The call can't continue.
    Failed(GatewayReply),
}

/// Returns whether a server requires input before it answers.
pub(crate) fn is_input_required(answer: &Answer) -> bool {
    static INPUT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"input_required\""));
    INPUT.find(&answer.body).is_some()
        && ResultHead::parse(&answer.body).is_ok_and(|head| head.kind == ResultKind::InputRequired)
}

/// Sends the server's requests to the client.
pub(crate) async fn run_round(
    exchange: &ClientRequest,
    session: &Arc<ClientSession>,
    params: &Params,
    answer: &Answer,
    round: u32,
) -> RoundOutcome {
    if round >= MAX_ROUNDS {
        return RoundOutcome::Failed(protocol_error(
            answer,
            format!("it asks on after {MAX_ROUNDS} rounds of questions"),
        ));
    }
    let requests = ostler_wire::member(&answer.body, "inputRequests").and_then(ostler_wire::all_members);
    let responses = match requests {
        Some(requests) if !requests.is_empty() => {
            match send_requests(exchange, session, answer, &requests).await {
                Ok(responses) => Some(responses),
                Err(reply) => return RoundOutcome::Failed(reply),
            }
        }
        _ => {
            tokio::time::sleep(RETRY_DELAY * (round + 1)).await;
            None
        }
    };
    let state = ostler_wire::member(&answer.body, "requestState");
    let changes = [
        ("inputResponses", responses.as_deref().map_or(MemberEdit::Remove, MemberEdit::Set)),
        ("requestState", state.map_or(MemberEdit::Remove, MemberEdit::Set)),
    ];
    let continued =
        ostler_wire::edit(params.raw(), &changes).and_then(|text| Params::parse(text.into()).ok());
    continued.map_or_else(
        || RoundOutcome::Failed(protocol_error(answer, "its `requestState` can't be read".into())),
        |params| RoundOutcome::Retry(Box::new(params)),
    )
}

/// Sends requests one after the other: the person at the client sees one at a time.
async fn send_requests(
    exchange: &ClientRequest,
    session: &Arc<ClientSession>,
    answer: &Answer,
    requests: &[(String, &[u8])],
) -> Result<Vec<u8>, GatewayReply> {
    // A dead client does not say so, and its session must not stay for ever.
    let until = Instant::now() + ROUND_TIMEOUT;
    let mut responses = b"{".to_vec();
    for (key, request) in requests {
        let method = ostler_wire::text_member(request, "method").unwrap_or_default();
        if !session.can_answer(&method) {
            let what = ostler_wire::required_client_capability(&method).unwrap_or(&method);
            return Err(protocol_error(
                answer,
                format!("it asks for `{what}`, which the client does not offer"),
            ));
        }
        let asking = session.send_request(&exchange.sink, &method, ostler_wire::member(request, "params"));
        let outcome = timeout_at(until, asking).await.unwrap_or_else(|_| timed_out());
        let value = match outcome {
            RpcOutcome::Result(value) => value,
            // A person that can't be asked has not agreed.
            RpcOutcome::Error(_) if method == "elicitation/create" => "{\"action\":\"cancel\"}".into(),
            RpcOutcome::Error(error) => {
                return Err(GatewayReply::Error { code: error.code, object: error.raw });
            }
        };
        if responses.len() > 1 {
            responses.push(b',');
        }
        ostler_wire::push_json_string(&mut responses, key);
        responses.push(b':');
        responses.extend_from_slice(&value);
    }
    responses.push(b'}');
    Ok(responses)
}

fn timed_out() -> RpcOutcome {
    RpcOutcome::Error(RpcError::new(ostler_wire::INTERNAL_ERROR, "the client did not answer in time"))
}

fn protocol_error(answer: &Answer, detail: String) -> GatewayReply {
    let error = CallError::UpstreamProtocol { server: answer.server.clone(), detail };
    GatewayReply::from_call_error(&error, Era::Legacy)
}
