//! Input of a client over a pipe: requests alone are answered, each once; no tool runs that the
//! caller may not use; and a good request that comes last is answered.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::pipe::serve(input));
