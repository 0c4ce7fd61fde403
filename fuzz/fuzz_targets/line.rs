//! Output of a server: an answer reaches the call whose id it names, and no other; every call ends;
//! every line that is written back is well-formed and was asked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::line::read(input));
