//! Sizes: `"64MiB"`, `"4MB"`, `"512KiB"`, `"100B"`.

/// Units by name, in bytes.
const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reason why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// An empty text, or no whole number in front.
    #[error("a size is a whole number with a unit")]
    BadNumber,
    /// A number without a unit.
    #[error("a size needs a unit")]
    NoUnit,
    /// An unknown unit.
    #[error("a size's units are B, KB, MB, GB, KiB, MiB and GiB")]
    BadUnit,
    /// More bytes than this machine can count.
    #[error("a size this large does not fit")]
    TooLarge,
}

/// Parses a size; units are recognized in any case.
pub fn parse(text: &str) -> Result<usize, SizeError> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim();
    if digits.is_empty() || unit.starts_with(['.', ',']) {
        return Err(SizeError::BadNumber);
    }
    if unit.is_empty() {
        return Err(SizeError::NoUnit);
    }
    let (_, factor) =
        UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or(SizeError::BadUnit)?;
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(SizeError::TooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        let table = [
            ("64MiB", 64 << 20),
            ("4MB", 4_000_000),
            ("512KiB", 512 << 10),
            ("512 kib", 512 << 10),
            ("1GiB", 1 << 30),
            ("0B", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text), Ok(bytes), "{text:?}");
        }
    }

    #[test]
    fn everything_else_says_why_not() {
        use SizeError::*;
        let table = [
            ("", BadNumber),
            ("MiB", BadNumber),
            ("-1B", BadNumber),
            ("1.5MiB", BadNumber),
            ("64", NoUnit),
            ("64M", BadUnit),
            ("64MiB!", BadUnit),
            ("99999999999999999999B", TooLarge),
            ("18446744073709551615KiB", TooLarge),
        ];
        for (text, why) in table {
            assert_eq!(parse(text), Err(why), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
