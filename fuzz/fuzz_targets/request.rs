//! Requests to the gateway: each has one well-formed answer, under its own id. One that is refused, shows no
//! credential or comes from a foreign page does nothing at the server, and the next good one is served.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::request::answer(input));
