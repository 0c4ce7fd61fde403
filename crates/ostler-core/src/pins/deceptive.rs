//! Deceptive characters: invisible ones, and ones that make text look different.
//!
//! A model reads code points; a person reads glyphs. Text can be hidden in the difference, so lock files
//! escape these characters and diffs spell them out.

/// Returns whether a character is invisible, moves or reorders its neighbours, or can't be told from a blank.
/// Newlines and tabs are not deceptive.
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\t');
    }
    kind(c).is_some()
}

/// Kinds of deception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeceptiveKind {
    /// Without width: zero-width spaces and joiners, soft hyphens, fillers and other ignorable characters.
    Invisible,
    /// Changes the display direction of its neighbours.
    Direction,
    /// The tag characters, which mirror ASCII and are not displayed.
    Tag,
    /// Chooses a glyph, and can carry bytes because there are 256 of them.
    Variation,
    /// A control character, the line and paragraph separators among them.
    Control,
    /// A blank other than the space.
    Blank,
    /// Private or not a character: it looks like whatever the font says.
    Undefined,
}

/// Returns the kind of deception of a character, if any.
pub(super) fn kind(c: char) -> Option<DeceptiveKind> {
    if matches!(c, '\n' | '\t') {
        return None;
    }
    Some(match c {
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => DeceptiveKind::Control,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            DeceptiveKind::Direction
        }
        '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => {
            DeceptiveKind::Variation
        }
        '\u{e0000}'..='\u{e007f}' => DeceptiveKind::Tag,
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1345f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0080}'..='\u{e00ff}'
        | '\u{e01f0}'..='\u{e0fff}' => DeceptiveKind::Invisible,
        '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{2800}'
        | '\u{3000}' => DeceptiveKind::Blank,
        '\u{e000}'..='\u{f8ff}'
        | '\u{f0000}'..='\u{10ffff}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fffc}'
        | '\u{fffe}'
        | '\u{ffff}' => DeceptiveKind::Undefined,
        _ if u32::from(c) & 0xfffe == 0xfffe => DeceptiveKind::Undefined,
        _ => return None,
    })
}

/// Returns the Unicode name of a usual one; others are shown by number.
pub(super) fn name(c: char) -> Option<&'static str> {
    NAMES.iter().find(|(named, _)| *named == c).map(|(_, name)| *name)
}

const NAMES: &[(char, &str)] = &[
    ('\0', "NULL"),
    ('\u{8}', "BACKSPACE"),
    ('\r', "CARRIAGE RETURN"),
    ('\u{1b}', "ESCAPE"),
    ('\u{7f}', "DELETE"),
    ('\u{9b}', "CONTROL SEQUENCE INTRODUCER"),
    ('\u{a0}', "NO-BREAK SPACE"),
    ('\u{ad}', "SOFT HYPHEN"),
    ('\u{34f}', "COMBINING GRAPHEME JOINER"),
    ('\u{61c}', "ARABIC LETTER MARK"),
    ('\u{180e}', "MONGOLIAN VOWEL SEPARATOR"),
    ('\u{200b}', "ZERO WIDTH SPACE"),
    ('\u{200c}', "ZERO WIDTH NON-JOINER"),
    ('\u{200d}', "ZERO WIDTH JOINER"),
    ('\u{200e}', "LEFT-TO-RIGHT MARK"),
    ('\u{200f}', "RIGHT-TO-LEFT MARK"),
    ('\u{2028}', "LINE SEPARATOR"),
    ('\u{2029}', "PARAGRAPH SEPARATOR"),
    ('\u{202a}', "LEFT-TO-RIGHT EMBEDDING"),
    ('\u{202b}', "RIGHT-TO-LEFT EMBEDDING"),
    ('\u{202c}', "POP DIRECTIONAL FORMATTING"),
    ('\u{202d}', "LEFT-TO-RIGHT OVERRIDE"),
    ('\u{202e}', "RIGHT-TO-LEFT OVERRIDE"),
    ('\u{202f}', "NARROW NO-BREAK SPACE"),
    ('\u{2060}', "WORD JOINER"),
    ('\u{2062}', "INVISIBLE TIMES"),
    ('\u{2063}', "INVISIBLE SEPARATOR"),
    ('\u{2064}', "INVISIBLE PLUS"),
    ('\u{2066}', "LEFT-TO-RIGHT ISOLATE"),
    ('\u{2067}', "RIGHT-TO-LEFT ISOLATE"),
    ('\u{2068}', "FIRST STRONG ISOLATE"),
    ('\u{2069}', "POP DIRECTIONAL ISOLATE"),
    ('\u{2800}', "BRAILLE PATTERN BLANK"),
    ('\u{3000}', "IDEOGRAPHIC SPACE"),
    ('\u{3164}', "HANGUL FILLER"),
    ('\u{fe0e}', "VARIATION SELECTOR-15"),
    ('\u{fe0f}', "VARIATION SELECTOR-16"),
    ('\u{feff}', "ZERO WIDTH NO-BREAK SPACE"),
    ('\u{e0001}', "LANGUAGE TAG"),
    ('\u{e007f}', "CANCEL TAG"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_not_deceptive() {
        for c in "aZ09 ~\n\téßяΩ漢字ひ한ا🙂—“”…•✓".chars() {
            assert!(!is_deceptive(c), "{c:?}");
        }
    }

    #[test]
    fn what_hides_or_moves_text_is() {
        for c in
            "\u{1b}\r\u{200b}\u{202e}\u{e0041}\u{fe0f}\u{e0100}\u{a0}\u{2028}\u{e000}\u{1fffe}\u{7f}".chars()
        {
            assert!(is_deceptive(c), "{c:?}");
        }
    }

    #[test]
    fn every_named_character_is_deceptive() {
        for (c, name) in NAMES {
            assert!(is_deceptive(*c), "{name}");
        }
    }
}
