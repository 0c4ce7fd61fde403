//! A modern server asks a legacy client: its `input_required` becomes requests
//! on the stream of the call, and the call is sent again with the answers.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memchr::memmem::Finder;
use ostler_core::error::CallError;
use ostler_host::{Answer, STATE_LIFE};
use ostler_wire::{Change, Era, Outcome, Params, ResultHead, ResultKind, RpcError};
use tokio::time::{Instant, timeout_at};

use crate::exchange::{Exchange, Reply};
use crate::session::Session;

/// How long the person in front of a client may think in one round. The
/// server's request state still is good when the client has not answered.
const PATIENCE: Duration = STATE_LIFE.saturating_sub(Duration::from_secs(30));

/// Rounds of questions that one call may have.
const ROUNDS: u32 = 10;

/// How long a server that only wants to be asked again is left alone, times the round.
const PAUSE: Duration = Duration::from_millis(100);

/// What follows a question.
pub(crate) enum Next {
    /// The call goes out again, with these parameters.
    Again(Box<Params>),
    /// It can't go on.
    Failed(Reply),
}

/// Whether a server wants to know something first.
pub(crate) fn asks(answer: &Answer) -> bool {
    static INPUT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"input_required\""));
    INPUT.find(&answer.body).is_some()
        && ResultHead::open(&answer.body).is_ok_and(|head| head.kind == ResultKind::InputRequired)
}

/// Asks the client what the server wants to know.
pub(crate) async fn next(
    exchange: &Exchange,
    session: &Arc<Session>,
    params: &Params,
    answer: &Answer,
    round: u32,
) -> Next {
    if round >= ROUNDS {
        return Next::Failed(complaint(answer, format!("it asks on after {ROUNDS} rounds of questions")));
    }
    let requests = ostler_wire::member(&answer.body, "inputRequests").and_then(ostler_wire::all_members);
    let responses = match requests {
        Some(requests) if !requests.is_empty() => match ask_all(exchange, session, answer, &requests).await {
            Ok(responses) => Some(responses),
            Err(reply) => return Next::Failed(reply),
        },
        _ => {
            tokio::time::sleep(PAUSE * (round + 1)).await;
            None
        }
    };
    let state = ostler_wire::member(&answer.body, "requestState");
    let changes = [
        ("inputResponses", responses.as_deref().map_or(Change::Remove, Change::Set)),
        ("requestState", state.map_or(Change::Remove, Change::Set)),
    ];
    let continued =
        ostler_wire::edit(params.raw(), &changes).and_then(|text| Params::parse(text.into()).ok());
    continued.map_or_else(
        || Next::Failed(complaint(answer, "its `requestState` can't be read".into())),
        |params| Next::Again(Box::new(params)),
    )
}

/// One after the other: the person in front of the client sees one question at a time.
async fn ask_all(
    exchange: &Exchange,
    session: &Arc<Session>,
    answer: &Answer,
    requests: &[(String, &[u8])],
) -> Result<Vec<u8>, Reply> {
    // A client that has died does not say so, and its session must not stay for ever.
    let until = Instant::now() + PATIENCE;
    let mut responses = b"{".to_vec();
    for (key, request) in requests {
        let method = ostler_wire::text_member(request, "method").unwrap_or_default();
        if !session.can_answer(&method) {
            let what = ostler_wire::capability_to_be_asked(&method).unwrap_or(&method);
            return Err(complaint(answer, format!("it asks for `{what}`, which the client does not offer")));
        }
        let asking = session.ask(&exchange.outlet, &method, ostler_wire::member(request, "params"));
        let outcome = timeout_at(until, asking).await.unwrap_or_else(|_| unanswered());
        let value = match outcome {
            Outcome::Result(value) => value,
            // Whoever can't be asked has not agreed.
            Outcome::Error(_) if method == "elicitation/create" => "{\"action\":\"cancel\"}".into(),
            Outcome::Error(error) => return Err(Reply::Error { code: error.code, object: error.raw }),
        };
        if responses.len() > 1 {
            responses.push(b',');
        }
        ostler_wire::push_text(&mut responses, key);
        responses.push(b':');
        responses.extend_from_slice(&value);
    }
    responses.push(b'}');
    Ok(responses)
}

fn unanswered() -> Outcome {
    Outcome::Error(RpcError::own(ostler_wire::INTERNAL_ERROR, "the client did not answer in time"))
}

fn complaint(answer: &Answer, detail: String) -> Reply {
    let error = CallError::UpstreamProtocol { server: answer.server.clone(), detail };
    Reply::failed(&error, Era::Legacy)
}
