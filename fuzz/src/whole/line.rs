//! Output of a server, as the session over its pipes reads it.
//!
//! Three calls are under way, and an input writes their ids as `FIRST`, `SECOND` and `THIRD`. The
//! first byte of an input selects the era of the server, the second where its output is split.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::fault::{Delivery, Fault};
use ostler_host::upstream::stdio::fuzz_session;
use ostler_host::upstream::{
    CallObserver, ClientMeta, ServerRequest, ServerSession, SharedCallObserver, UpstreamRequest,
};
use ostler_wire::{Era, Message, Params, RpcOutcome};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::server;

/// The longest line, short enough to be exceeded.
const CAP: usize = 1_024;

type LineReply = Result<RpcOutcome, Fault>;

/// Reads `input` as a server's output, then the answer to the third call, then the end of the
/// output.
pub fn read(input: &[u8]) {
    let [first, cut, output @ ..] = input else { return };
    let era = if first & 1 == 0 { Era::Modern } else { Era::Legacy };
    super::run(async {
        let (stdin, mut stdin_reader) = pipe::pipe().expect("a pipe can be made");
        let (mut stdout, session_stdout) = pipe::pipe().expect("a pipe can be made");
        let session = fuzz_session(stdin, session_stdout, server::server_info(era), CAP);
        session.listen(&["file:///r".to_owned()]);
        let mut calls = Vec::new();
        for method in ["tools/call", "tools/call", "tools/list"] {
            calls.push(tokio::spawn(send_call(Arc::clone(&session), method)));
            let_session_run().await;
        }
        let written = read_written(&mut stdin_reader).await;
        let numbers = numbers(&written);
        let output = substitute_numbers(output, &numbers);
        let last = [b"\n", good(&numbers[2]).as_bytes(), b"\n"].concat();
        let (one, two) = output.split_at(usize::from(*cut).min(output.len()));
        for piece in [one, two, &last] {
            stdout.write_all(piece).await.expect("the session reads");
            let_session_run().await;
        }
        let answered = read_written(&mut stdin_reader).await;
        drop(stdout);
        let began = Instant::now();
        for (number, call) in numbers.iter().zip(calls) {
            let reply = call.await.expect("nobody panics");
            check_own_answer(number, &reply, &[&output[..], &last].concat());
            if number == &numbers[2] && !contains(&output, number.as_bytes()) {
                assert!(
                    matches!(&reply, Ok(RpcOutcome::Result(result)) if result == r#"{"good":true}"#),
                    "{reply:?}"
                );
            }
        }
        assert!(began.elapsed() < Duration::from_secs(5), "calls end with the output, not with their time");
        // The client's answers belong to requests of the server.
        for line in answered.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match Message::parse(Bytes::copy_from_slice(line)) {
                Ok(Message::Response { id: Some(id), .. }) => assert!(contains(&output, id.raw()), "{id}"),
                Ok(Message::Notification { .. }) => {}
                other => panic!("{other:?} from {}", String::from_utf8_lossy(line)),
            }
        }
    });
}

/// Checks that an answer reaches only the call whose id it names.
fn check_own_answer(number: &str, reply: &LineReply, output: &[u8]) {
    let lines = || output.split(|byte| *byte == b'\n').filter(|line| contains(line, number.as_bytes()));
    // Some servers make the id a string.
    let is_number = |id: &RawValue| id.get().trim_matches('"') == number;
    let is_named = |line: &[u8]| match serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(line) {
        Ok(object) => !object.contains_key("method") && object.get("id").is_some_and(|id| is_number(id)),
        // A damaged line, or one that this library does not parse.
        Err(_) => true,
    };
    let content = match reply {
        Ok(RpcOutcome::Result(result)) => result,
        Ok(RpcOutcome::Error(error)) => &error.raw,
        // A damaged line, or one too long to be kept, may name several ids.
        Err(fault) if fault.delivery == Delivery::Answered => {
            return assert!(lines().count() > 0, "{fault:?}");
        }
        Err(_) => return,
    };
    assert!(
        lines().any(|line| is_named(line) && contains(line, content)),
        "{number} was not answered {content:?}"
    );
}

/// Observer that answers every request.
struct FuzzObserver;

impl CallObserver for FuzzObserver {
    fn wants_progress(&self) -> bool {
        true
    }

    fn can_answer(&self, _: &str) -> bool {
        true
    }

    fn on_request(&self, request: ServerRequest) {
        request.answer(RpcOutcome::Result(Bytes::from_static(b"{}")));
    }
}

async fn send_call(session: Arc<dyn ServerSession>, method: &str) -> LineReply {
    let params = Params::tool_call(server::ECHO, None).expect("it is a tool");
    let observer: SharedCallObserver = Arc::new(FuzzObserver);
    let request = UpstreamRequest {
        method,
        params: &params,
        idempotency_key: None,
        deadline: Instant::now() + Duration::from_secs(60),
        client: ClientMeta::Host,
        observer: Some(&observer),
        has_other_callers: None,
        hard_deadline: Instant::now() + Duration::from_secs(600),
        headers: &[],
        may_send: None,
    };
    session.request(request).await
}

/// Lets the session read and write, which takes a turn of the runtime for each.
async fn let_session_run() {
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns what the session has written so far.
async fn read_written(stdin_reader: &mut pipe::Receiver) -> Vec<u8> {
    let mut all = Vec::new();
    let moment = Duration::from_millis(1);
    while let Ok(Ok(1..)) = tokio::time::timeout(moment, stdin_reader.read_buf(&mut all)).await {}
    all
}

/// Returns the ids of the calls, in their order.
fn numbers(written: &[u8]) -> Vec<String> {
    let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let number = |line: &[u8]| match Message::parse(Bytes::copy_from_slice(line)) {
        Ok(Message::Request { id, method, .. }) if method != "subscriptions/listen" => Some(id.to_string()),
        _ => None,
    };
    lines.filter_map(number).collect()
}

fn good(number: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"good":true}}}}"#)
}

fn substitute_numbers(output: &[u8], numbers: &[String]) -> Vec<u8> {
    let words = ["FIRST", "SECOND", "THIRD"];
    words.iter().zip(numbers).fold(output.to_vec(), |text, (word, number)| {
        super::replace(&text, word.as_bytes(), number.as_bytes())
    })
}

fn contains(text: &[u8], words: &[u8]) -> bool {
    words.is_empty() || text.windows(words.len()).any(|window| window == words)
}
