//! Event streams: the events are the same for every split into reads, with a bounded buffer, and
//! written events are read as they were meant.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_wire::{Oversize, SseEvent, SseParser, write_sse_comment, write_sse_event, write_sse_retry};

fn split(stream: &[u8], cap: usize, read: usize) -> Vec<Result<SseEvent, Oversize>> {
    let mut parser = SseParser::new(cap);
    let mut events = Vec::new();
    for chunk in stream.chunks(read) {
        parser.push(chunk);
        events.extend(std::iter::from_fn(|| parser.next_event()));
    }
    events
}

fuzz_target!(|input: &[u8]| {
    let [cap, read, stream @ ..] = input else { return };
    let (cap, read) = (usize::from(*cap) * 4, usize::from(*read) + 1);
    let events = split(stream, cap, read);
    assert_eq!(events, split(stream, cap, 4096));
    for event in events.iter().flatten() {
        assert!(event.data.len() <= cap + 1, "{} bytes of {cap}", event.data.len());
        assert!(event.id.as_ref().is_none_or(|id| !id.contains(['\0', '\n', '\r'])));
    }

    let text = String::from_utf8_lossy(stream);
    let mut written = Vec::new();
    write_sse_comment(&mut written, &text);
    write_sse_retry(&mut written, std::time::Duration::from_millis(7));
    write_sse_event(&mut written, Some(&text), stream);
    let read = split(&written, written.len(), read);
    let last = read.last().and_then(|event| event.as_ref().ok()).expect("a written event is an event");
    let flat: Vec<u8> =
        stream.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
    assert_eq!(last.data, flat, "the data is what was written, on one line");
    assert_eq!(read.len(), 2, "the retry, the event, and no third one smuggled in: {read:?}");
});
