//! Two definitions of a tool: their hashes differ exactly if a relevant member differs, and every
//! text in them can be displayed safely.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ostler_core::pins::lint::Linter;
use ostler_core::pins::{
    DiffSegment, Pin, diff_words, field_changes, hash_definition, is_deceptive, spell_out_deceptive,
};

static LINTER: LazyLock<Linter> = LazyLock::new(Linter::default);

fuzz_target!(|input: &[u8]| {
    let middle = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (old, new) = (&input[..middle], input.get(middle + 1..).unwrap_or_default());
    let shown = spell_out_deceptive(&String::from_utf8_lossy(input));
    assert!(shown.chars().all(|c| c == '\n' || !is_deceptive(c)), "{shown:?}");
    let (old_text, new_text) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let segments = diff_words(&old_text, &new_text);
    let text_of = |is_new: bool| {
        let parts = segments.iter().map(|segment| match segment {
            DiffSegment::Same(text) => text.as_str(),
            DiffSegment::Removed(text) if !is_new => text,
            DiffSegment::Added(text) if is_new => text,
            _ => "",
        });
        parts.collect::<String>()
    };
    assert_eq!((text_of(false), text_of(true)), (old_text.into_owned(), new_text.into_owned()));
    let _ = LINTER.lint("server", new);

    let (Ok(one), Ok(two)) = (Pin::from_definition(old), Pin::from_definition(new)) else { return };
    assert_eq!(hash_definition(&one.definition).ok(), Some(one.hash), "the kept definition has the hash");
    let found = field_changes(&one.definition, &two.definition);
    assert_eq!(found.is_empty(), one.hash == two.hash, "{found:?}");
});
