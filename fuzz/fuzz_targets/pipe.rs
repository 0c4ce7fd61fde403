//! What a client says over a pipe: only what was asked is answered, and no more often; nothing is done that the
//! caller may not do; and a good request that comes last is answered.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::pipe::serve(input));
