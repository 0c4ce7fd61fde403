//! What a server answers, as it reaches clients of both eras: each gets one well-formed answer to its own
//! request, whatever stands in it, and an error is the server's own.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::answers::relay(input));
