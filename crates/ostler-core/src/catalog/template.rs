//! Whether a URI may come from a template of RFC 6570.

/// The longest URI that is compared with templates.
const LONGEST: usize = 8 << 10;

/// Expressions of a template that are looked at; one with more fits nothing.
const MOST_EXPRESSIONS: usize = 64;

/// Whether a URI may come from a template: its literal parts occur in order,
/// and a plain `{name}` stands for something without a slash.
///
/// Templates are written by servers and URIs by clients, so the time it takes
/// grows with their lengths and not with the ways to split them.
pub fn fits(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let literal = parts.next().unwrap_or_default();
    if uri.len() > LONGEST || !uri.starts_with(literal) || parts.clone().count() > MOST_EXPRESSIONS {
        return false;
    }
    // The places up to which the template may have led, from each byte to the next.
    let mut reached = vec![false; uri.len() + 1];
    reached[literal.len()] = true;
    for part in parts {
        let Some((expression, literal)) = part.split_once('}') else { return false };
        let is_plain = expression.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        reached = behind(&behind_expression(&reached, uri, is_plain), uri, literal);
    }
    reached.last().copied().unwrap_or(false)
}

/// The places behind something that stands for an expression.
fn behind_expression(reached: &[bool], uri: &str, is_plain: bool) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    let mut is_inside = false;
    for (at, is_reached) in reached.iter().enumerate() {
        // A plain one is never empty; any other may be.
        next[at] = is_inside || (*is_reached && !is_plain);
        is_inside |= *is_reached;
        is_inside &= !(is_plain && uri.as_bytes().get(at) == Some(&b'/'));
    }
    next
}

/// The places behind a literal.
fn behind(reached: &[bool], uri: &str, literal: &str) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    let bytes = uri.as_bytes();
    for (at, _) in reached.iter().enumerate().filter(|(_, is_reached)| **is_reached) {
        if bytes[at..].starts_with(literal.as_bytes()) {
            next[at + literal.len()] = true;
        }
    }
    next
}

#[cfg(test)]
mod tests {
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
        ];
        for (template, uri, does) in table {
            assert_eq!(fits(template, uri), does, "{template} {uri}");
        }
    }

    #[test]
    fn what_is_too_long_or_has_too_many_expressions_fits_nothing() {
        let uri = |length: usize| format!("a:{}", "x".repeat(length - 2));
        assert!(fits("a:{x}", &uri(8_192)));
        assert!(!fits("a:{x}", &uri(8_193)));
        assert!(fits(&"{+x}".repeat(64), "a"));
        assert!(!fits(&"{+x}".repeat(65), "a"));
    }
}
