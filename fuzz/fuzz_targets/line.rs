//! What a server writes to its output: an answer reaches the call whose number it names, and no other; every
//! call ends; whatever is written back is well-formed and was asked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::line::read(input));
