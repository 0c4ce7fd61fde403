//! Lint of single characters: invisible ones, escapes, and blanks that push text out of sight.

use super::{LintKind, LintLevel, TextFinding};
use crate::pins::deceptive::{DeceptiveKind, kind};

/// Blanks in a row, inside a line, that push the following text out of a window.
const MIN_INLINE_GAP: usize = 40;

/// Empty lines in a row that push the following text out of a window.
const MIN_LINE_GAP: usize = 12;

/// Returns the first finding of each kind.
pub(super) fn find_hidden(text: &str) -> Vec<TextFinding> {
    let mut found: Vec<TextFinding> = Vec::new();
    for finding in deceptive_characters(text).chain(blank_gaps(text)) {
        if found.iter().all(|known| known.why != finding.why) {
            found.push(finding);
        }
    }
    found
}

fn deceptive_characters(text: &str) -> impl Iterator<Item = TextFinding> {
    text.char_indices().filter_map(move |(at, c)| {
        let deception = kind(c)?;
        let context = CharContext { before: &text[..at], after: &text[at + c.len_utf8()..] };
        let (level, kind, why) = classify(c, deception, &context)?;
        Some(TextFinding { level, kind, range: at..at + c.len_utf8(), why: why.into() })
    })
}

/// The text around a character.
struct CharContext<'t> {
    before: &'t str,
    after: &'t str,
}

impl CharContext<'_> {
    fn previous(&self) -> char {
        self.before.chars().next_back().unwrap_or('\n')
    }

    fn next(&self) -> char {
        self.after.chars().next().unwrap_or('\n')
    }
}

fn classify(
    c: char,
    deception: DeceptiveKind,
    context: &CharContext<'_>,
) -> Option<(LintLevel, LintKind, &'static str)> {
    let alarm = |kind, why| Some((LintLevel::Alarm, kind, why));
    let notice = |kind, why| Some((LintLevel::Notice, kind, why));
    match (deception, c) {
        (DeceptiveKind::Control, '\r') if context.next() == '\n' => None,
        (DeceptiveKind::Control, '\u{1b}' | '\u{9b}') => {
            alarm(LintKind::Escape, "a terminal obeys this sequence instead of showing it")
        }
        (DeceptiveKind::Control, '\u{2028}' | '\u{2029}' | '\u{85}') => {
            notice(LintKind::Hidden, "a line ends here for some programs and not for others")
        }
        (DeceptiveKind::Control, _) => {
            alarm(LintKind::Hidden, "control characters have no place in a definition")
        }
        (DeceptiveKind::Tag, _) if is_flag(context.before) => None,
        (DeceptiveKind::Tag, _) => {
            alarm(LintKind::Hidden, "tag characters spell text that only a model reads")
        }
        (DeceptiveKind::Direction, '\u{200e}' | '\u{200f}' | '\u{61c}') => {
            notice(LintKind::Hidden, "a mark here changes the direction of text")
        }
        (DeceptiveKind::Direction, _) => {
            alarm(LintKind::Hidden, "the text is shown in another order than it is read")
        }
        (DeceptiveKind::Variation, _) if kind(context.previous()) == Some(DeceptiveKind::Variation) => {
            alarm(LintKind::Hidden, "variation selectors in a row carry hidden bytes")
        }
        (DeceptiveKind::Variation, _) if context.previous().is_ascii_alphabetic() => {
            alarm(LintKind::Hidden, "variation selectors at letters have no effect but to hide bytes")
        }
        (DeceptiveKind::Variation, _) => None,
        (DeceptiveKind::Invisible, '\u{200c}' | '\u{200d}') if needs_joiner(context) => None,
        (DeceptiveKind::Invisible, '\u{ad}') => {
            notice(LintKind::Hidden, "a soft hyphen is invisible inside a line")
        }
        (DeceptiveKind::Invisible, _) => {
            alarm(LintKind::Hidden, "invisible characters hide text or split words")
        }
        (DeceptiveKind::Blank, '\u{2800}') => {
            alarm(LintKind::Hidden, "this character looks like a blank and is none")
        }
        (DeceptiveKind::Blank, _) => None,
        (DeceptiveKind::Undefined, _) => {
            notice(LintKind::Hidden, "what this character looks like depends on the font")
        }
    }
}

/// Returns whether a tag belongs to one of the three flags that are spelled with tags: England, Scotland,
/// Wales.
fn is_flag(before: &str) -> bool {
    // A region has five tags; a sixth shows that this is no flag.
    let tags: Vec<char> =
        before.chars().rev().take(6).take_while(|c| kind(*c) == Some(DeceptiveKind::Tag)).collect();
    let flag = before.chars().rev().nth(tags.len());
    let region: String = tags.iter().rev().filter_map(|tag| char::from_u32(u32::from(*tag) & 0x7f)).collect();
    flag == Some('\u{1f3f4}') && ["gbeng", "gbsct", "gbwls"].iter().any(|known| known.starts_with(&region))
}

/// Returns whether the joiner is needed: emoji are joined by U+200D, and Arabic and Indic scripts use both
/// joiners.
fn needs_joiner(context: &CharContext<'_>) -> bool {
    let is_picture = |c: char| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}');
    let is_joined_script =
        |c: char| matches!(c, '\u{600}'..='\u{10ff}' | '\u{1780}'..='\u{18af}' | '\u{a840}'..='\u{abff}');
    let (previous, next) = (context.previous(), context.next());
    is_picture(previous) && is_picture(next)
        || is_joined_script(previous) && (is_joined_script(next) || next == ' ')
}

/// Finds wide gaps inside a line and tall gaps between lines. Blanks at the start of a line are its
/// indentation.
fn blank_gaps(text: &str) -> impl Iterator<Item = TextFinding> {
    let wide = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let wide = wide.filter_map(|(start, line)| {
        let from = line.len() - line.trim_start().len();
        let gap = find_inline_gap(&line[from..])?;
        let range = start + from + gap.start..start + from + gap.end;
        let why = "a long run of blanks moves what follows out of sight".into();
        Some(TextFinding { level: LintLevel::Alarm, kind: LintKind::Blanks, range, why })
    });
    wide.chain(find_line_gap(text))
}

/// Returns a run of blanks between two words.
fn find_inline_gap(line: &str) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    let mut count = 0;
    for (at, c) in line.char_indices() {
        if !c.is_whitespace() && c != '\u{2800}' {
            if count >= MIN_INLINE_GAP {
                return Some(start..at);
            }
            (start, count) = (at + c.len_utf8(), 0);
        } else {
            count += 1;
        }
    }
    None
}

fn find_line_gap(text: &str) -> Option<TextFinding> {
    let mut run = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            if run >= MIN_LINE_GAP {
                let why = "many empty lines move what follows out of sight".into();
                return Some(TextFinding {
                    level: LintLevel::Alarm,
                    kind: LintKind::Blanks,
                    range: at..at + line.trim_end().len(),
                    why,
                });
            }
            run = 0;
        } else {
            run += 1;
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(text: &str) -> Option<LintLevel> {
        find_hidden(text).into_iter().map(|finding| finding.level).max()
    }

    #[test]
    fn ordinary_text_of_any_script_is_left_alone() {
        for text in [
            "A family 👨‍👩‍👧‍👦, a heart ❤️, a flag 🏴󠁧󠁢󠁥󠁮󠁧󠁿, a pirate 🏴‍☠️, a key 1️⃣",
            "می‌خواهم",
            "می\u{200c} و",
            "क्‍ष and ශ්‍රී",
            "CRLF\r\nlines",
            "no-break\u{a0}space, 全角\u{3000}空白",
            "    indented\n        more\n",
            "\n\n\n        deep\n\n\n",
        ] {
            assert_eq!(worst(text), None, "{text}");
        }
    }

    #[test]
    fn what_hides_text_raises_an_alarm() {
        let wide = format!("seen{}unseen", " ".repeat(60));
        let tall = format!("seen{}unseen", "\n  ".repeat(30));
        for text in [
            "zero\u{200b}width",
            "in\u{200d}side",
            "👨\u{200d}a",
            "a\u{200d}👨",
            "می\u{200c}a",
            "a\u{200c}می",
            "a\u{200c} b",
            "\u{e0072}\u{e0065}\u{e0061}\u{e0064}",
            "🏴\u{e0072}\u{e0065}",
            "a\u{202e}b",
            "a\u{2067}b",
            "\u{1b}[8mhidden\u{1b}[0m",
            "over\rwritten",
            "😀\u{e0130}\u{e0131}\u{e0132}",
            "x\u{fe00}",
            "\u{3164}",
            &wide,
            &tall,
        ] {
            assert_eq!(worst(text), Some(LintLevel::Alarm), "{text:?}");
        }
    }

    fn places(text: &str) -> Vec<(usize, usize)> {
        find_hidden(text).into_iter().map(|finding| (finding.range.start, finding.range.end)).collect()
    }

    #[test]
    fn of_each_sort_the_first_is_found() {
        assert_eq!(places("a\u{200b}b\u{202e}c\u{200b}d"), [(1, 4), (5, 8)]);
    }

    #[test]
    fn a_gap_is_found_where_it_stands() {
        let gap = |blanks| format!("one\n  two{}three", " ".repeat(blanks));
        assert_eq!(places(&gap(MIN_INLINE_GAP)), [(9, 9 + MIN_INLINE_GAP)]);
        assert_eq!(places(&gap(MIN_INLINE_GAP - 1)), []);
        let tall = |lines| format!("one\n{}two  \n", "\n".repeat(lines));
        assert_eq!(places(&tall(MIN_LINE_GAP)), [(4 + MIN_LINE_GAP, 4 + MIN_LINE_GAP + 3)]);
        assert_eq!(places(&tall(MIN_LINE_GAP - 1)), []);
    }
}
