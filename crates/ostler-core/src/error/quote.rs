//! Quoting of foreign text in messages.

use std::fmt::{self, Write as _};

/// Longest foreign text in a message.
const MAX_QUOTED: usize = 400;

/// Text from callers and servers, made safe for one line of a terminal or log: control and direction
/// characters are escaped, and long text is truncated.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shown, c) in self.0.chars().enumerate() {
            if shown == MAX_QUOTED {
                return f.write_char('…');
            }
            if needs_escape(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// Returns at most `max_chars` characters of a text, followed by `…` if it is longer.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns whether a character of foreign text controls a terminal, changes how others are displayed, or is
/// itself invisible: controls, line separators, zero widths, direction marks and overrides, and tags, which
/// spell invisible words.
pub fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_its_line_and_in_its_direction() {
        let table = [
            ("plain — é 日本", "plain — é 日本"),
            ("two\nlines", "two\\nlines"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{61c}b\u{e0041}", "a\\u{61c}b\\u{e0041}"),
        ];
        for (text, expected) in table {
            assert_eq!(Quoted(text).to_string(), expected);
        }
    }

    #[test]
    fn a_megabyte_is_cut() {
        assert_eq!(Quoted(&"é".repeat(1 << 20)).to_string().chars().count(), MAX_QUOTED + 1);
    }
}
