//! Config in TOML; see `ostler_fuzz::config`.
#![no_main]

use ostler_core::config::ConfigFormat;

libfuzzer_sys::fuzz_target!(|input: &[u8]| ostler_fuzz::config::read(input, ConfigFormat::Toml));
