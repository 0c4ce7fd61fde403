//! Parameters: written ones mean the same as those that were parsed.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ostler_wire::{Message, Params, RequestMeta, write_request};

fuzz_target!(|input: &[u8]| {
    let Ok(params) = Params::parse(Bytes::copy_from_slice(input)) else { return };
    let meta = RequestMeta { idempotency_key: Some("k"), progress_token: Some(7), ..RequestMeta::default() };
    let mut out = Vec::new();
    write_request(&mut out, 1, "tools/call", &params, &meta);
    assert_eq!(out.iter().position(|byte| *byte == b'\n'), Some(out.len() - 1), "one line");
    out.pop();

    let Ok(Message::Request { params: Some(raw), .. }) = Message::parse(out.into()) else {
        panic!("a written request is a request")
    };
    let written = Params::parse(raw).expect("written parameters are parameters");
    assert_eq!(written.progress_token(), Some(&b"7"[..]));
    assert_eq!((written.name(), written.uri()), (params.name(), params.uri()));
    assert_eq!((written.cursor(), written.task_id()), (params.cursor(), params.task_id()));
    let flat = |value: Option<&[u8]>| {
        value.map(|raw| raw.to_vec()).map(|mut raw| {
            raw.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
            raw
        })
    };
    assert_eq!(flat(written.arguments()), flat(params.arguments()));
    assert_eq!(flat(written.request_state()), flat(params.request_state()));

    let renamed = params.with_name("other");
    assert_eq!(Params::parse(renamed.raw().clone()).as_ref(), Ok(&renamed));
});
