//! Damaged frames at every door: flipped bytes, cut ends, insertions. Nothing may panic, and what is still
//! understood must survive being written and read again.

use bytes::Bytes;
use ostler_wire::{
    ClientIdentity, Frame, Handshake, Id, LineSplitter, ListPage, Message, Meta, Notice, Outcome, Params,
    Progress, ResultHead, canonical, canonical_exact, write_request,
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
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
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
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Flip(at, byte)),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), bytes).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

fn apply(frame: &mut Vec<u8>, damage: &Damage) {
    if frame.is_empty() {
        return;
    }
    match damage {
        Damage::Flip(at, byte) => {
            let at = at.index(frame.len());
            frame[at] ^= byte;
        }
        Damage::Cut(at) => frame.truncate(at.index(frame.len())),
        Damage::Insert(at, bytes) => {
            let at = at.index(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
        Damage::Repeat(from, to) => {
            let (from, to) = (from.index(frame.len()), to.index(frame.len()));
            let part = frame[from.min(to)..from.max(to)].to_vec();
            frame.splice(to..to, part);
        }
    }
}

/// Every parser that takes bytes from outside.
fn knock(bytes: &Bytes) {
    let _ = Id::parse(bytes.clone());
    let _ = Params::parse(bytes.clone()).map(|params| rewrite(&params));
    let _ = ResultHead::open(bytes);
    let _ = ListPage::open(bytes, "tools", "name", 100);
    let _ = Progress::parse(bytes).map(|progress| progress.with_token(b"1"));
    let _ = canonical(bytes);
    if let Ok(form) = canonical_exact(bytes) {
        assert_eq!(canonical_exact(&form).as_deref(), Ok(&form[..]), "a canonical form is its own form");
    }
}

/// Parameters that were understood are understood again after every way of writing them.
fn rewrite(params: &Params) {
    let renamed = params.with_name("other");
    assert_eq!(Params::parse(renamed.raw().clone()).as_ref(), Ok(&renamed));
    let meta = Meta { idempotency_key: Some("k"), progress_token: Some(1), ..Meta::default() };
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
    let client = ClientIdentity { name: "ostler".into(), version: "0".into() };
    let mut handshake = Handshake::new(client, None, "{}");
    handshake.begin();
    handshake
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12_000))]

    #[test]
    fn damaged_frames_panic_nowhere(
        at in 0..FRAMES.len(),
        damages in prop::collection::vec(damage(), 0..4),
        cap in 0usize..400,
    ) {
        let mut frame = FRAMES[at].as_bytes().to_vec();
        damages.iter().for_each(|damage| apply(&mut frame, damage));
        let line = Bytes::from(frame);
        knock(&line);

        match Message::parse(line.clone()) {
            Ok(message @ Message::Response { .. }) => {
                handshake().on_message(&message);
                let Message::Response { outcome, .. } = message else { return Ok(()) };
                match outcome {
                    Outcome::Result(raw) => knock(&raw),
                    Outcome::Error(error) => knock(&error.raw),
                }
            }
            Ok(Message::Request { params, .. }) => params.iter().for_each(knock),
            Ok(Message::Notification { method, params }) => {
                Notice::of(&method);
                params.iter().for_each(knock);
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
