//! Answers of servers, as they reach clients of both eras.

use std::sync::Arc;

use ostler_gateway::{Gateway, GatewayOptions};
use ostler_host::Caller;
use ostler_host::upstream::UpstreamRequest;
use ostler_wire::{Era, Message, RpcOutcome};
use serde_json::Value;

use super::{META, pipe, server};

const METHODS: [(&str, &str); 6] = [
    ("tools/call", r#""name":"s__echo","arguments":{},"#),
    ("tools/list", ""),
    ("resources/list", ""),
    ("resources/read", r#""uri":"file:///r","#),
    ("prompts/list", ""),
    ("prompts/get", r#""name":"s__p","#),
];

/// The most requests for input of one call that the gateway refuses for a client that can't answer.
const ROUNDS: usize = 10;

/// Calls a server that answers with `input`, by a client of each era. The first byte selects the
/// method with that answer, and the era of the server. Each client gets one answer; an error is the
/// server's own.
pub fn relay(input: &[u8]) {
    let [first, answer @ ..] = input else { return };
    // Other messages never reach the gateway: the session's reader skips them.
    let line = [br#"{"jsonrpc":"2.0","id":1,"#, answer, b"}"].concat();
    let Ok(Message::Response { outcome, .. }) = Message::parse(line.into()) else { return };
    let (method, params) = METHODS[usize::from(*first >> 1) % METHODS.len()];
    let era = if first & 1 == 0 { Era::Modern } else { Era::Legacy };
    let value = |raw: &[u8]| serde_json::from_slice::<Value>(raw).ok();
    let (error, needs_input) = match &outcome {
        RpcOutcome::Error(error) => (value(&error.raw), false),
        // A result that a general JSON library does not parse may ask for input as well.
        RpcOutcome::Result(result) => {
            (None, value(result).is_none_or(|it| it["resultType"] == "input_required"))
        }
    };
    let script = move |request: &UpstreamRequest<'_>| match request.method == method {
        true => outcome.clone(),
        false => server::default_answer(request),
    };
    let request = |id: &str, meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{{params}{meta}}}}}"#)
    };
    let (modern, legacy) = (request("modern", META), request("legacy", r#""_meta":{}"#));
    let open = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
    let sent = format!("{modern}\n{open}\n{legacy}\n");
    super::run(async {
        let (host, executed) = server::host(era, Arc::new(script)).await;
        let gateway = Gateway::new(host, GatewayOptions::default());
        let received = pipe::run_client(gateway, Caller::local(), sent.into_bytes()).await;
        let most = if needs_input { 2 + ROUNDS } else { 2 };
        assert!(
            executed.take().len() <= most,
            "no call is repeated but to answer what its server needs_input"
        );
        if received.contains(&Value::Null) {
            return;
        }
        for id in ["modern", "legacy"] {
            let answers: Vec<_> = pipe::answers(&received).filter(|answer| answer["id"] == id).collect();
            assert_eq!(answers.len(), 1, "{id}: {received:?}");
            if let (Some(error), "tools/call") = (&error, method) {
                let mut error = error.clone();
                // The modern era has another code for a missing resource.
                if id == "modern" && error["code"] == -32002 {
                    error["code"] = (-32602).into();
                }
                assert_eq!(answers[0].get("error"), Some(&error), "the server's own error");
            }
        }
    });
}
