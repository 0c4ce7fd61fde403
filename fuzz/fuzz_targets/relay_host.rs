//! Messages of workers, as a host reads them: no call is carried out twice, nothing is done that a role may not
//! do, and the next good call is carried out.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::whole::relay_host::serve(input));
