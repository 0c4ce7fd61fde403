//! Clients over a pipe.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use ostler_gateway::{Gateway, GatewayOptions, Scope};
use ostler_host::Caller;
use ostler_wire::{Era, Message};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{META, server};

/// The longest message that the gateway accepts here.
const MAX_BODY: usize = 2_048;

/// Returns everything that the gateway sends to a client that sends `sent` and then leaves. Lines
/// that a general JSON library does not parse, such as numbers beyond a double, pass through the
/// gateway and are null here.
pub(super) async fn run_client(gateway: Gateway, caller: Caller, sent: Vec<u8>) -> Vec<Value> {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(theirs);
    let serving = tokio::spawn(gateway.serve_stream(reader, writer, caller, Scope::All));
    let (mut output, mut input) = tokio::io::split(ours);
    let speaking = tokio::spawn(async move {
        // If the gateway closes the pipe early, its missing answers show it.
        let _ = input.write_all(&sent).await;
        let _ = input.shutdown().await;
    });
    let mut received = Vec::new();
    output.read_to_end(&mut received).await.expect("a pipe can be read");
    speaking.await.expect("nobody panics");
    serving.await.expect("the gateway does not panic");
    let read = |line: &[u8]| {
        assert!(is_message(line), "{}", String::from_utf8_lossy(line));
        serde_json::from_slice(line).unwrap_or(Value::Null)
    };
    received.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read).collect()
}

/// Returns whether a line is a message, or a batch of them.
fn is_message(line: &[u8]) -> bool {
    Message::parse(Bytes::copy_from_slice(line)).is_ok()
        || serde_json::from_slice::<Vec<Value>>(line).is_ok_and(|batch| !batch.is_empty())
}

/// Returns the answers among messages, those in batches too.
pub(super) fn answers(messages: &[Value]) -> impl Iterator<Item = &Value> {
    let each = messages.iter().flat_map(|message| match message {
        Value::Array(batch) => batch.iter().collect::<Vec<_>>(),
        other => vec![other],
    });
    each.filter(|message| message.is_object() && message.get("method").is_none())
}

/// Serves the lines of `input`, and a good request after them, to a caller that may use one tool.
pub fn serve(input: &[u8]) {
    let good = format!(
        r#"{{"jsonrpc":"2.0","id":"good","method":"tools/call","params":{{"name":"s__echo","arguments":{{"n":1}},{META}}}}}"#
    );
    let sent = [input, b"\n", good.as_bytes(), b"\n"].concat();
    let mut requested: HashMap<String, usize> = HashMap::new();
    let mut requests = 0;
    // The id of a line beyond the bound is extracted without parsing the rest, which may be no
    // JSON.
    let mut is_unread = false;
    for line in sent.split(|byte| *byte == b'\n') {
        let lines = match serde_json::from_slice(line) {
            Ok(Value::Array(batch)) => batch,
            Ok(other) => vec![other],
            // It may be a message that this library does not parse.
            Err(_) => {
                is_unread |= line.len() > MAX_BODY;
                vec![Value::Null]
            }
        };
        requests += lines.len();
        lines
            .iter()
            .filter_map(|line| line.get("id"))
            .for_each(|id| *requested.entry(id.to_string()).or_default() += 1);
    }
    super::run(async {
        let (host, executed) = server::host(Era::Modern, Arc::new(server::default_answer)).await;
        let options = GatewayOptions { page_size: 1, max_body: MAX_BODY, ..GatewayOptions::default() };
        let received = run_client(Gateway::new(host, options), Caller::new("ann", "few"), sent.clone()).await;
        let answer = answers(&received).filter(|answer| answer["id"] == "good").last();
        let answer = answer.expect("the last request is answered");
        let is_taken = String::from_utf8_lossy(input).contains("good");
        assert!(is_taken || answer["result"]["structuredContent"]["n"] == 1, "{answer}");

        let executed = executed.take();
        assert!(executed.iter().all(|tool| tool == server::ECHO), "not allowed: {executed:?}");
        assert!(executed.len() <= requests, "{} calls for {requests} messages", executed.len());
        // Ids that this library does not parse, or parses as another number, are not counted.
        if is_unread
            || sent.contains(&b'\\')
            || received.contains(&Value::Null)
            || requested.contains_key("null")
        {
            return;
        }
        for answer in answers(&received).filter(|answer| !answer["id"].is_null()) {
            let left = requested.get_mut(&answer["id"].to_string()).expect("only what was asked is answered");
            *left = left.checked_sub(1).expect("and not more often than it was asked");
        }
    });
}
