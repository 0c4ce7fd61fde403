//! Text for people: what changed word by word, with nothing hidden.

use super::deceptive::{is_deceptive, name};

/// The text with every deceptive character spelled out, as in `‹U+200B ZERO WIDTH SPACE›`. Newlines stay.
pub fn reveal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_deceptive(c) {
            out.push(c);
            continue;
        }
        match name(c) {
            Some(name) => out.push_str(&format!("‹U+{:04X} {name}›", u32::from(c))),
            None => out.push_str(&format!("‹U+{:04X}›", u32::from(c))),
        }
    }
    out
}
