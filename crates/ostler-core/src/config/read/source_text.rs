//! Text of one file with the locations of its lines.

use std::path::{Path, PathBuf};

use crate::config::problem::Excerpt;
use crate::config::values::secret_literals;
use crate::error::needs_escape;

/// Longest excerpt, in characters: the width of a common terminal, 80, less the gutter.
const EXCERPT_WIDTH: usize = 72;

/// Longest line that is excerpted, in bytes. The whole line must be searched for secrets, and a minified file
/// is one line.
const MAX_LINE_BYTES: usize = 2_000;

/// A range of a document, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SourceSpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl From<std::ops::Range<usize>> for SourceSpan {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A location in a file, as messages show it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourceLocation {
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) excerpt: Option<Excerpt>,
}

/// The text of one file with an index of its lines.
#[derive(Debug)]
pub(crate) struct SourceText<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
    /// Start of each line; ascending, the first is 0.
    line_starts: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Creates the index of a text. A byte order mark is not part of the text.
    pub(crate) fn new(path: &'a Path, text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { path, text, line_starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// Returns the line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Returns the location of a byte; one past the end or inside a character is moved back.
    pub(crate) fn location(&self, at: usize) -> SourceLocation {
        let at = self.text.floor_char_boundary(at);
        let line = self.line(at) - 1;
        let start = self.line_starts[line];
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let before = self.text[start..at].chars().count();
        SourceLocation {
            file: self.path.to_owned(),
            line: u32::try_from(line + 1).unwrap_or(u32::MAX),
            column: u32::try_from(before + 1).unwrap_or(u32::MAX),
            excerpt: excerpt(&self.text[start..end], before),
        }
    }
}

/// Returns the part of a line around a character; `None` if the line may hold a secret.
fn excerpt(line: &str, before: usize) -> Option<Excerpt> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() > MAX_LINE_BYTES || line.trim().is_empty() || secret_literals::may_hold_secret(line) {
        return None;
    }
    // A line that fits is shown whole, wherever the character is.
    let is_short = line.chars().count() <= EXCERPT_WIDTH;
    let skipped = if is_short { 0 } else { before.saturating_sub(EXCERPT_WIDTH * 3 / 4) };
    let shown = line.chars().skip(skipped).take(EXCERPT_WIDTH);
    let text = shown.map(|c| if needs_escape(c) && c != '\t' { '\u{fffd}' } else { c }).collect();
    Some(Excerpt { text, before: before - skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, byte: usize) -> (u32, u32) {
        let place = SourceText::new(Path::new("f"), text).location(byte);
        (place.line, place.column)
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        assert_eq!(at("", 0), (1, 1));
        assert_eq!(at("ab\ncd", 0), (1, 1));
        assert_eq!(at("ab\ncd", 2), (1, 3));
        assert_eq!(at("ab\ncd", 3), (2, 1));
        assert_eq!(at("ab\r\ncd", 5), (2, 2));
        assert_eq!(at("é = 1", 3), (1, 3));
        assert_eq!(at("é", 1), (1, 1), "inside a character");
        assert_eq!(at("ab\n", 99), (2, 1), "past the end");
        assert_eq!(at("\u{feff}ab", 0), (1, 1), "a byte order mark does not count");
    }

    #[test]
    fn an_excerpt_of_a_long_line_shows_the_surroundings() {
        let line = format!("{}{}{}", "a ".repeat(400), "X", "b ".repeat(400));
        let excerpt = excerpt(&line, 800).unwrap();
        assert_eq!(excerpt.text.chars().count(), EXCERPT_WIDTH);
        assert_eq!(excerpt.text.chars().nth(excerpt.before), Some('X'));
        assert_eq!(excerpt.before, 54, "more of what leads to it than of what follows");
        assert_eq!(super::excerpt(&"a ".repeat(2_000), 0), None, "a minified file");
        assert!(super::excerpt(&"a ".repeat(1_000), 0).is_some());
        assert_eq!(super::excerpt(&format!("{}a", "a ".repeat(1_000)), 0), None);
    }

    #[test]
    fn a_line_that_may_hold_a_secret_is_not_shown() {
        assert_eq!(excerpt("env = { API_TOKEN = 'hunter2' }", 0), None);
        assert!(excerpt("lazy = true", 0).is_some());
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(excerpt("a\u{1b}[31m", 0).unwrap().text, "a\u{fffd}[31m");
        assert_eq!(excerpt("a\u{202e}b", 0).unwrap().text, "a\u{fffd}b");
    }
}
