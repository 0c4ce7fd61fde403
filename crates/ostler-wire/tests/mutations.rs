//! Damaged frames in every parser: flipped bytes, truncations, insertions. Nothing may panic, and a frame
//! that still parses must survive being written and parsed again.

use bytes::Bytes;
use ostler_wire::{
    ClientInfo, Frame, Handshake, LineSplitter, ListPage, Message, NotificationKind, Params, ProgressParams,
    RequestId, RequestMeta, ResultHead, RpcOutcome, canonicalize, canonicalize_exact, write_request,
};
use proptest::prelude::*;

const FRAMES: [&str; 8] = [
    r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"srv__echo","arguments":{"text":"h\u00e9llo","n":9007199254740993},"_meta":{"progressToken":"t","traceparent":"00-a","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    r#"{"jsonrpc":"2.0","id":"a\"b","method":"resources/read","params":{"uri":"file:///x","requestState":"s","inputResponses":{}}}"#,
    r#"{"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b"}],"nextCursor":"c","ttlMs":1.5e3,"cacheScope":"public"},"jsonrpc":"2.0","id":1}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":17,"progress":0.5}}"#,
    r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"{\"isError\":true}"}],"isError":false}}"#,
];

#[derive(Clone, Debug)]
enum Mutation {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "\n",
        "\u{0}",
        "null",
        "1e999",
        "-",
        "\\ud800",
        "\"id\":1,",
        "\"method\":\"x\",",
        "\"_meta\":{},",
        "\u{feff}",
        "😀",
    ]);
    let bytes = prop_oneof![
        token.prop_map(|token| token.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Flip(at, byte)),
        any::<prop::sample::Index>().prop_map(Mutation::Cut),
        (any::<prop::sample::Index>(), bytes).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

fn apply(frame: &mut Vec<u8>, damage: &Mutation) {
    if frame.is_empty() {
        return;
    }
    match damage {
        Mutation::Flip(at, byte) => {
            let at = at.index(frame.len());
            frame[at] ^= byte;
        }
        Mutation::Cut(at) => frame.truncate(at.index(frame.len())),
        Mutation::Insert(at, bytes) => {
            let at = at.index(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
        Mutation::Repeat(from, to) => {
            let (from, to) = (from.index(frame.len()), to.index(frame.len()));
            let part = frame[from.min(to)..from.max(to)].to_vec();
            frame.splice(to..to, part);
        }
    }
}

/// Runs every parser that takes bytes from outside.
fn run_every_parser(bytes: &Bytes) {
    let _ = RequestId::parse(bytes.clone());
    let _ = Params::parse(bytes.clone()).map(|params| rewrite(&params));
    let _ = ResultHead::parse(bytes);
    let _ = ListPage::parse(bytes, "tools", "name", 100);
    let _ = ProgressParams::parse(bytes).map(|progress| progress.with_token(b"1"));
    let _ = canonicalize(bytes);
    if let Ok(form) = canonicalize_exact(bytes) {
        assert_eq!(canonicalize_exact(&form).as_deref(), Ok(&form[..]), "a canonical form is its own form");
    }
}

/// Asserts that parsed parameters parse again after every way of writing them.
fn rewrite(params: &Params) {
    let renamed = params.with_name("other");
    assert_eq!(Params::parse(renamed.raw().clone()).as_ref(), Ok(&renamed));
    let meta = RequestMeta { idempotency_key: Some("k"), progress_token: Some(1), ..RequestMeta::default() };
    let mut out = Vec::new();
    write_request(&mut out, 1, "tools/call", params, &meta);
    assert_eq!(out.pop(), Some(b'\n'));
    let Ok(Message::Request { params: Some(written), .. }) = Message::parse(out.into()) else {
        panic!("a written request is a request")
    };
    let Ok(written) = Params::parse(written) else { panic!("written parameters are parameters") };
    assert_eq!(written.name(), params.name());
    assert_eq!(written.progress_token(), Some(&b"1"[..]));
}

fn handshake() -> Handshake {
    let client = ClientInfo { name: "ostler".into(), version: "0".into() };
    let mut handshake = Handshake::new(client, None, "{}");
    handshake.begin();
    handshake
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12_000))]

    #[test]
    fn damaged_frames_panic_nowhere(
        at in 0..FRAMES.len(),
        damages in prop::collection::vec(mutation(), 0..4),
        cap in 0usize..400,
    ) {
        let mut frame = FRAMES[at].as_bytes().to_vec();
        damages.iter().for_each(|damage| apply(&mut frame, damage));
        let line = Bytes::from(frame);
        run_every_parser(&line);

        match Message::parse(line.clone()) {
            Ok(message @ Message::Response { .. }) => {
                handshake().on_message(&message);
                let Message::Response { outcome, .. } = message else { return Ok(()) };
                match outcome {
                    RpcOutcome::Result(raw) => run_every_parser(&raw),
                    RpcOutcome::Error(error) => run_every_parser(&error.raw),
                }
            }
            Ok(Message::Request { params, .. }) => params.iter().for_each(run_every_parser),
            Ok(Message::Notification { method, params }) => {
                NotificationKind::from_method(&method);
                params.iter().for_each(run_every_parser);
            }
            Err(_) => {}
        }

        let mut splitter = LineSplitter::new(cap);
        splitter.buffer().extend_from_slice(&line);
        splitter.buffer().extend_from_slice(b"\nok\n");
        let frames: Vec<_> = std::iter::from_fn(|| splitter.next_frame()).collect();
        if cap >= 2 {
            prop_assert_eq!(frames.last(), Some(&Frame::Line(Bytes::from_static(b"ok"))), "the next line works");
        }
    }
}
