//! Fast path of the canonical form: writes plain texts without building a tree. Most arguments are an object
//! of words and small numbers.
//!
//! A text is plain when its keys are ASCII without escapes, its numbers are integers of at most 15 digits and
//! its strings escape only what must be escaped. The form of such a value is its own text without whitespace
//! and with its members sorted. Any other text is left to the parser.

/// Nesting limit; deeper texts are not plain.
const MAX_DEPTH: usize = 32;
/// Every integer of so many digits is exact as a double.
const MAX_DIGITS: usize = 15;

/// Returns the exact canonical form of a plain text; `None` if it is not plain.
pub(crate) fn canonicalize_plain(json: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(json).ok()?;
    let mut writer = CanonicalWriter { rest: json, form: Vec::with_capacity(json.len()) };
    writer.value(0)?;
    writer.skip_blanks();
    writer.rest.is_empty().then_some(writer.form)
}

struct CanonicalWriter<'j> {
    /// The unread rest of the text.
    rest: &'j [u8],
    form: Vec<u8>,
}

/// Range of one object member in the written form.
struct MemberRange<'j> {
    key: &'j [u8],
    start: usize,
    end: usize,
}

impl<'j> CanonicalWriter<'j> {
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_blanks();
        match *self.rest.first()? {
            b'{' if depth < MAX_DEPTH => self.object(depth),
            b'[' if depth < MAX_DEPTH => self.array(depth),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.take(1)?;
        let inside = self.form.len();
        let mut members = Vec::new();
        self.skip_blanks();
        while *self.rest.first()? != b'}' {
            if !members.is_empty() {
                self.comma()?;
            }
            let start = self.form.len();
            let key = self.key()?;
            self.skip_blanks();
            self.word(b":")?;
            self.value(depth + 1)?;
            members.push(MemberRange { key, start, end: self.form.len() });
            self.skip_blanks();
        }
        if !members.is_sorted_by(|one, next| one.key < next.key) {
            self.sort(inside, &mut members)?;
        }
        self.take(1)
    }

    /// Sorts the members of an object. Returns `None` if a key occurs twice.
    fn sort(&mut self, inside: usize, members: &mut [MemberRange<'j>]) -> Option<()> {
        members.sort_unstable_by_key(|member| member.key);
        if !members.is_sorted_by(|one, next| one.key < next.key) {
            return None;
        }
        let mut sorted = Vec::with_capacity(self.form.len() - inside);
        for member in members {
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(&self.form[member.start..member.end]);
        }
        self.form.truncate(inside);
        self.form.extend_from_slice(&sorted);
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take(1)?;
        let mut is_first = true;
        self.skip_blanks();
        while *self.rest.first()? != b']' {
            if !std::mem::take(&mut is_first) {
                self.comma()?;
            }
            self.value(depth + 1)?;
            self.skip_blanks();
        }
        self.take(1)
    }

    fn comma(&mut self) -> Option<()> {
        self.word(b",")?;
        self.skip_blanks();
        Some(())
    }

    /// Copies a key and returns it. ASCII keys sort alike as bytes and as UTF-16.
    fn key(&mut self) -> Option<&'j [u8]> {
        let inner = self.rest.strip_prefix(b"\"")?;
        let length =
            inner.iter().position(|byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\'))?;
        let key = &inner[..length];
        if inner[length] != b'"' {
            return None;
        }
        self.take(length + 2)?;
        Some(key)
    }

    fn string(&mut self) -> Option<()> {
        let mut at = 1;
        loop {
            match *self.rest.get(at)? {
                b'"' => return self.take(at + 1),
                // Escapes that the canonical form has too.
                b'\\' => match self.rest.get(at + 1)? {
                    b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                    _ => return None,
                },
                0..0x20 => return None,
                _ => at += 1,
            }
        }
    }

    /// Copies an integer in canonical spelling.
    fn number(&mut self) -> Option<()> {
        let sign = usize::from(self.rest[0] == b'-');
        let digits = self.rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let leads_with_zero = self.rest.get(sign) == Some(&b'0');
        let is_plain = match leads_with_zero {
            true => digits == 1 && sign == 0,
            false => (1..=MAX_DIGITS).contains(&digits),
        };
        let goes_on = matches!(self.rest.get(sign + digits), Some(b'.' | b'e' | b'E' | b'+' | b'-'));
        match is_plain && !goes_on {
            true => self.take(sign + digits),
            false => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest.starts_with(word).then(|| self.take(word.len()))?
    }

    /// Copies the next `length` bytes.
    fn take(&mut self, length: usize) -> Option<()> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.form.extend_from_slice(taken);
        self.rest = rest;
        Some(())
    }

    fn skip_blanks(&mut self) {
        let blanks = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.rest = &self.rest[blanks..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::canonical::canonicalize_tree;

    #[test]
    fn plain_texts_get_their_form() {
        let table = [
            (r#"{}"#, r#"{}"#),
            (
                r#" { "b" : [ 1 , -2 , "x y" ] , "a" : { "d":null, "c" : true } } "#,
                r#"{"a":{"c":true,"d":null},"b":[1,-2,"x y"]}"#,
            ),
            (r#"{"text":"ä\n\"q\" \\"}"#, r#"{"text":"ä\n\"q\" \\"}"#),
            (r#"{"B":1,"a":2,"A":3}"#, r#"{"A":3,"B":1,"a":2}"#),
            ("[]", "[]"),
            ("999999999999999", "999999999999999"),
        ];
        for (text, form) in table {
            assert_eq!(canonicalize_plain(text.as_bytes()).as_deref(), Some(form.as_bytes()), "{text}");
            assert_eq!(canonicalize_tree(text.as_bytes()).as_deref(), Ok(form.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        let deep = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
        let texts = [
            "",
            " ",
            "{",
            "[1,]",
            "[,1]",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            "1 2",
            "-",
            "-0",
            "01",
            "1.0",
            "1e2",
            "1.",
            "1234567890123456",
            r#"{"ä":1}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"b":1,"a":1,"b":2}"#,
            r#""\/""#,
            r#""\u000f""#,
            "\"\n\"",
            "\"",
            "truer",
            "nul",
            "[1 2]",
            r#"{"a":1 "b":2}"#,
            r#"{"a" 1}"#,
            &deep,
        ];
        for text in texts {
            assert_eq!(canonicalize_plain(text.as_bytes()), None, "{text}");
        }
        assert_eq!(canonicalize_plain(b"\"\xff\""), None);
    }

    proptest! {
        /// Bytes that are likely to be nearly JSON.
        #[test]
        fn a_form_is_the_one_that_the_parser_finds(text in r#"[\[\]{}:," \\0-9a-c.e\-ä]{0,24}"#) {
            if let Some(form) = canonicalize_plain(text.as_bytes()) {
                prop_assert_eq!(canonicalize_tree(text.as_bytes()), Ok(form));
            }
        }

        #[test]
        fn objects_get_the_form_that_the_parser_finds(
            members in prop::collection::vec(("[a-cA]{0,3}", "-?[0-9]{1,17}|\"[a\\\\n]{0,3}\"|\\[ *\\]|true"), 0..6),
        ) {
            let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
            let text = format!("{{{}}}", members.join(", "));
            if let Some(form) = canonicalize_plain(text.as_bytes()) {
                prop_assert_eq!(canonicalize_tree(text.as_bytes()), Ok(form));
            }
        }
    }
}
