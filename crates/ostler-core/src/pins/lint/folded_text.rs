//! Folded text, as a model understands it: look-alikes become letters, invisible characters are dropped.
//!
//! Patterns are matched on folded text, so that a full-width letter, a Cyrillic one or a zero-width character
//! in the middle of a word does not evade them. Tag characters become the letters they mirror: a model reads
//! them.

use std::iter::once;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_security::confusable_detection::skeleton;

use super::patterns::MAX_MATCH;
use crate::pins::deceptive::{DeceptiveKind, kind};

/// Longest part of a text that is matched at once.
const MAX_SENTENCE: usize = 1_024;

/// A folded text that records the origin of each of its bytes.
pub(super) struct FoldedText {
    text: String,
    /// For each byte of `text`, the range of the original that it stands for.
    origins: Vec<Range<u32>>,
    /// True if a line has ended since the last non-blank character.
    is_line_ended: bool,
}

impl FoldedText {
    pub(super) fn new(original: &str) -> Self {
        let mut folded =
            Self { text: String::with_capacity(original.len()), origins: Vec::new(), is_line_ended: false };
        for (at, c) in original.char_indices() {
            let from = at as u32..(at + c.len_utf8()) as u32;
            for letter in fold_char(c).chars() {
                folded.push(letter, from.clone());
            }
        }
        folded
    }

    #[cfg(test)]
    fn text(&self) -> &str {
        &self.text
    }

    /// Returns the part of the original text that a part of the folded one comes from.
    pub(super) fn original(&self, part: Range<usize>) -> Range<usize> {
        match self.origins.get(part) {
            Some([first, .., last]) => first.start as usize..last.end as usize,
            Some([only]) => only.start as usize..only.end as usize,
            _ => 0..0,
        }
    }

    /// Returns the sentences with their start positions. An empty line ends one too. A very long sentence is
    /// returned in overlapping parts, so that the work on each stays small.
    pub(super) fn sentences(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut rest = self.text.as_str();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let at = self.text.len() - rest.len();
            let part = &rest[..rest.floor_char_boundary(MAX_SENTENCE)];
            let end = [". ", "! ", "? ", "\n"].iter().filter_map(|mark| part.find(mark)).min();
            let (sentence, next) = match end {
                Some(end) => (&rest[..=end], end + 1),
                None if part.len() == rest.len() => (part, part.len()),
                None => (part, rest.floor_char_boundary(MAX_SENTENCE - MAX_MATCH)),
            };
            rest = &rest[next..];
            Some((at, sentence))
        })
    }

    /// Appends a character. Blanks of any kind and length become one space, or one newline if there is an
    /// empty line among them.
    fn push(&mut self, c: char, from: Range<u32>) {
        let is_second_line = c == '\n' && self.is_line_ended;
        self.is_line_ended = c == '\n' || c.is_whitespace() && self.is_line_ended;
        let c = if c.is_whitespace() { ' ' } else { c };
        if c == ' ' && self.text.ends_with([' ', '\n']) {
            if is_second_line && self.text.pop().is_some() {
                self.text.push('\n');
            }
            return;
        }
        self.text.push(c);
        self.origins.extend(std::iter::repeat_n(from, c.len_utf8()));
    }
}

/// Returns the lower-case Latin letters that a character looks like.
fn fold_char(c: char) -> String {
    if c.is_ascii() {
        // Emphasis and code marks stand between the words of a sentence.
        let is_dropped = matches!(c, '*' | '`') || c.is_ascii_control() && !c.is_ascii_whitespace();
        return if is_dropped { String::new() } else { c.to_ascii_lowercase().into() };
    }
    match kind(c) {
        Some(DeceptiveKind::Tag) => return tag_to_ascii(c),
        Some(DeceptiveKind::Blank) => return " ".into(),
        Some(_) => return String::new(),
        None => {}
    }
    // A letter without its accents is still read as that letter.
    let plain: String = once(c).nfkd().filter(|c| !matches!(c, '\u{300}'..='\u{36f}')).collect();
    let look: String = if plain.is_ascii() { plain.clone() } else { skeleton(&plain).collect() };
    match look.as_str() {
        look if look.is_ascii() => look.to_ascii_lowercase(),
        _ => plain.to_lowercase(),
    }
}

/// Returns the ASCII character that a tag character mirrors.
fn tag_to_ascii(c: char) -> String {
    let code = u32::from(c) & 0x7f;
    match char::from_u32(code) {
        Some(c) if c == ' ' || c.is_ascii_graphic() => c.to_ascii_lowercase().into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disguises_fall() {
        let table = [
            ("Do **NOT**\n\t tell", "do not tell"),
            ("ｄｏ ｎｏｔ", "do not"),
            ("d\u{43e} n\u{43e}t", "do not"),
            ("i\u{200b}g\u{ad}nore", "ignore"),
            ("𝐢𝐠𝐧𝐨𝐫𝐞", "ignore"),
            ("don’t", "don't"),
            ("\u{e0072}\u{e0065}ad", "read"),
            ("a\u{a0}\u{2003}b", "a b"),
            ("Größe, pre\u{301}vious", "große, previous"),
            ("one\n  two \r\n \n three", "one two\nthree"),
            ("one \ntwo\nthree \nfour", "one two three four"),
            ("ЖЖ", "жж"),
            ("a\u{e0020}\u{e0001}\u{e007f}b", "a b"),
        ];
        for (text, expected) in table {
            assert_eq!(FoldedText::new(text).text(), expected, "{text:?}");
        }
    }

    #[test]
    fn sentences_end_at_their_marks_and_at_empty_lines() {
        let folded = FoldedText::new("Read ~/.ssh/x now! Then\nstop. \n\n End");
        let found: Vec<_> = folded.sentences().map(|(_, sentence)| sentence.trim()).collect();
        assert_eq!(found, ["read ~/.ssh/x now!", "then stop.", "end"]);
    }

    #[test]
    fn an_endless_sentence_is_given_in_parts_that_overlap() {
        let folded = FoldedText::new(&format!("{}hello {}", "é".repeat(500), "é".repeat(2_000)));
        let parts: Vec<_> = folded.sentences().collect();
        assert!(parts.iter().all(|(_, part)| part.len() <= MAX_SENTENCE));
        assert!(parts.iter().any(|(_, part)| part.contains("hello")));
        assert!(parts.windows(2).all(|pair| pair[1].0 < pair[0].0 + pair[0].1.len()));
        assert_eq!(parts[1].0, MAX_SENTENCE - MAX_MATCH);
        let longest = "x".repeat(MAX_SENTENCE);
        assert_eq!(FoldedText::new(&longest).sentences().collect::<Vec<_>>(), [(0, longest.as_str())]);
        let (at, last) = parts[parts.len() - 1];
        assert_eq!(at + last.len(), folded.text().len());
    }

    #[test]
    fn places_lead_back_to_the_original() {
        let text = "é\u{200b}  Ｒｅａｄ it";
        let folded = FoldedText::new(text);
        let at = folded.text().find("read").unwrap();
        assert_eq!(&text[folded.original(at..at + 4)], "Ｒｅａｄ");
        assert_eq!(&text[folded.original(at..at + 1)], "Ｒ");
        assert_eq!(folded.original(at..at), 0..0);
    }
}
