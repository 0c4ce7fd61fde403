//! Messages of workers, as a host reads them: no call runs twice, no tool runs that a role may not
//! use, and the next good call runs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::relay_host::serve(input));
