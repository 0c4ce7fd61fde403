//! Answers of a server, as they reach clients of both eras: each client gets one well-formed answer
//! to its own request, whatever the answer holds, and an error is the server's own.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::answers::relay(input));
