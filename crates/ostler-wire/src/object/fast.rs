//! Fast walk over the members of one object.
//!
//! Every message is walked several times, and most messages are plain: few members, shallow values. This walk
//! takes a third of the time of a general parser. It accepts nothing that `serde_json` would refuse and gives
//! up on unusual texts; `serde_json` then decides and produces the error message.

/// Most members that the fast walk takes: more than a message or a `_meta` has.
pub(crate) const MAX_MEMBERS: usize = 16;

/// Deepest nesting that the fast walk follows: one bit of a word per container.
const MAX_DEPTH: u32 = 64;

/// A key as it is written, quotes included, and the text of its value.
pub(crate) type RawMember<'a> = (&'a str, &'a str);

/// Writes the members of the object `json`, in order, into `found` and returns their number. Returns `None`
/// if the text is unusual or no JSON object; the content of `found` is then meaningless.
pub(crate) fn split_members<'a>(json: &'a str, found: &mut [RawMember<'a>; MAX_MEMBERS]) -> Option<usize> {
    let text = json.as_bytes();
    let mut at = expect(text, skip_space(text, 0), b'{')?;
    at = skip_space(text, at);
    let mut count = 0;
    if text.get(at) != Some(&b'}') {
        loop {
            let key = json.get(at..skip_string(text, expect(text, at, b'"')?)?)?;
            let value = skip_colon(text, at + key.len())?;
            let end = skip_value(text, value)?;
            *found.get_mut(count)? = (key, json.get(value..end)?);
            count += 1;
            at = skip_space(text, end);
            match text.get(at)? {
                b',' => at = skip_space(text, at + 1),
                b'}' => break,
                _ => return None,
            }
        }
    }
    (skip_space(text, at + 1) == text.len()).then_some(count)
}

/// Returns the position after a value of any kind. The open containers are the bits of a word, the innermost
/// lowest: one for an object, zero for an array.
fn skip_value(text: &[u8], mut at: usize) -> Option<usize> {
    let (mut open, mut depth) = (0_u64, 0);
    loop {
        match *text.get(at)? {
            opening @ (b'{' | b'[') => {
                let is_object = opening == b'{';
                at = skip_space(text, at + 1);
                if text.get(at) == Some(if is_object { &b'}' } else { &b']' }) {
                    at += 1;
                } else if depth == MAX_DEPTH {
                    return None;
                } else {
                    (open, depth) = (open << 1 | u64::from(is_object), depth + 1);
                    at = if is_object { skip_key(text, at)? } else { at };
                    continue;
                }
            }
            b'"' => at = skip_string(text, at + 1)?,
            b't' => at = skip_word(text, at, b"true")?,
            b'f' => at = skip_word(text, at, b"false")?,
            b'n' => at = skip_word(text, at, b"null")?,
            _ => at = skip_number(text, at)?,
        }
        // After a value: leave every container that ends here and go on to the next value.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = skip_space(text, at);
            match (*text.get(at)?, open & 1 == 1) {
                (b',', is_object) => {
                    at = skip_space(text, at + 1);
                    at = if is_object { skip_key(text, at)? } else { at };
                    break;
                }
                (b'}', true) | (b']', false) => (at, open, depth) = (at + 1, open >> 1, depth - 1),
                _ => return None,
            }
        }
    }
}

/// Returns the position of the value of the key at `at`.
fn skip_key(text: &[u8], at: usize) -> Option<usize> {
    skip_colon(text, skip_string(text, expect(text, at, b'"')?)?)
}

/// Returns the position of the value after the colon that follows a key.
fn skip_colon(text: &[u8], at: usize) -> Option<usize> {
    let value = expect(text, skip_space(text, at), b':')?;
    Some(skip_space(text, value))
}

/// Returns the position after a string's closing quote; `at` is after the opening one.
fn skip_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = skip_plain(text, at);
        match *text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = skip_escape(text, at + 1)?,
            // A control character, which no string may hold.
            _ => return None,
        }
    }
}

/// Returns the position of the first byte of a string that is a quote, a backslash or a control character.
/// Reads eight bytes at a time.
fn skip_plain(text: &[u8], mut at: usize) -> usize {
    while let Some(eight) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = specials(u64::from_le_bytes(*eight));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | ..b' ');
    at + text.get(at..).map_or(0, |rest| rest.iter().take_while(|byte| is_plain(byte)).count())
}

/// Returns a word with the highest bit set in each byte that is a quote, a backslash or a control character.
/// Only the lowest set bit is certain: a borrow may set others above it.
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHEST: u64 = ONES << 7;
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    let is_quote = is_zero(word ^ (ONES * b'"' as u64));
    let is_backslash = is_zero(word ^ (ONES * b'\\' as u64));
    (is_control | is_quote | is_backslash) & HIGHEST
}

/// Returns the position after an escape; `at` is after the backslash.
fn skip_escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => {
            let digits = text.get(at + 1..at + 5)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 5)
        }
        _ => None,
    }
}

fn skip_number(text: &[u8], mut at: usize) -> Option<usize> {
    at += usize::from(text.get(at) == Some(&b'-'));
    at = match text.get(at)? {
        b'0' => at + 1,
        _ => skip_digits(text, at)?,
    };
    if text.get(at) == Some(&b'.') {
        at = skip_digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let is_signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = skip_digits(text, at + 1 + usize::from(is_signed))?;
    }
    Some(at)
}

/// Returns the position after a run of at least one digit.
fn skip_digits(text: &[u8], at: usize) -> Option<usize> {
    let count = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(at + count)
}

fn skip_word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

fn expect(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (text.get(at) == Some(&byte)).then_some(at + 1)
}

#[cfg(test)]
#[path = "fast_tests.rs"]
mod tests;
