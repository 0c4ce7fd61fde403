//! Encoding of texts as header values.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A value that is marked as Base64 and does not decode to UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header's value is not Base64 of UTF-8 text")]
pub struct HeaderEncodingError;

/// Encodes `value` for a header. Visible ASCII with spaces inside stays as it is. Everything else is wrapped
/// as `=?base64?…?=`, also the empty text, which proxies may drop, and one that looks wrapped already.
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let is_plain = !value.is_empty()
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && strip_wrapper(value).is_none();
    if is_plain {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", BASE64_STANDARD.encode(value)))
}

/// Decodes a header's value. A value without the complete wrapping means itself. A wrapped one must be padded
/// Base64, because two readings of one header would bypass the check against the body.
pub fn decode_value(value: &str) -> Result<Cow<'_, str>, HeaderEncodingError> {
    let Some(inside) = strip_wrapper(value) else { return Ok(Cow::Borrowed(value)) };
    let bytes = BASE64_STANDARD.decode(inside).map_err(|_| HeaderEncodingError)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| HeaderEncodingError)
}

fn strip_wrapper(value: &str) -> Option<&str> {
    value.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_a_header_can_carry_goes_plain() {
        let table = [
            ("us-west1", "us-west1"),
            ("in side", "in side"),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
            ("", "=?base64??="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("\tx", "=?base64?CXg=?="),
            ("a\tb", "=?base64?YQli?="),
            ("line\r\nbreak", "=?base64?bGluZQ0KYnJlYWs=?="),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            ("=?base64?SGVsbG8=?=", "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?="),
        ];
        for (value, header) in table {
            assert_eq!(encode_value(value), header);
            assert_eq!(decode_value(header).as_deref(), Ok(value));
        }
    }

    #[test]
    fn a_wrapping_with_something_else_inside_is_refused() {
        for header in
            ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVsbG9=?=", "=?base64?/w==?="]
        {
            assert_eq!(decode_value(header), Err(HeaderEncodingError), "{header}");
        }
    }

    #[test]
    fn half_a_wrapping_is_a_plain_value() {
        for header in ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", "=?base64?="] {
            assert_eq!(decode_value(header).as_deref(), Ok(header));
        }
    }

    proptest! {
        #[test]
        fn every_text_survives_and_fits_a_header(value: String) {
            let header = encode_value(&value).into_owned();
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(header.trim(), &header);
            prop_assert_eq!(decode_value(&header), Ok(Cow::Borrowed(value.as_str())));
        }
    }
}
