//! Suggestions for misspelled names.

use crate::server_name::{self, ServerName};

/// Longest text that is compared with known names. Every known name is shorter, and the work grows with the
/// product of both lengths.
const MAX_QUERY_LEN: usize = 128;

/// Returns a server name as close to the text as the grammar allows: `My Server` becomes `my-server`,
/// `@scope/pkg` becomes `scope-pkg`. A valid name stays; `None` if the text has no usable character.
pub fn slug(text: &str) -> Option<ServerName> {
    if let Ok(name) = ServerName::new(text) {
        return Some(name);
    }
    let mut slug = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        // A run of separators becomes its first one, and leading ones are dropped.
        let is_separator = matches!(c, '-' | '_');
        if !(is_separator && (slug.is_empty() || slug.ends_with(['-', '_']))) {
            slug.push(c);
        }
    }
    slug.truncate(server_name::MAX_LEN);
    ServerName::new(slug.trim_end_matches(['-', '_'])).ok()
}

/// Returns the known name that was probably meant: one with this prefix, or the closest by edits (swapping
/// two neighbours is one) if no more than a third of the letters are wrong. Case and the kind of separator
/// are ignored. The known names must be those the caller may see.
pub fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.len() > MAX_QUERY_LEN {
        return None;
    }
    let wanted = normalize(wanted);
    known
        .filter_map(|name| {
            let folded = normalize(name);
            let distance = strsim::damerau_levenshtein(&wanted, &folded);
            let is_begun = wanted.len() >= 3 && folded.starts_with(&wanted);
            let limit = (wanted.chars().count().min(folded.chars().count()) / 3).max(1);
            (is_begun || distance <= limit).then_some((distance, name))
        })
        .min()
        .map(|(_, name)| name)
}

fn normalize(text: &str) -> String {
    text.to_lowercase().replace(['-', ' '], "_")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slugs_keep_what_people_recognize() {
        let table = [
            ("My Server", "my-server"),
            ("@scope/pkg", "scope-pkg"),
            ("time", "time"),
            ("a_b", "a_b"),
            ("keep-this_", "keep-this_"),
            ("a__b", "a_b"),
            ("__x--y..z!", "x-y-z"),
            ("Größe", "gr-e"),
            ("io.github.example/very-long-server-name-of-somebody", "io-github-example-very-long-serv"),
        ];
        for (text, expected) in table {
            assert_eq!(slug(text).unwrap().as_str(), expected, "{text:?}");
        }
        for text in ["", "///", "__", "日本"] {
            assert_eq!(slug(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_name_that_was_meant_is_found_and_no_other() {
        let known = ["github", "gitlab", "time", "time__get_current_time"];
        let table = [
            ("gihtub", Some("github")),
            ("GitHub", Some("github")),
            ("gitlub", Some("github")),
            ("tiem", Some("time")),
            ("time__get_curent_tmie", Some("time__get_current_time")),
            ("time--get-current-time", Some("time__get_current_time")),
            ("git", Some("github")),
            ("postgres", None),
            ("", None),
        ];
        for (wanted, expected) in table {
            assert_eq!(nearest(wanted, known.into_iter()), expected, "{wanted:?}");
        }
    }

    #[test]
    fn of_two_equally_near_names_the_first_in_the_alphabet_is_named() {
        assert_eq!(nearest("tool-c", ["tool-b", "tool-a"].into_iter()), Some("tool-a"));
    }

    #[test]
    fn an_absurdly_long_name_is_near_to_nothing() {
        let long = "x".repeat(1 << 20);
        assert_eq!(nearest(&long, [long.as_str()].into_iter()), None);
        let longest = &long[..MAX_QUERY_LEN];
        assert_eq!(nearest(longest, [longest].into_iter()), Some(longest));
    }

    proptest! {
        #[test]
        fn a_slug_of_a_slug_is_itself(text in "\\PC{0,60}") {
            if let Some(name) = slug(&text) {
                prop_assert_eq!(slug(name.as_str()), Some(name));
            }
        }

        #[test]
        fn a_text_with_a_letter_has_a_slug(text in "\\PC{0,20}[a-z0-9]\\PC{0,20}") {
            prop_assert!(slug(&text).is_some());
        }
    }
}
