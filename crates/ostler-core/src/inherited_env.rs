//! Environment variables that servers inherit from the host: locations, network, desktop and language. Every
//! other variable may be a secret and is passed only by name.

/// Variables that every server receives; names ending in `*` are prefixes.
pub const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TMPDIR",
    "TERM",
    "SHELL",
    "TZ",
    "XDG_*",
    // Proxies: programs differ in the case they read.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    // Certificate authorities, as paths and switches. OpenSSL and Go read the first two; each of the others
    // is the only one that its program reads: Node, requests, curl, git, pip and pipx, uv.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "UV_NATIVE_TLS",
    // The desktop: servers open browsers and windows.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    // Sockets and contexts of the user's other services. They name a location whose access is guarded there.
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "KUBECONFIG",
];

/// Variables of Ostler itself, which `env_pass = ["*"]` does not pass.
const OWN_PREFIX: &str = "OSTLER_";

/// Returns whether every server receives the variable.
pub fn is_inherited(name: &str) -> bool {
    INHERITED.iter().any(|pattern| matches_pattern(pattern, name))
}

/// Returns whether these patterns of `env_pass` pass the variable.
pub fn is_in_env_pass<T: AsRef<str>>(patterns: &[T], name: &str) -> bool {
    patterns.iter().map(AsRef::as_ref).any(|pattern| match pattern {
        "*" => !name.starts_with(OWN_PREFIX),
        pattern => matches_pattern(pattern, name),
    })
}

/// Checks a pattern of `env_pass`.
pub fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match () {
        () if pattern.is_empty() => Err("the name of a variable can't be empty"),
        () if name.contains('*') => Err("`*` stands at the end only, as in `AWS_*`"),
        () if !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) => {
            Err("it wants the name of a variable, and no value")
        }
        () => Ok(()),
    }
}

/// Finds names of variables in a text, in order and each once: words of capitals, digits and `_` that a
/// program would read as a setting.
pub fn find_names(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_variable = |word: &&str| {
        let is_capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        word.len() >= MIN_NAME_LEN
            && word.chars().all(is_capital)
            && word.starts_with(|c: char| c.is_ascii_uppercase())
    };
    let mut names: Vec<&str> = Vec::new();
    for word in words.filter(is_variable) {
        if !names.contains(&word) {
            names.push(word);
        }
    }
    names
}

/// Shorter words of capitals are abbreviations more often than variables.
const MIN_NAME_LEN: usize = 5;

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_pass_and_secrets_do_not() {
        for name in ["PATH", "LC_ALL", "XDG_RUNTIME_DIR", "https_proxy", "SSL_CERT_FILE", "KUBECONFIG"] {
            assert!(is_inherited(name), "{name}");
        }
        for name in ["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PATHS", "LD_PRELOAD", "NODE_OPTIONS", "path"] {
            assert!(!is_inherited(name), "{name}");
        }
    }

    #[test]
    fn a_server_is_given_what_it_names() {
        let patterns = ["GITHUB_TOKEN", "AWS_*"];
        assert!(is_in_env_pass(&patterns, "GITHUB_TOKEN") && is_in_env_pass(&patterns, "AWS_REGION"));
        assert!(!is_in_env_pass(&patterns, "GITHUB_TOKEN_2") && !is_in_env_pass(&patterns, "MY_AWS_REGION"));
        assert!(is_in_env_pass(&["*"], "ANY") && !is_in_env_pass(&["*"], "OSTLER_TOKEN"));
        assert!(is_in_env_pass(&["OSTLER_TOKEN"], "OSTLER_TOKEN"));
    }

    #[test]
    fn patterns_are_names_with_a_star_at_the_end_at_most() {
        for good in ["A", "_a1", "AWS_*", "*"] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for bad in ["", "A=b", "A B", "1A", "A*B", "*_TOKEN", "${env:A}", "Ä"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_variables_are_found_in_what_servers_say() {
        let text = "Error: GITHUB_TOKEN is not set (HTTP 401); set $GITHUB_TOKEN or KeyError: 'API_KEY'";
        assert_eq!(find_names(text), ["GITHUB_TOKEN", "API_KEY"]);
    }
}
