//! Glob matching of names: `*` is any run of characters, also none, and `?` is any one character. Everything
//! else matches itself.

use std::str::Chars;

/// Returns whether the pattern matches the whole of `name`.
///
/// Only the last `*` is ever widened: an earlier one can stay as it is, since the later one can take whatever
/// follows. So the work is bounded by the product of both lengths, whatever the pattern, and nothing is
/// allocated.
pub fn is_match(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // The state to resume from when the last `*` takes one more character.
    let mut star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let (wanted, found) = (pattern.clone().next(), name.clone().next());
        match (wanted, found) {
            (None, None) => return true,
            (Some('*'), _) => {
                pattern.next();
                star = Some((pattern.clone(), name.clone()));
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                pattern.next();
                name.next();
                continue;
            }
            // A wider `*` leaves even less for the rest of the pattern.
            (Some(_), None) => return false,
            (None | Some(_), Some(_)) => {}
        }
        let Some((after, rest)) = &mut star else { return false };
        rest.next();
        (pattern, name) = (after.clone(), rest.clone());
    }
}

/// Returns whether the pattern matches any name with this beginning.
///
/// Up to its first `*` the pattern has to match the beginning. The `*` can take the rest of it, and the rest
/// of the pattern can match the rest of the name.
pub fn matches_some_with_prefix(pattern: &str, beginning: &str) -> bool {
    let mut pattern = pattern.chars();
    for found in beginning.chars() {
        match pattern.next() {
            Some('*') => return true,
            Some(wanted) if wanted == '?' || wanted == found => {}
            _ => return false,
        }
    }
    true
}

/// Returns whether the pattern matches all names with this beginning.
///
/// Only a pattern that ends in `*` (with any `?` beside it) matches names of every length with every last
/// character. If such a pattern matches the beginning, its `*` takes whatever follows; otherwise the
/// beginning itself is a name it does not match.
pub fn matches_all_with_prefix(pattern: &str, beginning: &str) -> bool {
    let end = pattern.trim_end_matches(['*', '?']).len();
    pattern[end..].contains('*') && is_match(pattern, beginning)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let table = [
            ("*", "", true),
            ("*", "time/get", true),
            ("", "", true),
            ("", "a", false),
            ("time/*", "time/get", true),
            ("time/*", "time/", true),
            ("time/*", "timer/get", false),
            ("*/delete_*", "git/delete_branch", true),
            ("*/delete_*", "git/undelete_x", false),
            ("git", "git_log", false),
            ("g?t", "git", true),
            ("g?t", "gt", false),
            ("?", "é", true),
            ("*é*", "caféx", true),
            ("a*b*c", "a-b-b-c", true),
            ("*ab", "aab", true),
            ("[a-z]", "b", false),
            ("a.c", "abc", false),
            ("**", "x", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(is_match(pattern, name), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_does_not_blow_up() {
        // A matcher that widens every star would need more than 10^60 steps here.
        let name = "a".repeat(5_000);
        assert!(!is_match(&format!("{}b", "*a".repeat(30)), &name));
        assert!(is_match(&"*a".repeat(30), &name));
    }

    /// Matches by the definition, character by character.
    fn fits(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|taken| fits(rest, &name[taken..])),
            Some((&wanted, rest)) => name
                .split_first()
                .is_some_and(|(&found, name)| (wanted == '?' || wanted == found) && fits(rest, name)),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(is_match(&pattern, &name), fits(&letters(&pattern), &letters(&name)));
        }
    }
}
