//! Frames of a stream: the same for every split into reads, with a bounded buffer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_wire::{Frame, LineSplitter, READ_CHUNK};

fn split(input: &[u8], cap: usize, read: usize) -> Vec<Frame> {
    let mut splitter = LineSplitter::new(cap);
    let mut frames = Vec::new();
    for chunk in input.chunks(read) {
        splitter.buffer().extend_from_slice(chunk);
        frames.extend(std::iter::from_fn(|| splitter.next_frame()));
        assert!(splitter.buffer().capacity() <= cap + READ_CHUNK);
    }
    frames.extend(std::iter::from_fn(|| splitter.finish()));
    frames
}

fuzz_target!(|input: &[u8]| {
    let [cap, read, stream @ ..] = input else { return };
    let cap = usize::from(*cap);
    assert_eq!(split(stream, cap, usize::from(*read) + 1), split(stream, cap, 4096));
});
