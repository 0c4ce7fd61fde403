//! Readers of whole messages: no input may panic.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ostler_wire::{
    ClientInfo, Era, Handshake, ListPage, Message, Params, ProgressParams, ResultHead, RpcOutcome,
};

fuzz_target!(|input: &[u8]| {
    let Ok(message) = Message::parse(Bytes::copy_from_slice(input)) else { return };
    for remembered in [Era::Modern, Era::Legacy] {
        let client = ClientInfo { name: "fuzz".into(), version: "0".into() };
        let mut handshake = Handshake::new(client, Some(remembered), "{}");
        handshake.begin();
        handshake.on_message(&message);
    }
    match message {
        Message::Request { params: Some(params), .. } => drop(Params::parse(params)),
        Message::Notification { params: Some(params), .. } => drop(ProgressParams::parse(&params)),
        Message::Response { outcome: RpcOutcome::Result(result), .. } => {
            drop(ResultHead::parse(&result));
            drop(ListPage::parse(&result, "tools", "name", 100));
        }
        _ => {}
    }
});
