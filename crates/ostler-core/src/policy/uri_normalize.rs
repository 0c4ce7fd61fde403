//! Normalization of resource URIs: every form in which a server may read one.
//!
//! Rules are written for URIs as people write them; servers decode, resolve and truncate them with their own
//! parsers. So a rule is matched against the closure of a URI under the operations of parsers, in any order:
//! percent-decoding, dot segments and doubled slashes as a file system resolves them, the WHATWG parser (by
//! the `url` crate), host names in lower case and without the dot of the root, removal of user information,
//! port, `;` parameters, query and fragment, and a `file` authority that is ignored.

use std::collections::{BTreeSet, HashSet};
use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;
use url::Url;

/// Longest URI that has forms, in bytes. Matching costs forms times patterns times this.
const MAX_LENGTH: usize = 2 << 10;

/// Most forms of one URI. Honest URIs have fewer than half as many, except for those with nearly every
/// component; one with more was built to have them.
const MAX_FORMS: usize = 64;

/// Components that are missing in a form of a URI. Only such a form is matched against patterns without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct MissingParts(u8);

impl MissingParts {
    const QUERY: Self = Self(1);
    const FRAGMENT: Self = Self(2);
    pub(super) const HOST: Self = Self(4);
    const USER: Self = Self(8);
    const PORT: Self = Self(16);
    const PARAMETERS: Self = Self(32);

    pub(super) const ALL: Self = Self(63);

    fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all components missing in `other` are missing here too.
    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One form in which a server may read a URI.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UriForm {
    pub(super) text: String,
    pub(super) missing: MissingParts,
}

/// Returns every form of a URI, itself first. `None` if parsers disagree about its characters (raw
/// whitespace, control characters and backslashes, also escaped ones; escapes that are not UTF-8; brackets in
/// the authority around anything but an IPv6 address), or if a limit is exceeded.
pub(super) fn forms(uri: &str) -> Option<Vec<UriForm>> {
    let is_refused = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '\\' | '\u{feff}');
    if uri.len() > MAX_LENGTH || uri.contains(is_refused) {
        return None;
    }
    let mut forms = vec![UriForm { text: uri.to_owned(), missing: MissingParts::default() }];
    if is_plain(uri) {
        return Some(forms);
    }
    let mut seen: HashSet<UriForm> = forms.iter().cloned().collect();
    let mut next = 0;
    while let Some(form) = forms.get(next).cloned() {
        next += 1;
        let UriForm { text, missing: cut } = &form;
        if has_odd_brackets(text) {
            return None;
        }
        let mut found = vec![
            (decode(text)?, *cut),
            (resolve(text, true), *cut),
            (resolve(text, false), *cut),
            (with_host_name(text), *cut),
            (with_plain_dots(text), *cut),
        ];
        if let Some(parsed) = parse_whatwg(text) {
            found.push((decode(&parsed)?, *cut));
            // Decoding escaped delimiters moves the end of the authority.
            if split_around_authority(&parsed).is_some_and(|(_, authority, _)| authority.contains('%')) {
                found.push((parsed, *cut));
            }
        }
        found.extend(removals(text).into_iter().map(|(text, removed)| (text, cut.union(removed))));
        for (text, cut) in found {
            let form = UriForm { text, missing: cut };
            if !seen.contains(&form) {
                seen.insert(form.clone());
                forms.push(form);
            }
        }
        if forms.len() > MAX_FORMS {
            return None;
        }
    }
    Some(forms)
}

/// Returns the forms of a URI pattern, with all combinations of some components missing: decoded and resolved
/// like a URI. In a `file` URI `?` is the wildcard, so query and fragment are only cut from others.
pub(super) fn pattern_forms(pattern: &str, cuts: MissingParts) -> BTreeSet<UriForm> {
    let text = decode_pattern(pattern);
    let is_file = split_scheme(&text).0.eq_ignore_ascii_case("file");
    let is_cut = |cut: MissingParts| {
        cuts.contains(cut) && !(is_file && MissingParts::QUERY.union(MissingParts::FRAGMENT).contains(cut))
    };
    let mut open = vec![UriForm { text: text.clone(), missing: MissingParts::default() }];
    // A `*` at the end also covers names after the component that is cut together with it.
    if text.ends_with('*') && text.rsplit('/').next().is_some_and(|end| end.contains(['@', ':', ';'])) {
        open.push(UriForm { text: text + "/*", missing: MissingParts::default() });
    }
    let mut cut_forms = BTreeSet::new();
    while let Some(form) = open.pop() {
        if cut_forms.insert(form.clone()) {
            let removed = removals(&form.text).into_iter().filter(|(_, cut)| is_cut(*cut));
            open.extend(removed.map(|(text, cut)| UriForm { text, missing: form.missing.union(cut) }));
        }
    }
    let mut all = BTreeSet::new();
    for UriForm { text, missing: cut } in cut_forms {
        let parsed = parse_whatwg(&text).map(|parsed| decode_pattern(&parsed));
        let texts = [resolve(&text, true), resolve(&text, false), text].into_iter().chain(parsed);
        for text in texts {
            all.insert(UriForm { text: with_host_name(&text), missing: cut });
            all.insert(UriForm { text, missing: cut });
        }
    }
    all
}

/// Returns whether every parser reads the URI exactly as written.
fn is_plain(uri: &str) -> bool {
    let (scheme, rest) = split_scheme(uri);
    let path = match scheme {
        "file" => rest.strip_prefix("///"),
        // Hosts of these schemes have forms of their own.
        "http" | "https" | "ws" | "wss" | "ftp" => None,
        _ => Some(rest.strip_prefix("//").unwrap_or(rest)),
    };
    let is_lower = !scheme.bytes().any(|byte| byte.is_ascii_uppercase());
    let authority = split_authority(rest).map_or("", |(authority, _)| authority);
    let is_name = !authority.contains(['@', ':', '[', ']']) && with_host_name(uri) == uri;
    let has_forms = |path: &str| path.contains(['%', '?', '#', ';']) || path.contains("//") || has_dots(path);
    is_lower && is_name && path.is_some_and(|path| !path.starts_with('/') && !has_forms(path))
}

fn has_dots(path: &str) -> bool {
    path.split('/').any(|name| matches!(name, "." | ".."))
}

/// Splits a URI at the colon after its scheme; a URI without one has an empty scheme.
fn split_scheme(uri: &str) -> (&str, &str) {
    match uri.split_once(':') {
        Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => (scheme, rest),
        _ => ("", uri),
    }
}

/// Splits the rest after a scheme, which starts with two slashes, into authority and path.
fn split_authority(rest: &str) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix("//").filter(|rest| !rest.starts_with('/'))?;
    Some(rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())))
}

/// Decodes every escape once. Escaped control characters and backslashes, whitespace at either end and bytes
/// that are not UTF-8 are refused; a `%` without two digits stays.
fn decode(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    let is_refused = decoded.contains(|c: char| c.is_control() || c == '\\');
    let is_whole =
        decoded.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len() == decoded.len();
    (!is_refused && is_whole).then(|| decoded.into_owned())
}

/// Decodes a pattern until no escape is left. An escaped `*` stays escaped: it is no wildcard.
fn decode_pattern(pattern: &str) -> String {
    let stars = |text: &str| text.matches('*').count();
    let mut text = pattern.to_owned();
    while let Ok(decoded) = percent_decode_str(&text).decode_utf8()
        && decoded != text
        && stars(&decoded) == stars(&text)
    {
        text = decoded.into_owned();
    }
    text
}

/// Normalizes a URI with the WHATWG parser.
fn parse_whatwg(text: &str) -> Option<String> {
    Url::parse(text).ok().map(String::from)
}

/// Splits a URI before and after its authority.
fn split_around_authority(text: &str) -> Option<(&str, &str, &str)> {
    let (authority, path) = split_authority(split_scheme(text).1)?;
    let before = text.len() - path.len() - authority.len();
    Some((&text[..before], authority, path))
}

/// Splits an authority into user information with its `@`, host, and port with its colon.
fn split_host(authority: &str) -> (&str, &str, &str) {
    let (user, host) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let name = if host.starts_with('[') { host.find(']').unwrap_or(0) } else { 0 };
    let (host, port) = host.split_at(host[name..].find(':').map_or(host.len(), |at| name + at));
    (user, host, port)
}

/// Returns whether an authority has brackets around anything but an IPv6 address: some parsers read only the
/// text inside.
fn has_odd_brackets(text: &str) -> bool {
    let Some((_, authority, _)) = split_around_authority(text) else { return false };
    let (user, host, port) = split_host(authority);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = address.and_then(|address| address.split('%').next());
    let is_address = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    user.contains(['[', ']']) || port.contains(['[', ']']) || (host.contains(['[', ']']) && !is_address)
}

/// Writes the host in lower case and without the dot of the root.
fn with_host_name(text: &str) -> String {
    let Some((before, authority, path)) = split_around_authority(text) else { return text.to_owned() };
    let (user, host, port) = split_host(authority);
    let host = host.to_lowercase();
    let name = Some(host.trim_end_matches('.')).filter(|name| !name.is_empty()).unwrap_or(&host);
    format!("{before}{user}{name}{port}{path}")
}

/// Writes dot segments with plain dots: the WHATWG parser resolves escaped ones and leaves every other escape
/// as it is.
fn with_plain_dots(text: &str) -> String {
    let plain = |name: &str| match name.to_ascii_lowercase().replace("%2e", ".").as_str() {
        "." => Some("."),
        ".." => Some(".."),
        _ => None,
    };
    text.split('/').map(|name| plain(name).unwrap_or(name)).collect::<Vec<_>>().join("/")
}

/// Returns the URI without each of the components that some parser ignores.
fn removals(text: &str) -> Vec<(String, MissingParts)> {
    let before = |delimiter| text.split_once(delimiter).map(|(before, _)| before.to_owned());
    // A fragment after the query is removed with it.
    let has_fragment = text.split_once('?').is_some_and(|(_, query)| query.contains('#'));
    let query =
        if has_fragment { MissingParts::QUERY.union(MissingParts::FRAGMENT) } else { MissingParts::QUERY };
    let found = [
        (without_host(text), MissingParts::HOST),
        (without_user(text), MissingParts::USER),
        (without_port(text), MissingParts::PORT),
        (before('?'), query),
        (before('#'), MissingParts::FRAGMENT),
    ];
    let parameters = without_parameters(text).into_iter().map(|text| (text, MissingParts::PARAMETERS));
    found.into_iter().filter_map(|(text, cut)| Some((text?, cut))).chain(parameters).collect()
}

/// Removes the user information, up to the first of several `@`: parsers disagree about which one ends it.
fn without_user(text: &str) -> Option<String> {
    let (before, authority, path) = split_around_authority(text)?;
    let (_, host) = authority.split_once('@')?;
    Some(format!("{before}{host}{path}"))
}

fn without_port(text: &str) -> Option<String> {
    let (before, authority, path) = split_around_authority(text)?;
    let (user, host, port) = split_host(authority);
    (!port.is_empty()).then(|| format!("{before}{user}{host}{path}"))
}

/// Removes the text after a `;`: in the last segment of the path, in each segment, or to the end of the path.
fn without_parameters(text: &str) -> Vec<String> {
    let path = split_around_authority(text).map_or(split_scheme(text).1, |(_, _, path)| path);
    let (before, path) = text.split_at(text.len() - path.len());
    let (path, after) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
    let Some(first) = path.find(';') else { return Vec::new() };
    let last = path.rfind('/').unwrap_or(0);
    let last = path[last..].find(';').map_or(path.len(), |at| last + at);
    let each: Vec<&str> = path.split('/').map(|name| name.split(';').next().unwrap_or(name)).collect();
    [&path[..last], &each.join("/"), &path[..first]].map(|path| format!("{before}{path}{after}")).into()
}

/// Resolves `.`, `..` and empty segments as a file system does, through `?` and `#`, and writes the scheme in
/// lower case. The authority is kept, or becomes the first segment of the path. An absolute `file` path has
/// three slashes.
fn resolve(text: &str, keeps_host: bool) -> String {
    let (scheme, rest) = split_scheme(text);
    let scheme = scheme.to_ascii_lowercase();
    let prefix = if scheme.is_empty() { String::new() } else { format!("{scheme}:") };
    match split_authority(rest) {
        Some((host, path)) if scheme == "file" && host.eq_ignore_ascii_case("localhost") => {
            format!("{prefix}///{}", resolve_path(path))
        }
        Some((host, path)) if keeps_host && !host.is_empty() => {
            let resolved = resolve_path(path);
            let is_separate =
                path.starts_with('/') || !(resolved.is_empty() || resolved.starts_with(['?', '#']));
            format!("{prefix}//{host}{}{resolved}", if is_separate { "/" } else { "" })
        }
        _ if scheme == "file" => format!("{prefix}///{}", resolve_path(rest)),
        _ => {
            let slashes = rest.len() - rest.trim_start_matches('/').len();
            format!("{prefix}{}{}", &"///"[..slashes.min(3)], resolve_path(rest))
        }
    }
}

fn resolve_path(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let is_folder = matches!(path.rsplit('/').next(), Some("" | "." | ".."));
    let end = if is_folder && !names.is_empty() { "/" } else { "" };
    names.join("/") + end
}

/// Removes the authority of a `file` URI, which most parsers ignore.
fn without_host(text: &str) -> Option<String> {
    let (scheme, rest) = split_scheme(text);
    let (host, path) = split_authority(rest)?;
    let is_there = scheme.eq_ignore_ascii_case("file") && !host.is_empty();
    is_there.then(|| format!("file:///{}", path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(uri: &str) -> Vec<String> {
        forms(uri).unwrap_or_else(|| panic!("{uri} has no forms")).into_iter().map(|form| form.text).collect()
    }

    #[test]
    fn every_text_that_some_parser_reads_is_among_the_forms() {
        let table = [
            ("file:///tmp/../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/%2e%2E/tmp%2Fsecret", "file:///tmp%2Fsecret"),
            ("file:///tmp/%2E%2e//tmp%2F%2f", "file:///tmp%2F%2f"),
            ("https:%23@board.example/s%65cret", "https://board.example/secret"),
            ("file:///tmp/./a", "file:///tmp/a"),
            ("file:///tmp/a/..", "file:///tmp/"),
            ("file:///../../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/%2e%2E/etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/..%2fetc/passwd", "file:///etc/passwd"),
            ("file:///tmp/..%252fetc/passwd", "file:///etc/passwd"),
            ("file:///tmp/a%2fb/../..%2fetc/passwd", "file:///etc/passwd"),
            ("file:///tmp/x?/../../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp/x#/../../etc/passwd", "file:///etc/passwd"),
            ("file:///tmp//../etc", "file:///etc"),
            ("file:///tmp//../etc", "file:///tmp/etc"),
            ("file:///%65tc/passwd", "file:///etc/passwd"),
            ("file:////etc//passwd", "file:///etc/passwd"),
            ("file:/etc/passwd", "file:///etc/passwd"),
            ("file:etc/passwd", "file:///etc/passwd"),
            ("file://localhost/etc/passwd", "file:///etc/passwd"),
            ("file://elsewhere/etc/passwd", "file:///etc/passwd"),
            ("file://tmp/../etc/passwd", "file:///etc/passwd"),
            ("FILE:///etc/passwd", "file:///etc/passwd"),
            ("%66ile:///etc/passwd", "file:///etc/passwd"),
            ("file:///etc/passwd?x#y", "file:///etc/passwd"),
            ("file:///etc/pass%3Fwd?x", "file:///etc/pass?wd"),
            ("notes:/a/../b", "notes:/b"),
            ("db://a/../b?x=/../c", "db://a/b?x=/../c"),
            ("db://a/../b", "db://b"),
            ("db://a/x////../../b", "db://a/b"),
            ("https:evil.com/x", "https://evil.com/x"),
            ("https://user:word@EVIL.com.:443/x", "https://evil.com/x"),
            ("https://ｅvil.com/", "https://evil.com/"),
            ("docs://BOARD/x", "docs://board/x"),
            ("docs://u@board/x", "docs://board/x"),
            ("docs://board:1/x", "docs://board/x"),
            ("docs://U:p@Board.:1/x", "docs://board/x"),
            ("docs://u@board:1/x", "docs://board:1/x"),
            ("docs://u@board:1/x", "docs://u@board/x"),
            ("docs://[::1]:1/x", "docs://[::1]/x"),
            ("https://a.example/b;c/d;e?f;g", "https://a.example/b;c/d?f;g"),
            ("https://a.example/b;c/d;e?f;g", "https://a.example/b/d"),
            ("https://a.example/b;c/d;e?f;g", "https://a.example/b?f;g"),
        ];
        for (uri, form) in table {
            assert!(texts(uri).iter().any(|text| text == form), "{uri}: {:?}", texts(uri));
        }
    }

    #[test]
    fn a_plain_uri_has_one_form() {
        let plain =
            ["", "x", "file:///tmp/a", "file:///tmp/.hidden/...", "t://{a}/{b}", "notes://host/ä", "a:b:c"];
        for uri in plain {
            assert_eq!(texts(uri), [uri]);
        }
    }

    #[test]
    fn honest_uris_stay_below_the_limit_of_forms() {
        let table = [
            ("db://localhost:5432/users/schema", 2),
            ("https://docs.example/a/b?x=1&y=2#top", 4),
            ("https://docs.example:8443/a/b;v=1?x=1&y=2#top", MAX_FORMS / 2),
            ("postgres://User:word@Db.example:5432/users?mode=ro", MAX_FORMS / 2),
            ("https://user@docs.example:8443/a%20b/c;v=1?x=1#top", MAX_FORMS),
            ("https://User@Docs.example:8443/a%20b/c?x=1#top", MAX_FORMS),
        ];
        for (uri, most) in table {
            assert!(texts(uri).len() <= most, "{uri} has {}", texts(uri).len());
        }
    }

    #[test]
    fn a_uri_that_parsers_disagree_about_has_no_forms() {
        let refused = [
            "file:///tmp/.\t./x",
            "file:///tmp/.\n./x",
            "file:///tmp/a b",
            " file:///tmp/a",
            "file:///tmp/a\u{a0}",
            "\u{feff}file:///tmp/a",
            "file:///tmp\\..\\x",
            "file:///tmp/.%09./x",
            "file:///tmp/%2500",
            "file:///tmp/..%5cx",
            "file:///tmp/x%20",
            "file:///tmp/%c0%ae%c0%ae/x",
            "docs://[board]/x",
            "docs://a[::1]/x",
            "docs://%5Bboard%5D/x",
            "docs://[::1]@board/x",
        ];
        for uri in refused {
            assert_eq!(forms(uri), None, "{uri:?}");
        }
        assert!(forms("file:///my%20docs/a").is_some());
    }

    #[test]
    fn forms_are_bounded_in_length_and_number() {
        let uri = |length: usize| format!("x:{}", "a".repeat(length - 2));
        assert!(forms(&uri(MAX_LENGTH)).is_some());
        assert_eq!(forms(&uri(MAX_LENGTH + 1)), None);
        assert_eq!(forms(&format!("x:%{}41", "25".repeat(MAX_FORMS))), None, "decoded again and again");
    }

    proptest! {
        #[test]
        fn every_form_of_a_form_is_a_form(uri in "(file|x|X|https)?:?/{0,3}[a-c.%/2eEfF?#é@:;]{0,16}") {
            let Some(all) = forms(&uri) else { return Ok(()) };
            prop_assert_eq!(&all[0].text, &uri);
            prop_assert!(all.len() <= MAX_FORMS);
            for form in &all {
                for text in texts(&form.text) {
                    prop_assert!(all.iter().any(|known| known.text == text), "{} of {} of {}", text, form.text, uri);
                }
            }
        }
    }
}
