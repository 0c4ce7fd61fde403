//! Messages of hosts, as a worker reads them: its call ends with nothing but what was sent to it,
//! is sent once, and the next one works.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::relay_worker::call(input));
