//! Errors of npm and npx: a block of lines with one prefix, one of which tells the failure.

use super::ErrorHeadline;

/// Returns the text after the prefix of npm's errors; `npm ERR!` up to npm 10.
pub(super) fn error_of(text: &str) -> Option<&str> {
    ["npm error", "npm ERR!"].iter().find_map(|begin| text.strip_prefix(begin))
}

/// The errors of one run of npm.
#[derive(Debug)]
pub(super) struct NpmError {
    at: usize,
    code: Option<String>,
    message: Option<String>,
    /// True if the error is about a program that npm ran, which has printed its own error before.
    is_relayed: bool,
}

impl NpmError {
    pub(super) fn new(at: usize) -> Self {
        Self { at, code: None, message: None, is_relayed: false }
    }

    pub(super) fn push_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(code) = line.strip_prefix("code ") {
            self.is_relayed |= code == "ELIFECYCLE" || code.starts_with(|c: char| c.is_ascii_digit());
            self.code.get_or_insert_with(|| code.to_owned());
            return;
        }
        self.is_relayed |= line.starts_with("Lifecycle script ");
        const TAGS: [&str; 4] = ["404", "notarget", "enoent", "network"];
        let (tag, message) = line.split_once(' ').filter(|(tag, _)| TAGS.contains(tag)).unwrap_or(("", line));
        let message = message.trim();
        const SKIPPED: [&str; 8] = [
            "errno ",
            "syscall ",
            "path ",
            "dest ",
            "at ",
            "A complete log of this run",
            "If you are behind",
            "Not Found - ",
        ];
        let says_nothing =
            message.is_empty() || message == "404" || SKIPPED.iter().any(|begin| message.starts_with(begin));
        // `404 Not Found - GET https://…` is followed by the name of the package.
        if says_nothing && !(self.message.is_none() && tag == "404" && message.starts_with("Not Found")) {
            return;
        }
        let is_better = self.message.as_ref().is_none_or(|message| message.starts_with("Not Found - "));
        if is_better {
            self.message = Some(message.to_owned());
        }
    }

    /// Returns the error, and whether it is npm's own.
    pub(super) fn finish(self) -> (ErrorHeadline, bool) {
        let text = match (self.code, self.message) {
            (Some(code), Some(message)) => format!("npm error {code}: {message}"),
            (Some(code), None) => format!("npm error {code}"),
            (None, Some(message)) => format!("npm error {message}"),
            (None, None) => "npm error".to_owned(),
        };
        (ErrorHeadline { at: self.at, text, ..ErrorHeadline::default() }, !self.is_relayed)
    }
}
