//! Matching of URIs against templates of RFC 6570.

/// Longest URI that is compared with templates.
const MAX_URI_LEN: usize = 8 << 10;

/// Most expressions of a template; one with more matches nothing.
const MAX_EXPRESSIONS: usize = 64;

/// Returns whether a URI may come from a template: its literal parts occur in order, and a plain `{name}`
/// stands for one character or more without a slash. Any other expression is open: it stands for anything,
/// and so does a plain one between two that are open.
///
/// Templates are written by servers and URIs by clients, so each byte of the URI is searched once, without
/// backtracking. Before the first open expression the leftmost position of a literal leaves most to the next
/// one; after the last open expression the rightmost position does.
pub fn matches(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let rest = uri.strip_prefix(parts.next().unwrap_or_default());
    let Some(rest) = rest.filter(|_| uri.len() <= MAX_URI_LEN) else { return false };
    let parts: Option<Vec<TemplatePart<'_>>> =
        parts.take(MAX_EXPRESSIONS + 1).map(TemplatePart::parse).collect();
    parts
        .filter(|parts| parts.len() <= MAX_EXPRESSIONS)
        .is_some_and(|parts| match_parts(&parts, rest).is_some())
}

/// An expression and the literal after it.
struct TemplatePart<'a> {
    is_plain: bool,
    literal: &'a str,
}

impl<'a> TemplatePart<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (expression, literal) = text.split_once('}')?;
        Some(Self { is_plain: expression.starts_with(|c: char| c.is_alphanumeric() || c == '_'), literal })
    }
}

fn match_parts(parts: &[TemplatePart<'_>], mut rest: &str) -> Option<()> {
    let Some(last) = parts.last() else { return rest.is_empty().then_some(()) };
    rest = rest.strip_suffix(last.literal)?;
    let first_open = parts.iter().position(|part| !part.is_plain);
    let last_open = parts.iter().rposition(|part| !part.is_plain);
    // The last literal is found already; each of these precedes a plain expression.
    for part in parts[last_open.unwrap_or(0)..parts.len() - 1].iter().rev() {
        rest = strip_plain_suffix(rest, part.literal)?;
    }
    let (Some(first_open), Some(last_open)) = (first_open, last_open) else {
        return (!rest.is_empty() && !rest.contains('/')).then_some(());
    };
    for part in &parts[..first_open] {
        let (gap, behind) = split_after_expression(rest, part)?;
        rest = (!gap.contains('/')).then_some(behind)?;
    }
    for part in &parts[first_open..last_open] {
        rest = split_after_expression(rest, part)?.1;
    }
    Some(())
}

/// Splits a text at the leftmost position of a part's literal into the text of the expression and the rest.
fn split_after_expression<'a>(rest: &'a str, part: &TemplatePart<'_>) -> Option<(&'a str, &'a str)> {
    let shortest = if part.is_plain { rest.chars().next()?.len_utf8() } else { 0 };
    let at = shortest + rest[shortest..].find(part.literal)?;
    Some((&rest[..at], &rest[at + part.literal.len()..]))
}

/// Returns the text before the rightmost position of a literal that is followed by a plain expression.
fn strip_plain_suffix<'a>(rest: &'a str, literal: &str) -> Option<&'a str> {
    let (longest, _) = rest.char_indices().next_back()?;
    let at = rest[..longest].rfind(literal)?;
    (!rest[at + literal.len()..].contains('/')).then(|| &rest[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_uri_fits_a_template_by_its_literal_parts() {
        let table = [
            ("test://template/{id}/data", "test://template/123/data", true),
            ("test://template/{id}/data", "test://template/1/2/data", false),
            ("test://template/{id}/data", "test://template//data", false),
            ("file:///{+path}", "file:///a/b/c.txt", true),
            ("file:///{+path}", "file:///", true),
            ("a:{x}-{y}", "a:1-2-3", true),
            ("a:{x}", "b:1", false),
            ("plain:uri", "plain:uri", true),
            ("broken:{x", "broken:1", false),
            ("note://{name}", "note://Zürich", true),
            ("note://{a}{b}", "note://Zü", true),
            ("note://{a}{b}", "note://ü", false),
            ("repo://{owner}/{repo}/contents{/path*}", "repo://a/b/contents/c/d", true),
            ("repo://{owner}/{repo}/contents{/path*}", "repo://a/b/c/contents/d", false),
            ("file:///{+path}/{name}.txt", "file:///a/b/c.txt", true),
            ("file:///{+path}/{name}.txt", "file:///c.txt", false),
            ("a:{x}b{y}b/c", "a:1b2bb/c", true),
            ("a:{+x}/b/{y}/c/{+z}", "a:1/b/2/3/c/4", true),
        ];
        for (template, uri, does) in table {
            assert_eq!(matches(template, uri), does, "{template} {uri}");
        }
    }

    #[test]
    fn what_is_too_long_or_has_too_many_expressions_fits_nothing() {
        let uri = |length: usize| format!("a:{}", "x".repeat(length - 2));
        assert!(matches("a:{x}", &uri(8_192)));
        assert!(!matches("a:{x}", &uri(8_193)));
        assert!(matches(&"{+x}".repeat(64), "a"));
        assert!(!matches(&"{+x}".repeat(65), "a"));
    }

    #[test]
    fn hostile_templates_cost_no_more_than_the_uri_is_long() {
        let uri = format!("z:{}", "a".repeat(8_190));
        let templates = [
            ("{+x}".repeat(64), true),
            ("{x}".repeat(64), true),
            (format!("z:{}", "{x}a".repeat(64)), true),
            (format!("z:{}b", "{+x}a".repeat(64)), false),
            (format!("z:{}", "{+x}aaab".repeat(64)), false),
            (format!("z:{{+x}}{}b{{+y}}", "{x}a".repeat(60)), false),
        ];
        // A matcher that searches the whole URI for each expression would need 10^11 steps here.
        for _ in 0..20_000 {
            for (template, does) in &templates {
                assert_eq!(matches(template, &uri), *does, "{template}");
            }
        }
    }

    /// Matches by the definition, byte by byte.
    fn defined(template: &[u8], uri: &[u8]) -> bool {
        let Some((&letter, rest)) = template.split_first() else { return uri.is_empty() };
        if letter != b'{' {
            return uri.first() == Some(&letter) && defined(rest, &uri[1..]);
        }
        let Some(end) = template.iter().position(|&letter| letter == b'}') else { return false };
        let is_plain = rest[0] != b'+';
        let most = uri.iter().position(|&letter| is_plain && letter == b'/').unwrap_or(uri.len());
        (usize::from(is_plain)..=most).any(|taken| defined(&template[end + 1..], &uri[taken..]))
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(
            parts in prop::collection::vec(prop::sample::select(vec!["a", "b", "/", "{x}", "{+x}"]), 0..10),
            uri in "[ab/]{0,10}",
        ) {
            let mut parts = parts;
            // A plain expression between two open ones may hold slashes.
            let first = parts.iter().position(|part| *part == "{+x}");
            let last = parts.iter().rposition(|part| *part == "{+x}");
            let is_strict = first.zip(last).is_none_or(|(first, last)| !parts[first..last].contains(&"{x}"));
            let template = parts.concat();
            let does = defined(template.as_bytes(), uri.as_bytes());
            prop_assert!(matches(&template, &uri) == does || (!is_strict && !does));
            if let Some((first, last)) = first.zip(last) {
                parts[first..last].iter_mut().filter(|part| **part == "{x}").for_each(|part| *part = "{+x}");
                let widest = defined(parts.concat().as_bytes(), uri.as_bytes());
                prop_assert!(widest || !matches(&template, &uri));
            }
        }
    }
}
