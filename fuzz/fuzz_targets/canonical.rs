//! Canonical forms: each is its own canonical form, the exact one equals the plain one, and both
//! algorithms agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_wire::{canonicalize, canonicalize_exact};

fuzz_target!(|input: &[u8]| {
    let Ok(form) = canonicalize(input) else { return };
    assert_eq!(canonicalize(&form).as_deref(), Ok(&form[..]));
    if let Ok(exact) = canonicalize_exact(input) {
        assert_eq!(exact, form);
    }
    // The fast algorithm refuses a fraction. One more level may be too deep for the other.
    let is_shallow = input.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() < 100;
    let by_parsing = canonicalize(&[b"[1.0,", input, b"]"].concat());
    match by_parsing {
        Ok(wrapped) => assert_eq!(wrapped, [b"[1,", &form[..], b"]"].concat(), "both ways agree"),
        Err(error) => assert!(!is_shallow, "{error}"),
    }
});
