//! Detection of literals that look like secrets. Secrets belong in the environment or in a file, and never
//! appear in a message.

/// Words of a key that make its value a secret.
const SECRET_WORDS: [&str; 11] = [
    "token",
    "secret",
    "key",
    "apikey",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "authorization",
    "pat",
];

/// Last words of a key that make its value a location or a number instead.
const HARMLESS_LAST_WORDS: [&str; 10] =
    ["file", "path", "dir", "url", "uri", "id", "name", "type", "header", "limit"];

/// Prefixes of the tokens of well-known services.
const TOKEN_PREFIXES: [&str; 23] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "hf_",
    "npm_",
    "pypi-",
    "lin_api_",
    "ostler_",
];

/// Tokens are at least this long; ordinary words with such a prefix are shorter.
const MIN_TOKEN_BYTES: usize = 16;

/// A run of letters and digits this long was not written by a person.
const MIN_OPAQUE_BYTES: usize = 28;

/// Returns whether a key's name makes its value a secret: `GITHUB_TOKEN`, `apiKey`, `Authorization`.
pub fn is_secret_key(key: &str) -> bool {
    let words = key_words(key);
    let is_harmless = words.last().is_some_and(|last| HARMLESS_LAST_WORDS.contains(&last.as_str()));
    !is_harmless && words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// Returns whether a text holds something with the prefix of a well-known token.
pub(crate) fn has_token(text: &str) -> bool {
    token_runs(text).any(is_token)
}

/// Returns whether a line of a file may hold a secret, so that it is not shown.
///
/// The line is raw text, which may not even parse, so the check hides too much rather than too little.
pub(crate) fn may_hold_secret(line: &str) -> bool {
    token_runs(line).any(|run| is_secret_key(run) || is_token(run) || is_opaque(run))
}

/// Returns a text safe for messages: short, printable and without secrets.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 48;
    let is_letter_or_digit = |c: char| c.is_ascii_alphanumeric();
    if has_token(text) || text.split(|c| !is_letter_or_digit(c)).any(is_opaque) {
        return "\"…\"".into();
    }
    let clipped: String = text.chars().take(SHOWN).collect();
    let dots = if clipped.len() < text.len() { "…" } else { "" };
    format!("\"{}{dots}\"", clipped.escape_debug())
}

/// Returns a text with `…` in place of everything with the prefix of a well-known token.
pub fn redact_tokens(text: &str) -> String {
    let mut masked = text.to_owned();
    for token in token_runs(text).filter(|run| is_token(run)) {
        masked = masked.replace(token, "…");
    }
    masked
}

/// Scans the arguments of a program in order: `--token` makes the next one a secret.
#[derive(Debug, Default)]
pub(crate) struct SecretArgScanner {
    is_value_next: bool,
}

impl SecretArgScanner {
    /// Returns the start of a secret in the next argument.
    pub(crate) fn find_secret(&mut self, text: &str) -> Option<usize> {
        let is_bare_flag = text.starts_with('-') && !text.contains('=');
        let is_value = self.is_value_next && !is_bare_flag;
        self.is_value_next = is_bare_flag && is_secret_key(text);
        match text.contains("${") {
            true => None,
            false if is_value => Some(0),
            false => {
                find_named_secret(text).or_else(|| find_secret_in_url(text)).or(has_token(text).then_some(0))
            }
        }
    }
}

/// Returns the start of a secret in an address: a password before the host, a value of the query, or a token
/// anywhere.
pub(crate) fn find_secret_in_url(text: &str) -> Option<usize> {
    let after_scheme = text.find("://")? + 3;
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let authority = address.get(after_scheme..)?.split('/').next().unwrap_or_default();
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    if let Some((user, password)) = password
        && !password.is_empty()
        && !password.contains("${")
    {
        return Some(after_scheme + user.len() + 1);
    }
    let mut at = address.len() + 1;
    for pair in query.split('&') {
        if let Some(value) = find_named_secret(pair).filter(|_| !pair.contains("${")) {
            return Some(at + value);
        }
        at += pair.len() + 1;
    }
    has_token(text).then_some(after_scheme)
}

/// Returns the start of the value in `--api-key=value` and `Authorization: value`, if the name makes it a
/// secret.
fn find_named_secret(text: &str) -> Option<usize> {
    let (name, value) =
        text.split_once(['=', ':']).filter(|(name, _)| !name.contains(char::is_whitespace))?;
    let value = value.trim_start();
    (is_secret_key(name) && !value.is_empty()).then_some(text.len() - value.len())
}

/// Returns arguments with `…` in place of apparent secrets.
pub fn redact_args(args: &[String]) -> Vec<String> {
    let mut arguments = SecretArgScanner::default();
    args.iter().map(|arg| redact_from(arg, arguments.find_secret(arg))).collect()
}

/// Returns an address with `…` in place of apparent secrets.
pub fn redact_url(address: &str) -> String {
    redact_from(address, find_secret_in_url(address))
}

/// Hides everything from a position on, since the end of the secret is unknown.
fn redact_from(text: &str, from: Option<usize>) -> String {
    let kept = from.and_then(|from| text.get(..from));
    kept.map_or_else(|| redact_tokens(text), |kept| format!("{kept}…"))
}

fn is_token(run: &str) -> bool {
    run.len() >= MIN_TOKEN_BYTES
        && run.contains(|c: char| c.is_ascii_digit())
        && TOKEN_PREFIXES.iter().any(|prefix| run.starts_with(prefix))
}

fn is_opaque(run: &str) -> bool {
    run.len() >= MIN_OPAQUE_BYTES
        && run.contains(|c: char| c.is_ascii_digit())
        && run.contains(|c: char| c.is_ascii_alphabetic())
}

/// Returns the runs of characters that tokens and keys consist of.
fn token_runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
        .filter(|run| !run.is_empty())
}

/// Returns the words of a key in lower case: `apiKey`, `API_KEY` and `api-key` are `api`, `key`.
fn key_words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_is_lower = false;
    for c in key.chars() {
        let is_break = !c.is_alphanumeric();
        if is_break || (c.is_uppercase() && previous_is_lower) {
            words.push(String::new());
        }
        if let (false, Some(word)) = (is_break, words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        previous_is_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_without_their_secrets() {
        let table = [
            (&["--db", "/tmp/x.db", "--key-file", "k"][..], &["--db", "/tmp/x.db", "--key-file", "k"][..]),
            (&["--token", "hunter2", "x"], &["--token", "…", "x"]),
            (&["--token", "--verbose"], &["--token", "--verbose"]),
            (&["--password=hunter2"], &["--password=…"]),
            (&["API_KEY=hunter2"], &["API_KEY=…"]),
            (&["--header", "Authorization: Bearer hunter2"], &["--header", "Authorization: …"]),
            (&["--token", "${env:TOKEN}"], &["--token", "${env:TOKEN}"]),
            (&["postgres://me:hunter2@db/x"], &["postgres://me:…"]),
            (&["https://x.example/?a=b&api_key=hunter2"], &["https://x.example/?a=b&api_key=…"]),
            (&["ghp_abcdefghijklmnop1234567890"], &["…"]),
            (&["a note: nothing"], &["a note: nothing"]),
        ];
        for (args, shown) in table {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            assert_eq!(redact_args(&args), shown);
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let table = [
            ("https://x.example/mcp?page=2", "https://x.example/mcp?page=2"),
            ("https://me@x.example/mcp", "https://me@x.example/mcp"),
            ("https://me:hunter2@x.example/mcp", "https://me:…"),
            ("https://me:${env:PASSWORD}@x.example/mcp", "https://me:${env:PASSWORD}@x.example/mcp"),
            ("https://x.example/mcp?api_key=${env:KEY}", "https://x.example/mcp?api_key=${env:KEY}"),
            ("https://x.example/ghp_abcdefghijklmnop1234567890/mcp", "https://…"),
        ];
        for (address, shown) in table {
            assert_eq!(redact_url(address), shown);
        }
    }

    #[test]
    fn keys_tell_what_their_values_are() {
        for key in
            ["TOKEN", "GITHUB_TOKEN", "apiKey", "API_KEY", "x-api-key", "Authorization", "DB_PASSWORD", "PAT"]
        {
            assert!(is_secret_key(key), "{key}");
        }
        for key in
            ["PATH", "KEYBOARD", "MAX_TOKENS", "TOKEN_FILE", "SECRET_PATH", "KEY_ID", "TZ", "MONKEY", ""]
        {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn well_known_tokens_are_recognized_wherever_they_stand() {
        for text in [
            "ghp_0123456789abcdef0123",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.x",
            "--token=xoxb-1234567890-abcdef",
            "AKIAIOSFODNN7EXAMPLE",
        ] {
            assert!(has_token(text), "{text}");
        }
        for text in ["sk-learn", "/usr/bin/eyJ", "npm_config_registry_url", "hello"] {
            assert!(!has_token(text), "{text}");
        }
    }

    #[test]
    fn masked_texts_keep_everything_but_tokens() {
        assert_eq!(
            redact_tokens("`${ghp_0123456789abcdef0123}` is not a reference"),
            "`${…}` is not a reference"
        );
        assert_eq!(redact_tokens("plain"), "plain");
    }

    #[test]
    fn quoted_texts_are_short_printable_and_without_secrets() {
        assert_eq!(quote("5 minutes"), "\"5 minutes\"");
        assert_eq!(quote("a\u{1b}b"), "\"a\\u{1b}b\"");
        assert_eq!(quote("ghp_0123456789abcdef0123"), "\"…\"");
        assert_eq!(quote(&"x ".repeat(100)).chars().count(), 51);
    }

    #[test]
    fn a_long_run_of_letters_and_digits_is_not_shown() {
        let opaque = "a1".repeat(14);
        assert_eq!(quote(&format!("key {opaque}")), "\"…\"");
        assert!(may_hold_secret(&format!("x = {opaque}")));
        for harmless in [&opaque[..27], &"a".repeat(40), &"1".repeat(40)] {
            assert!(!may_hold_secret(harmless), "{harmless}");
            assert_eq!(quote(harmless), format!("\"{harmless}\""));
        }
    }
}
