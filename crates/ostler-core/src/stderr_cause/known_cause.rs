//! Kinds of failures, detected by the stable forms of runtimes and package managers. Only advice depends on
//! them.

use crate::inherited_env::find_names;

/// A failure that a person can fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownCause {
    /// A package manager knows no package of that name or version.
    NoPackage,
    /// A package manager can't reach its registry.
    NoRegistry,
    /// A certificate on the way to a registry or service is not trusted, often that of a company's proxy.
    UntrustedCertificate,
    /// The package has no program of its own name.
    NoProgram,
    /// A library that the server imports is not installed.
    NoModule,
    /// The script to be run does not exist.
    NoScript,
    /// A program that the server or its first line runs was not found.
    NoCommand(String),
    /// The server wants a variable that is not set.
    NoVariable(String),
    /// Docker does not run.
    NoDocker,
    /// The server listens for HTTP instead of using stdio.
    ServesHttp,
}

impl KnownCause {
    /// Parses the cause line of a server's output.
    pub fn parse(line: &str) -> Option<Self> {
        let lower = line.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if has(&[
            "npm error e404",
            "npm error etarget",
            "not found in the package registry",
            "no matching distribution",
        ]) {
            return Some(Self::NoPackage);
        }
        if has(&["could not determine executable to run", "does not provide any executables"]) {
            return Some(Self::NoProgram);
        }
        // Before the registry, which can't be reached because of it.
        if has(&["invalid peer certificate", "certificate_verify_failed"]) {
            return Some(Self::UntrustedCertificate);
        }
        let is_manager = has(&["npm error", "failed to fetch", "registry"]);
        if is_manager && has(&["econnrefused", "enotfound", "eai_again", "etimedout", "failed to fetch"]) {
            return Some(Self::NoRegistry);
        }
        if has(&["docker daemon", "docker.sock"]) {
            return Some(Self::NoDocker);
        }
        Self::missing_code(line, &lower).or_else(|| Self::missing_setting(line, &lower))
    }

    /// Detects code that is to be run or imported and does not exist.
    fn missing_code(line: &str, lower: &str) -> Option<Self> {
        for form in ["Cannot find module ", "Cannot find package ", "can't open file ", "Failed to spawn: "] {
            let Some((_, rest)) = line.split_once(form) else { continue };
            let name = first_word(rest);
            let is_script =
                name.starts_with(['/', '.']) || form.starts_with("can't") || form.starts_with("Failed");
            return Some(if is_script { Self::NoScript } else { Self::NoModule });
        }
        if line.contains("No module named ") {
            return Some(Self::NoModule);
        }
        let begins = |word: &str| line.starts_with(word) || line.starts_with(&format!("/usr/bin/{word}"));
        if begins("env: ") && lower.contains("no such file") {
            return line.split_once(": ").map(|(_, rest)| Self::NoCommand(first_word(rest)));
        }
        if (begins("sh: ") || begins("bash: ")) && lower.contains("not found") {
            let name = line.rsplit(": ").nth(1).map(first_word)?;
            return Some(Self::NoCommand(name));
        }
        None
    }

    /// Detects a variable or an option that is not set.
    fn missing_setting(line: &str, lower: &str) -> Option<Self> {
        const WORDS: [&str; 9] = [
            "required",
            "missing",
            "not set",
            "must be set",
            "must set",
            "undefined",
            "please set",
            "keyerror",
            "not provided",
        ];
        let variable = find_names(line).into_iter().find(|name| name.contains('_'));
        if let Some(name) = variable.filter(|_| WORDS.iter().any(|word| lower.contains(word))) {
            return Some(Self::NoVariable(name.to_owned()));
        }
        let listens = ["listening", "running on", "running at", "started on", "started at", "uvicorn"];
        let has_word = |wanted: &str| lower.split(|c: char| !c.is_alphanumeric()).any(|word| word == wanted);
        // A server may also print that it runs on stdio, with a transport of that name.
        let is_http = (lower.contains("http://") || has_word("port")) && !has_word("stdio");
        (is_http && listens.iter().any(|word| lower.contains(word))).then_some(Self::ServesHttp)
    }
}

/// Returns the first word of a text, without its quotes.
fn first_word(text: &str) -> String {
    const QUOTES: [char; 5] = ['\'', '"', '`', '‘', '’'];
    let text = text.trim();
    match text.strip_prefix(QUOTES) {
        Some(rest) => rest.split(QUOTES).next().unwrap_or(rest).to_owned(),
        None => text.split([' ', ':', ',']).next().unwrap_or(text).to_owned(),
    }
}
