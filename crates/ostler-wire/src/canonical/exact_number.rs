//! Exact numbers: those that keep their value as a double.
//!
//! RFC 8785 writes every number as the shortest decimal that names its nearest double. A number is exact when
//! that decimal has the value that was written; otherwise two different numbers could get one form.

/// Returns the first number in a valid JSON text that its canonical form would change.
pub(crate) fn find_inexact_number(json: &[u8]) -> Option<String> {
    let mut rest = json;
    while let Some(first) = rest.first() {
        let used = match first {
            b'"' => string_length(rest),
            b'-' | b'0'..=b'9' => {
                let length = rest.iter().take_while(|byte| is_number_byte(**byte)).count();
                let number = String::from_utf8_lossy(&rest[..length]);
                if !is_exact(&number) {
                    return Some(number.into_owned());
                }
                length
            }
            _ => 1,
        };
        rest = &rest[used..];
    }
    None
}

/// Returns the length of the string that `json` begins with, quotes included.
fn string_length(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

fn is_number_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

fn is_exact(number: &str) -> bool {
    // Integers of up to 15 digits are below 2^53. Nearly every number is one.
    if number.len() <= 15 && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let Ok(double) = number.parse::<f64>() else { return false };
    // Rust's `{:e}` prints the same shortest digits as ECMAScript, in another layout.
    double.is_finite() && Decimal::read(number) == Decimal::read(&format!("{double:e}"))
}

/// The value of a decimal number in one spelling: ±0.digits × 10^exponent, digits without zeros at either
/// end. Zero has no digits, no sign and exponent 0.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i128,
}

impl Decimal {
    /// Parses a number. Returns `None` for an exponent of more than 38 digits: no double prints one, and a
    /// zero that has one may be refused.
    fn read(number: &str) -> Option<Decimal> {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut exponent = exponent.parse::<i128>().ok()?.checked_add(whole.len() as i128)?;

        let digits = [whole.as_bytes(), fraction.as_bytes()].concat();
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        let trailing = digits[leading..].iter().rev().take_while(|digit| **digit == b'0').count();
        exponent -= leading as i128;
        let digits = digits[leading..digits.len() - trailing].to_vec();
        if digits.is_empty() {
            return Some(Decimal { is_negative: false, digits, exponent: 0 });
        }
        Some(Decimal { is_negative, digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exact_numbers_keep_their_value() {
        for number in [
            "0",
            "-0",
            "0.0",
            "0e5",
            "1",
            "-1",
            "1.10",
            "1e2",
            "100e-2",
            "0.1",
            "1E30",
            "1000000000000000000000000000000",
            "9007199254740992",
            "9007199254740994",
            "5e-324",
            "123456789012345678e0",
            "1.7976931348623157e308",
        ] {
            let expected = number != "123456789012345678e0";
            assert_eq!(is_exact(number), expected, "{number}");
        }
    }

    #[test]
    fn numbers_between_doubles_are_found() {
        for number in [
            "9007199254740993",
            "-9007199254740993",
            "0.1000000000000000055511151231257827",
            "1e-400",
            "1e400",
            "1000000000000000019884624838656",
            "333333333.33333329",
            "1e99999999999999999999999999999999999999999",
        ] {
            assert_eq!(find_inexact_number(number.as_bytes()).as_deref(), Some(number));
            let text = format!(r#"{{"9007199254740993":["1e-400\"",{number},1]}}"#);
            assert_eq!(find_inexact_number(text.as_bytes()).as_deref(), Some(number));
        }
    }

    proptest! {
        #[test]
        fn what_a_double_prints_is_exact(bits: u64) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite());
            let (short, long) = (format!("{double:e}"), format!("{double}"));
            prop_assert!(is_exact(&short));
            prop_assert!(is_exact(&long));
        }

        #[test]
        fn an_integer_is_exact_when_its_shortest_double_is_the_same(number: i64) {
            let kept = (number as f64).to_string() == number.to_string();
            prop_assert_eq!(is_exact(&number.to_string()), kept);
        }
    }
}
