//! Every reader of whole messages: no input may panic.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ostler_wire::{ClientIdentity, Era, Handshake, ListPage, Message, Outcome, Params, Progress, ResultHead};

fuzz_target!(|input: &[u8]| {
    let Ok(message) = Message::parse(Bytes::copy_from_slice(input)) else { return };
    for remembered in [Era::Modern, Era::Legacy] {
        let client = ClientIdentity { name: "fuzz".into(), version: "0".into() };
        let mut handshake = Handshake::new(client, Some(remembered), "{}");
        handshake.begin();
        handshake.on_message(&message);
    }
    match message {
        Message::Request { params: Some(params), .. } => drop(Params::parse(params)),
        Message::Notification { params: Some(params), .. } => drop(Progress::parse(&params)),
        Message::Response { outcome: Outcome::Result(result), .. } => {
            drop(ResultHead::open(&result));
            drop(ListPage::open(&result, "tools", "name", 100));
        }
        _ => {}
    }
});
