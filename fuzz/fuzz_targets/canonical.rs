//! A canonical form is its own canonical form, and an exact one is the plain one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_wire::{canonical, canonical_exact};

fuzz_target!(|input: &[u8]| {
    let Ok(form) = canonical(input) else { return };
    assert_eq!(canonical(&form).as_deref(), Ok(&form[..]));
    if let Ok(exact) = canonical_exact(input) {
        assert_eq!(exact, form);
    }
});
