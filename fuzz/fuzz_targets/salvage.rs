//! Response ids of damaged lines: never invented, and equal to the id of the parsed line where it
//! parses.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ostler_wire::{Frame, LineSplitter, Message, RequestId, extract_response_id};

/// Returns the response id of a line that is too long to be kept.
fn id_of_oversize(line: &[u8], read: usize) -> Option<RequestId> {
    let mut splitter = LineSplitter::new(0);
    for chunk in line.chunks(read) {
        splitter.buffer().extend_from_slice(chunk);
        match splitter.next_frame() {
            Some(Frame::Oversize(oversize)) => return oversize.answered_id,
            Some(Frame::Line(line)) => panic!("nothing is short enough: {line:?}"),
            None => {}
        }
    }
    match splitter.finish() {
        Some(Frame::Oversize(oversize)) => oversize.answered_id,
        _ => None,
    }
}

fuzz_target!(|input: &[u8]| {
    let salvaged = extract_response_id(input);
    if let Some(id) = &salvaged {
        let raw = id.raw();
        assert!(input.windows(raw.len()).any(|window| window == raw), "{id} does not stand there");
    }
    if !input.contains(&b'\n') {
        assert_eq!(id_of_oversize(input, 3), id_of_oversize(input, 4096), "reads make no difference");
    }
    match Message::parse(Bytes::copy_from_slice(input)) {
        Ok(Message::Response { id: Some(id), .. }) => {
            assert!(salvaged.is_none_or(|salvaged| salvaged == id), "another id than the message has");
        }
        Ok(_) => assert_eq!(salvaged, None, "no answer has no id"),
        Err(_) => {}
    }
});
