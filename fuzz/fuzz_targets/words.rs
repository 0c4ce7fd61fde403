//! Small grammars of the config and of names: an accepted text has one meaning, and matching agrees
//! with its definition. The input is one text, or two with a newline between them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_core::catalog::{exposed_name, nearest, slug, uri_template};
use ostler_core::config::{self, Template, duration, glob, listen, size};
use ostler_core::policy::glob::{is_match, matches_all_with_prefix, matches_some_with_prefix};
use ostler_core::secrets::Secrets;
use ostler_core::server_name::ServerName;

/// Returns whether a pattern matches a name by definition: with a table instead of backtracking.
fn matches_by_definition(pattern: &[char], name: &[char]) -> bool {
    let mut row = vec![false; name.len() + 1];
    row[0] = true;
    for wanted in pattern {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match wanted {
                '*' => row[at] || (at > 0 && next[at - 1]),
                wanted => at > 0 && row[at - 1] && (*wanted == '?' || *wanted == name[at - 1]),
            };
        }
        row = next;
    }
    row[name.len()]
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let (first, second) = text.split_once('\n').unwrap_or((&text, ""));

    let _ = (duration::parse(first), size::parse(first), glob::check(first), glob::check_rule(first));
    if let Ok(address) = listen::parse(first) {
        assert_eq!(listen::parse(&address.to_string()), Ok(address));
    }
    if let Ok(name) = ServerName::new(first) {
        assert_eq!(name.as_str(), first);
        assert_eq!(slug(first), Some(name.clone()), "a name is its own slug");
        let exposed = exposed_name(&name, second);
        assert!(exposed.len() <= 64, "{exposed}");
    }
    if let Some(name) = slug(first) {
        assert_eq!(ServerName::new(name.as_str()).as_ref(), Ok(&name));
    }
    let _ = nearest(first, [second, "time", "time-2"].into_iter());
    let _ = uri_template::matches(first, second);
    assert!(second.contains('{') || second.len() > 8 << 10 || uri_template::matches(second, second));

    let letters = |text: &str| text.chars().collect::<Vec<_>>();
    let is_fit = is_match(first, second);
    assert_eq!(is_fit, matches_by_definition(&letters(first), &letters(second)), "{first:?} on {second:?}");
    assert!(!is_fit || matches_some_with_prefix(first, second), "what fits the whole fits its beginning");
    assert!(!matches_all_with_prefix(first, second) || is_fit, "what covers a beginning fits it");

    if let Ok(template) = Template::parse(first) {
        let resolved = template.resolve(&|_| Ok(second.to_owned())).expect("every reference has a value");
        assert!(template.has_references() || resolved == first.replace("$${", "${"), "{resolved:?}");
    }
    let mut secrets = Secrets::default();
    if secrets.insert("env:X", second) {
        let redacted = secrets.redact(first);
        // The label may itself hold the secret, or be a part of it.
        let is_alike = second.trim().len() < 12 || second.contains("[hidden");
        assert!(is_alike || !redacted.contains(second.trim()), "{redacted:?} holds {second:?}");
        let _ = secrets.redact_truncated(first);
    }
    let masked = config::redact_tokens(first);
    assert_eq!(config::redact_tokens(&masked), masked, "nothing is left to mask");
    let _ = (config::redact_url(first), config::redact_args(&[first.to_owned(), second.to_owned()]));
    let _ = (config::is_secret_key(first), config::check_nats_address(first));
});
