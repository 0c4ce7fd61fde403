//! Hot-path benchmarks of parsing and writing. Run with `cargo bench -p ostler-wire`.

use bytes::Bytes;
use divan::{Bencher, black_box};
use ostler_wire::{Frame, LineSplitter, Message, Params, RequestMeta, ResultHead, RpcOutcome, write_request};

fn main() {
    divan::main();
}

/// Returns a tool's answer whose text content has about `size` bytes, quotes and line breaks as in real text.
fn answer(size: usize) -> Bytes {
    let text = "The quick brown fox says \\\"hello\\\" and goes on.\\n".repeat(size / 48);
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":1017,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    ))
}

/// Returns a tool call's parameters whose arguments have about `size` bytes.
fn call(size: usize) -> Params {
    let text = "x".repeat(size);
    let raw = format!(r#"{{"name":"echo","arguments":{{"text":"{text}"}},"_meta":{{"progressToken":7}}}}"#);
    Params::parse(raw.into()).unwrap_or_default()
}

#[divan::bench(args = [1_200, 10_000])]
fn parse_message(bencher: Bencher<'_, '_>, size: usize) {
    let line = answer(size);
    bencher.bench(|| Message::parse(black_box(line.clone())));
}

/// Measures the lower bound of `parse_message`: the UTF-8 check and serde's walk over one raw value.
#[divan::bench(args = [1_200, 10_000])]
fn walk_raw_value(bencher: Bencher<'_, '_>, size: usize) {
    let line = answer(size);
    bencher.bench(|| {
        let text = std::str::from_utf8(black_box(&line)).ok()?;
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok().map(|raw| raw.get().len())
    });
}

#[divan::bench(args = [100, 10_000])]
fn parse_params(bencher: Bencher<'_, '_>, size: usize) {
    let raw = call(size).raw().clone();
    bencher.bench(|| Params::parse(black_box(raw.clone())));
}

#[divan::bench(args = [100, 10_000])]
fn rename(bencher: Bencher<'_, '_>, size: usize) {
    let params = call(size);
    bencher.bench(|| black_box(&params).with_name("other"));
}

#[divan::bench(args = [100, 10_000])]
fn write(bencher: Bencher<'_, '_>, size: usize) {
    let params = call(size);
    let meta = RequestMeta {
        idempotency_key: Some("0123456789abcdef"),
        progress_token: Some(17),
        ..RequestMeta::default()
    };
    let mut out = Vec::with_capacity(16_384);
    bencher.bench_local(|| {
        out.clear();
        write_request(&mut out, 1017, "tools/call", black_box(&params), &meta);
    });
}

#[divan::bench(args = [1_200, 10_000])]
fn open_plain_result(bencher: Bencher<'_, '_>, size: usize) {
    let Ok(Message::Response { outcome: RpcOutcome::Result(result), .. }) = Message::parse(answer(size))
    else {
        return;
    };
    bencher.bench(|| ResultHead::parse(black_box(&result)));
}

#[divan::bench(args = [1_200, 10_000])]
fn open_result_with_hints(bencher: Bencher<'_, '_>, size: usize) {
    let text = "x".repeat(size);
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#);
    bencher.bench(|| ResultHead::parse(black_box(result.as_bytes())));
}

#[divan::bench(args = [1_200, 10_000])]
fn split_line(bencher: Bencher<'_, '_>, size: usize) {
    let mut line = answer(size).to_vec();
    line.push(b'\n');
    let mut splitter = LineSplitter::new(1 << 24);
    bencher.bench_local(move || {
        splitter.buffer().extend_from_slice(&line);
        assert!(matches!(splitter.next_frame(), Some(Frame::Line(_))));
    });
}
