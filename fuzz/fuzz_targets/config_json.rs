//! Config in JSON with comments, Ostler's own or another client's; see `ostler_fuzz::config`.
#![no_main]

use ostler_core::config::ConfigFormat;

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::config::read(input, ConfigFormat::Json));
