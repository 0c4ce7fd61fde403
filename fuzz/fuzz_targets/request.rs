//! Requests to the gateway: each has one well-formed answer, under its own id. A request that is
//! refused, has no credential or comes from a foreign page has no effect at the server, and the
//! next good one is served.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::request::answer(input));
