//! What servers answer, as it reaches clients of both eras.

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

/// So often a server that asks something gets an answer from a client that can't be asked.
const ROUNDS: usize = 10;

/// Two clients, one of each era, ask a server that answers with `input`: the first byte says which method is
/// answered so, and which era the server is of. Each gets one answer; an error is the server's own.
pub fn relay(input: &[u8]) {
    let [first, answer @ ..] = input else { return };
    // What is no answer never gets here: the reader of the server has skipped it.
    let line = [br#"{"jsonrpc":"2.0","id":1,"#, answer, b"}"].concat();
    let Ok(Message::Response { outcome, .. }) = Message::parse(line.into()) else { return };
    let (method, params) = METHODS[usize::from(*first >> 1) % METHODS.len()];
    let era = if first & 1 == 0 { Era::Modern } else { Era::Legacy };
    let value = |raw: &[u8]| serde_json::from_slice::<Value>(raw).ok();
    let (error, asks) = match &outcome {
        RpcOutcome::Error(error) => (value(&error.raw), false),
        // What a general JSON library does not read may ask something as well.
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
    let said = format!("{modern}\n{open}\n{legacy}\n");
    super::run(async {
        let (host, executed) = server::host(era, Arc::new(script)).await;
        let gateway = Gateway::new(host, GatewayOptions::default());
        let heard = pipe::run_client(gateway, Caller::local(), said.into_bytes()).await;
        let most = if asks { 2 + ROUNDS } else { 2 };
        assert!(executed.take().len() <= most, "no call is repeated but to answer what its server asks");
        if heard.contains(&Value::Null) {
            return;
        }
        for id in ["modern", "legacy"] {
            let answers: Vec<_> = pipe::answers(&heard).filter(|answer| answer["id"] == id).collect();
            assert_eq!(answers.len(), 1, "{id}: {heard:?}");
            if let (Some(error), "tools/call") = (&error, method) {
                let mut error = error.clone();
                // A resource that is missing has another code in the modern era.
                if id == "modern" && error["code"] == -32002 {
                    error["code"] = (-32602).into();
                }
                assert_eq!(answers[0].get("error"), Some(&error), "the server's own error");
            }
        }
    });
}
