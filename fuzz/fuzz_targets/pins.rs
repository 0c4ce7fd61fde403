//! Two definitions of a tool: their hashes differ exactly if something did that counts, and whatever a server
//! writes into them can be shown.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ostler_core::pins::suspect::Inspector;
use ostler_core::pins::{Piece, Pin, changes, diff, hash, is_deceptive, reveal};

static INSPECTOR: LazyLock<Inspector> = LazyLock::new(Inspector::default);

fuzz_target!(|input: &[u8]| {
    let middle = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (old, new) = (&input[..middle], input.get(middle + 1..).unwrap_or_default());
    let shown = reveal(&String::from_utf8_lossy(input));
    assert!(shown.chars().all(|c| c == '\n' || !is_deceptive(c)), "{shown:?}");
    let (old_text, new_text) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let pieces = diff(&old_text, &new_text);
    let text_of = |is_new: bool| {
        let parts = pieces.iter().map(|piece| match piece {
            Piece::Same(text) => text.as_str(),
            Piece::Gone(text) if !is_new => text,
            Piece::Come(text) if is_new => text,
            _ => "",
        });
        parts.collect::<String>()
    };
    assert_eq!((text_of(false), text_of(true)), (old_text.into_owned(), new_text.into_owned()));
    let _ = INSPECTOR.inspect("server", new);

    let (Ok(one), Ok(two)) = (Pin::of(old), Pin::of(new)) else { return };
    assert_eq!(hash(&one.definition).ok(), Some(one.hash), "the kept definition has the hash");
    let found = changes(&one.definition, &two.definition);
    assert_eq!(found.is_empty(), one.hash == two.hash, "{found:?}");
});
