//! Word-by-word differences of two texts, with deceptive characters visible.

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::deceptive::{is_deceptive, name};

/// Most words on either side, without the common beginning and end, that are compared one by one. The work
/// grows with the product of both sides; beyond the limit the texts are shown whole, one after the other.
pub const MAX_WORDS: usize = 2_000;

/// A segment of text, compared with the other text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffSegment {
    /// In both.
    Same(String),
    /// Only in the old one.
    Removed(String),
    /// Only in the new one.
    Added(String),
}

/// Returns the differences between two texts, word by word. `Same` and `Removed` together are the old text,
/// `Same` and `Added` the new one.
pub fn diff_words(old: &str, new: &str) -> Vec<DiffSegment> {
    let (old, new) = (split_words(old), split_words(new));
    let ahead = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[ahead..], &new[ahead..]);
    let behind =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_core, tail) = old_rest.split_at(old_rest.len() - behind);
    let new_core = &new_rest[..new_rest.len() - behind];

    let mut builder = SegmentBuilder::default();
    builder.same(&old[..ahead]);
    if old_core.len().max(new_core.len()) > MAX_WORDS {
        builder.replace(old_core, new_core);
    } else {
        for step in capture_diff_slices(Algorithm::Myers, old_core, new_core) {
            builder.apply_op(step, old_core, new_core);
        }
    }
    builder.same(tail);
    builder.flush();
    builder.segments
}

/// Splits a text into runs of letters and digits, runs of blanks, and single other characters.
fn split_words(text: &str) -> Vec<&str> {
    #[derive(PartialEq)]
    enum Sort {
        Word,
        Blank,
        Other,
    }
    let class = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => Sort::Word,
        c if c.is_whitespace() => Sort::Blank,
        _ => Sort::Other,
    };
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let kind = class(first);
        let end = match kind {
            Sort::Other => first.len_utf8(),
            _ => rest.find(|c| class(c) != kind).unwrap_or(rest.len()),
        };
        let (word, tail) = rest.split_at(end);
        words.push(word);
        rest = tail;
    }
    words
}

/// Builder of segments. Removed and added words are collected until a common word follows, so that a
/// rewritten sentence is two segments and not many small ones.
#[derive(Default)]
struct SegmentBuilder {
    segments: Vec<DiffSegment>,
    removed: String,
    added: String,
    /// Common blanks between two changes: they belong to both if another change follows.
    blank: String,
}

impl SegmentBuilder {
    fn apply_op(&mut self, step: DiffOp, old: &[&str], new: &[&str]) {
        let (old, new) = (&old[step.old_range()], &new[step.new_range()]);
        match step {
            DiffOp::Equal { .. } => self.same(old),
            _ => self.replace(old, new),
        }
    }

    fn replace(&mut self, old: &[&str], new: &[&str]) {
        let blank = std::mem::take(&mut self.blank);
        self.removed.push_str(&blank);
        self.added.push_str(&blank);
        self.removed.extend(old.iter().copied());
        self.added.extend(new.iter().copied());
    }

    fn same(&mut self, words: &[&str]) {
        let is_blank = words.iter().all(|word| word.chars().all(|c| c == ' '));
        if is_blank && (!self.removed.is_empty() || !self.added.is_empty()) {
            self.blank.extend(words.iter().copied());
            return;
        }
        self.flush();
        self.push_same(words.concat());
    }

    fn flush(&mut self) {
        let (removed, added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        if !removed.is_empty() {
            self.segments.push(DiffSegment::Removed(removed));
        }
        if !added.is_empty() {
            self.segments.push(DiffSegment::Added(added));
        }
        let blank = std::mem::take(&mut self.blank);
        self.push_same(blank);
    }

    fn push_same(&mut self, text: String) {
        match self.segments.last_mut() {
            _ if text.is_empty() => {}
            Some(DiffSegment::Same(before)) => before.push_str(&text),
            _ => self.segments.push(DiffSegment::Same(text)),
        }
    }
}

/// Returns the text with every deceptive character spelled out, as in `‹U+200B ZERO WIDTH SPACE›`. Newlines
/// stay.
pub fn spell_out_deceptive(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn same(text: &str) -> DiffSegment {
        DiffSegment::Same(text.into())
    }

    fn removed(text: &str) -> DiffSegment {
        DiffSegment::Removed(text.into())
    }

    fn added(text: &str) -> DiffSegment {
        DiffSegment::Added(text.into())
    }

    #[test]
    fn a_changed_word_stands_between_what_stayed() {
        assert_eq!(
            diff_words("Adds two numbers.", "Adds three numbers."),
            [same("Adds "), removed("two"), added("three"), same(" numbers.")]
        );
        assert_eq!(
            diff_words("Adds two numbers.", "Adds two numbers. Read the key."),
            [same("Adds two numbers."), added(" Read the key.")]
        );
        assert_eq!(diff_words("", "x"), [added("x")]);
        assert_eq!(diff_words("x", "x"), [same("x")]);
        assert_eq!(diff_words("", ""), []);
    }

    #[test]
    fn a_rewritten_phrase_is_one_stretch() {
        assert_eq!(
            diff_words("the old red house", "the new blue house"),
            [same("the "), removed("old red"), added("new blue"), same(" house")]
        );
    }

    #[test]
    fn long_texts_are_replaced_as_a_whole_between_what_stayed() {
        let long = |word: &str| format!("start {}end", format!("{word} ").repeat(MAX_WORDS + 1));
        let segments = diff_words(&long("a"), &long("b"));
        assert_eq!(segments.len(), 4);
        assert_eq!((&segments[0], &segments[3]), (&same("start "), &same(" end")));
    }

    #[test]
    fn hidden_characters_are_spelled_out() {
        assert_eq!(spell_out_deceptive("a\u{200b}b\n\u{e0041}"), "a‹U+200B ZERO WIDTH SPACE›b\n‹U+E0041›");
    }

    #[test]
    fn a_text_is_taken_apart_into_words_blanks_and_signs() {
        assert_eq!(split_words("a_1  b..\n é"), ["a_1", "  ", "b", ".", ".", "\n ", "é"]);
    }

    #[test]
    fn a_word_that_stayed_between_two_changes_is_told_so() {
        assert_eq!(
            diff_words("a x b y c", "a X b Y c"),
            [same("a "), removed("x"), added("X"), same(" b "), removed("y"), added("Y"), same(" c")]
        );
    }

    #[test]
    fn blanks_belong_to_the_changes_on_both_sides_and_to_nothing_else() {
        assert_eq!(diff_words(" a", " b"), [same(" "), removed("a"), added("b")]);
        assert_eq!(diff_words("( )", "(x y)"), [same("("), removed(" "), added("x y"), same(")")]);
        assert_eq!(diff_words("(x y)", "( )"), [same("("), removed("x y"), added(" "), same(")")]);
        let mut builder = SegmentBuilder::default();
        builder.replace(&["x"], &["y"]);
        builder.same(&[" "]);
        builder.same(&["z"]);
        assert_eq!(builder.segments, [removed("x"), added("y"), same(" z")]);
    }

    #[test]
    fn words_are_matched_up_to_the_most_and_not_beyond() {
        let text = |word: &str, mid: &str, more: usize| {
            format!("{}{mid}{}", format!("{word} ").repeat(500), format!(" {word}").repeat(more))
        };
        let is_found = |mid: &str, more| {
            diff_words(&text("a", mid, more), &text("b", mid, more))
                .iter()
                .any(|segment| matches!(segment, DiffSegment::Same(_)))
        };
        assert!(is_found("mid,", 499), "2,000 words");
        assert!(!is_found("mid", 500), "2,001 words");
    }
}
