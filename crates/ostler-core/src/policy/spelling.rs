//! The plain spellings of a resource's address.
//!
//! Rules are written for addresses as people write them, and a server may take
//! others for the same: `file:///tmp/../etc/passwd`, `file:///%65tc/passwd`.
//! Whoever asks for such a one must be allowed what it comes to, too.

/// What an address comes to when its scheme is written small, letters that
/// need no escape have none, and no `.` or `..` is left in its path: usually
/// what it is, and then nothing. Where the path begins servers do not agree.
pub(super) fn plain(uri: &str) -> Vec<String> {
    let is_strange = |byte: &u8| matches!(byte, b'%' | b'\\');
    let scheme = uri.find(':').unwrap_or(0);
    let is_plain = !uri.bytes().any(|byte| is_strange(&byte))
        && !uri.contains("/.")
        && !uri[..scheme].bytes().any(|byte| byte.is_ascii_uppercase())
        && !uri.starts_with("file:////");
    if is_plain {
        return Vec::new();
    }
    let unescaped = unescape(uri, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    // A slash that is escaped is part of a name, unless the name leads elsewhere.
    let slashed = unescape(&unescaped, |byte| matches!(byte, b'/' | b'\\')).replace('\\', "/");
    let is_winding = slashed.split(['/', '?', '#']).any(|name| matches!(name, "." | ".."));
    let uri_of = if is_winding { &slashed } else { &unescaped };
    let mut all = vec![straighten(uri_of, true), straighten(uri_of, false)];
    all.dedup();
    all.retain(|plain| plain != uri);
    all
}

/// Takes the escapes of some bytes away. Such bytes are of ASCII.
fn unescape(uri: &str, is_meant: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let digits = behind.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| is_meant(*byte));
        match byte {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &behind[2..];
            }
            None => {
                out.push('%');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Writes the scheme small and follows `.` and `..`. Behind `?` or `#` there is
/// no path; before it there is a host, or all is path.
fn straighten(uri: &str, has_host: bool) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or(("", uri));
    let is_file = scheme.eq_ignore_ascii_case("file");
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (path, tail) = rest.split_at(end);
    let (authority, path) = match path.strip_prefix("//") {
        Some(behind) if has_host || is_file => path.split_at(2 + behind.find('/').unwrap_or(behind.len())),
        Some(_) => path.split_at(1),
        None => ("", path),
    };
    let mut names: Vec<&str> = Vec::new();
    let mut all = path.split('/').peekable();
    while let Some(name) = all.next() {
        let is_last = all.peek().is_none();
        match name {
            // The first one is what stands before the path's slash.
            ".." if names.len() > 1 => drop(names.pop()),
            "." | ".." => {}
            "" if is_file && !names.is_empty() && !is_last => {}
            name => names.push(name),
        }
        if is_last && matches!(name, "." | "..") {
            names.push("");
        }
    }
    let colon = if scheme.is_empty() { "" } else { ":" };
    format!("{}{colon}{authority}{}{tail}", scheme.to_ascii_lowercase(), names.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain;

    #[test]
    fn an_address_comes_to_what_a_server_may_take_it_for() {
        let table = [
            ("file:///tmp/../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/./a", "file:///tmp/a"),
            ("file:///tmp/a/..", "file:///tmp/"),
            ("file:///../../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/%2e%2E/etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/..%2fetc/passwd", "file:///etc/passwd"),
            ("file:///tmp/..\\etc", "file:///etc"),
            ("file:///%65tc/passwd", "file:///etc/passwd"),
            ("file:////etc//passwd", "file:///etc/passwd"),
            ("FILE:///etc/passwd", "file:///etc/passwd"),
            ("notes:/a/../b", "notes:/b"),
        ];
        for (uri, comes_to) in table {
            assert_eq!(plain(uri).first().map(String::as_str), Some(comes_to), "{uri}");
        }
        assert_eq!(plain("db://a/../b?x=/../c"), ["db://a/b?x=/../c", "db://b?x=/../c"]);
    }

    #[test]
    fn an_honest_address_is_what_it_is() {
        let honest = [
            "",
            "x",
            "file:///tmp/a",
            "file:///tmp/.hidden/...",
            "file:///my%20docs/a%2Fb",
            "https://x/http://y",
            "t://{a}/{b}",
            "x://100%",
            "x://%e4%",
        ];
        for uri in honest {
            assert_eq!(plain(uri), Vec::<String>::new(), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(uri in "(file|x|X)?:?/{0,3}[a-z.%/2eEfF?#\\\\é]{0,16}") {
            prop_assert!(!plain(&uri).contains(&uri));
        }
    }
}
