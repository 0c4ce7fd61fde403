//! Response bodies: cut anywhere, compressed, too long, or malformed.

use std::io::Write;

use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_testkit::{MemoryGrowth, Proc};
use serde_json::json;

use crate::fixture::{HttpFixture, code, spec};
use crate::scripted_endpoint::{RecordedRequest, ScriptedEndpoint, content, modern, raw, stream};

fn on_call(answer: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) -> ScriptedEndpoint {
    ScriptedEndpoint::start(modern(move |got| got.is_call().then(|| answer(got))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_at_every_byte_says_the_same() {
    let remote = on_call(|got| {
        let (feed, response) = stream();
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "größe"}});
        let text = format!(
            "\u{feff}: hi\r\nevent: message\r\nid: 1\r\ndata: {note}\r\n\r\ndata: {}\r\rdata: x",
            got.message("größe")
        );
        tokio::spawn(async move {
            for byte in text.into_bytes() {
                feed.write_bytes(vec![byte]);
                tokio::task::yield_now().await;
            }
            // The stream stays open: the response is complete before its end.
            feed.unread().await;
        });
        response
    });
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "größe");
}

/// Malformed responses, with the call's id for `ID`.
const UNUSABLE: [&str; 8] = [
    r#"{"jsonrpc":"2.0","id":ID}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":null}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":[1]}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":"x"}"#,
    "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}",
    r#"[{"jsonrpc":"2.0","id":ID,"result":{}}]"#,
    r#"[{"jsonrpc":"2.0","method":"notifications/message"}, {"jsonrpc":"2.0","id":ID}]"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":"x"}"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_the_wrong_shape_fails_its_call_at_once() {
    for text in UNUSABLE {
        let remote =
            on_call(|got| raw(200, "application/json", text.replace("ID", &got.body["id"].to_string())));
        let stage = HttpFixture::connected_to(&remote).await;
        assert_eq!(code(&stage.call("echo").await), "upstream-protocol", "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_the_wrong_shape_fails_its_call_at_once() {
    for text in UNUSABLE {
        let remote = on_call(|got| {
            let (feed, response) = stream();
            let event = format!("data: {}\n\n", text.replace("ID", &got.body["id"].to_string()));
            tokio::spawn(async move {
                feed.write_bytes(event.into_bytes());
                // The stream stays open: nothing else would end the call.
                feed.unread().await;
            });
            response
        });
        let stage = HttpFixture::connected_to(&remote).await;
        assert_eq!(code(&stage.call("echo").await), "upstream-protocol", "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_is_understood() {
    let remote = on_call(|got| zipped(got.message("squeezed").to_string().as_bytes()));
    let stage = HttpFixture::connected_to(&remote).await;
    assert_eq!(stage.text("echo").await, "squeezed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_given_up_at_the_limit() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..256 {
        bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let remote = on_call(move |_| packed(bomb.clone()));
    let mut spec = spec(&remote.url());
    spec.max_line = 1 << 20;
    let stage = HttpFixture::with_server(spec).await;
    let growth = MemoryGrowth::begin(Proc::current());
    let outcome = stage.call("echo").await;
    assert_eq!(code(&outcome), "upstream-protocol");
    assert!(outcome.unwrap_err().cause().unwrap().contains("1048576 bytes"));
    assert!(growth.kib() < 32 << 10, "the limit counts after decompression: {} KiB", growth.kib());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_fails_its_call_alone() {
    let remote = on_call(|got| match got.tool() {
        "slow" => got.text(&"x".repeat(2 << 20)),
        "ask" => raw(200, "text/event-stream", format!("data: {}\n\n", got.message(&"x".repeat(2 << 20)))),
        _ => got.text("fine"),
    });
    let mut spec = spec(&remote.url());
    spec.max_line = 1 << 20;
    let stage = HttpFixture::with_server(spec).await;
    for tool in ["slow", "ask"] {
        assert_eq!(code(&stage.call(tool).await), "upstream-protocol", "{tool}");
    }
    assert_eq!(stage.text("echo").await, "fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_is_told_as_such() {
    let remote = on_call(|got| match got.tool() {
        "slow" => raw(200, "text/html", "<html>"),
        "ask" => raw(200, "application/json", "{\"jsonrpc\":"),
        "größe" => raw(202, "application/json", ""),
        _ => raw(
            200,
            "application/json",
            json!({"jsonrpc": "2.0", "id": 1, "result": content("x")}).to_string(),
        ),
    });
    let mut spec = spec(&remote.url());
    spec.breaker.failures = 0;
    let stage = HttpFixture::with_server(spec).await;
    for tool in ["echo", "slow"] {
        assert_eq!(code(&stage.call(tool).await), "upstream-protocol", "{tool}");
    }
    stage.host.reload("remote").await.unwrap();
    for tool in ["ask", "größe"] {
        assert_eq!(code(&stage.call(tool).await), "upstream-protocol", "{tool}");
    }
}

fn zipped(text: &[u8]) -> Response {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    packed(encoder.finish().unwrap())
}

fn packed(bytes: Vec<u8>) -> Response {
    let mut response = raw(200, "application/json", bytes);
    response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    response
}
