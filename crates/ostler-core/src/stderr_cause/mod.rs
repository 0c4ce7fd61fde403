//! Cause of a failure in a server's stderr: the line that a person would point at.
//!
//! Runtimes and package managers end their output with the least helpful lines: stack frames, a closing
//! brace, their version, the path of a log. The cause is further up, in a form that each of them keeps to.
//! For output without a known form the cause is its last meaningful line.

mod known_cause;
mod npm;

pub use self::known_cause::KnownCause;
use self::npm::NpmError;
use crate::error::truncate;

/// Most characters of a cause; a longer one is truncated.
const MAX_CHARS: usize = 300;

/// Ordinary lines after which an error counts as an old one that the server survived.
const STALE_AFTER: usize = 20;

/// The line that tells the cause, and its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CauseLine {
    /// One line, joined with the causes and the code below it.
    pub text: String,
    /// Index of the line it was taken from.
    pub at: usize,
}

/// Finds the line that tells why a process ended. `None` if all lines are blank.
pub fn find_cause_line<T: AsRef<str>>(lines: &[T]) -> Option<CauseLine> {
    let mut reading = StderrParser::default();
    for (at, line) in lines.iter().enumerate() {
        reading.push_line(at, &without_colours(line.as_ref()));
    }
    reading.finish()
}

/// Returns whether output shows that the program is an HTTP server only. A server that waits for a login
/// listens for the browser's redirect, and one with a web page may speak MCP on stdio a little later.
pub fn is_http_server<T: AsRef<str>>(lines: &[T]) -> bool {
    const LOGIN: [&str; 6] = ["authoriz", "oauth", "callback", "log in", "login", "sign in"];
    const SIDE_DOORS: [&str; 5] = ["dashboard", "inspector", "debugger", "metrics", "health"];
    let has = |line: &T, words: &[&str]| {
        let lower = line.as_ref().to_lowercase();
        words.iter().any(|word| lower.contains(word))
    };
    let is_http = |line: &T| {
        KnownCause::parse(line.as_ref()) == Some(KnownCause::ServesHttp) && !has(line, &SIDE_DOORS)
    };
    lines.iter().any(is_http) && !lines.iter().any(|line| has(line, &LOGIN))
}

/// An error and the lines below it.
#[derive(Debug, Clone, Default)]
struct ErrorHeadline {
    at: usize,
    text: String,
    causes: Vec<String>,
    /// As in Node's `code: 'ERR_…'`.
    code: Option<String>,
}

/// Section of the output that is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum StderrSection {
    #[default]
    Text,
    /// The frames of Python: indented lines before the exception.
    Traceback,
    /// After a line that ends with a colon, which the next line completes.
    Unfinished,
    /// After Rust's `thread 'main' panicked at src/main.rs:1:1:`.
    Panic,
    /// After a `Caused by:` on a line of its own.
    Causes,
    /// After Go's `goroutine 1 [running]:`, to the end.
    Goroutines,
}

/// State after the lines read so far.
#[derive(Debug, Default)]
struct StderrParser {
    section: StderrSection,
    headline: Option<ErrorHeadline>,
    /// Ordinary lines since the headline.
    since: usize,
    /// The last log record of level error.
    last_error_record: Option<ErrorHeadline>,
    /// The last ordinary line.
    last_plain: Option<ErrorHeadline>,
    summary: Option<ErrorHeadline>,
    last_any: Option<ErrorHeadline>,
    npm: Option<NpmError>,
}

impl StderrParser {
    fn push_line(&mut self, at: usize, line: &str) {
        let is_indented = line.starts_with([' ', '\t']);
        // Python draws exception groups with bars.
        let text = line.trim().trim_start_matches(['|', '+']).trim();
        if text.is_empty() {
            return;
        }
        let here = ErrorHeadline { at, text: text.to_owned(), ..ErrorHeadline::default() };
        if let Some(rest) = npm::error_of(text) {
            return self.npm.get_or_insert_with(|| NpmError::new(at)).push_line(rest);
        }
        self.last_any = Some(here.clone());
        if self.section == StderrSection::Goroutines {
            return;
        }
        if text.ends_with("Traceback (most recent call last):") {
            self.section = StderrSection::Traceback;
            return;
        }
        if is_panic(text) {
            return self.on_panic(at, text);
        }
        match std::mem::take(&mut self.section) {
            StderrSection::Traceback if is_traceback_frame(line) => self.section = StderrSection::Traceback,
            StderrSection::Traceback => self.start_headline(here),
            StderrSection::Panic => self.start_headline(here),
            StderrSection::Unfinished if !is_frame(text) => self.append(cause_of(text).unwrap_or(text)),
            StderrSection::Causes if is_indented => {
                self.section = StderrSection::Causes;
                self.add_cause(
                    text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(": "),
                );
            }
            _ => self.classify_line(here, is_indented),
        }
    }

    fn classify_line(&mut self, here: ErrorHeadline, is_indented: bool) {
        let text = here.text.as_str();
        if text.starts_with("goroutine ") && text.ends_with(':') {
            self.section = StderrSection::Goroutines;
        } else if text == "Caused by:" {
            self.section = StderrSection::Causes;
        } else if let Some(cause) = cause_of(text) {
            self.add_cause(cause);
        } else if let Some(code) = code_of(text) {
            if let Some(headline) = &mut self.headline {
                headline.code.get_or_insert_with(|| code.to_owned());
            }
        } else if is_summary(text) {
            self.summary = Some(here);
        } else if is_noise(text) {
        } else if is_headline(text) {
            self.start_headline(here);
        } else if is_frame(text) {
            self.adopt_frames(here.at);
        } else if is_error_record(text) {
            self.since += 1;
            self.last_error_record = Some(here);
        } else {
            self.since += usize::from(!is_indented);
            self.last_plain = Some(here);
        }
    }

    /// Makes a line without a known form a headline, if a stack follows it.
    fn adopt_frames(&mut self, at: usize) {
        if let Some(plain) = self.last_plain.take_if(|plain| plain.at + 1 == at) {
            self.start_headline(plain);
        }
    }

    fn start_headline(&mut self, headline: ErrorHeadline) {
        if headline.text.ends_with(':') {
            self.section = StderrSection::Unfinished;
        }
        (self.headline, self.since) = (Some(headline), 0);
    }

    fn append(&mut self, text: &str) {
        if let Some(headline) = &mut self.headline {
            headline.text = format!("{} {text}", headline.text);
        }
    }

    fn add_cause(&mut self, cause: &str) {
        if let Some(headline) = self.headline.as_mut().filter(|it| !it.text.contains(cause)) {
            headline.causes.push(cause.to_owned());
        }
    }

    fn on_panic(&mut self, at: usize, text: &str) {
        // Up to Rust 1.72 the message was on the same line: `panicked at 'no config', src/main.rs:1:5`.
        let quoted = text.split_once(" panicked at '").and_then(|(_, rest)| rest.rsplit_once("', "));
        match quoted {
            Some((message, _)) => self.start_headline(ErrorHeadline {
                at,
                text: message.to_owned(),
                ..ErrorHeadline::default()
            }),
            None => self.section = StderrSection::Panic,
        }
    }

    fn finish(self) -> Option<CauseLine> {
        let npm = self.npm.map(NpmError::finish);
        let (own, relayed) = match npm {
            Some((headline, true)) => (Some(headline), None),
            Some((headline, false)) => (None, Some(headline)),
            None => (None, None),
        };
        let fresh = self.headline.filter(|_| self.since <= STALE_AFTER);
        let best = own
            .or(fresh)
            .or(self.last_error_record)
            .or(self.last_plain)
            .or(relayed)
            .or(self.summary)
            .or(self.last_any)?;
        Some(CauseLine { at: best.at, text: best.into_text() })
    }
}

impl ErrorHeadline {
    fn into_text(self) -> String {
        let mut text = match self.text.split_once("The promise rejected with the reason ") {
            Some((_, reason)) => {
                format!("unhandled promise rejection: {}", reason.trim_end_matches(['.', ']', '{', ' ']))
            }
            None => self.text.trim_end_matches(" {").to_owned(),
        };
        let whole: usize = self.causes.iter().map(String::len).sum();
        let shown = if text.len() + whole > MAX_CHARS { self.causes.len().saturating_sub(1) } else { 0 };
        for cause in &self.causes[shown..] {
            text = format!("{}: {cause}", text.trim_end_matches([':', '.']));
        }
        if let Some(code) = self.code.filter(|code| !text.contains(code.as_str())) {
            text = format!("{text} ({code})");
        }
        truncate(&text, MAX_CHARS)
    }
}

/// Removes colours. They arrive escaped, because the stderr tail escapes control characters.
pub(crate) fn without_colours(line: &str) -> String {
    let mut parts = line.split("\\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        text.push_str(rest.strip_prefix(['m', 'K', 'G']).unwrap_or(rest));
    }
    text
}

/// Returns whether a line has the form of an error that ends a program.
fn is_headline(text: &str) -> bool {
    let lower = text.to_lowercase();
    let begins = [
        "error:",
        "error[",
        "fatal:",
        "fatal error",
        "panic:",
        "php fatal error:",
        "uncaught ",
        "unhandled exception",
    ];
    begins.iter().any(|begin| lower.starts_with(begin))
        || text.starts_with("× ")
        || text.starts_with("Exception in thread ")
        || is_exception(text)
        // argparse, compilers: `mcp-server-git: error: …`.
        || lower.split_once(": error: ").is_some_and(|(program, _)| !program.contains(' '))
        || text.split_once(": ").is_some_and(|(_, rest)| rest.contains(": ") && is_exception(rest))
}

/// Returns whether a line is an exception: `TypeError: …`, `java.io.IOException: …`, `Error
/// [ERR_MODULE_NOT_FOUND]: …`, `[UnhandledPromiseRejection: …`.
fn is_exception(text: &str) -> bool {
    let text = text.trim_start_matches('[');
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '$'))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let kinds = ["Error", "Exception", "ExceptionGroup", "Interrupt", "Rejection", "Failure"];
    let is_kind =
        kinds.iter().any(|kind| name.ends_with(kind)) && name.starts_with(|c: char| c.is_alphabetic());
    is_kind && (rest.starts_with(": ") || rest.ends_with(':') || rest.starts_with(" ["))
}

fn is_panic(text: &str) -> bool {
    text.starts_with("thread '") && text.contains(" panicked at ")
}

/// Returns whether a line belongs to a Python traceback before the exception; those of exception groups
/// follow bars.
fn is_traceback_frame(line: &str) -> bool {
    let inner = line.trim_start_matches([' ', '|', '+']);
    let is_barred = line.trim_start().starts_with('|');
    if is_barred { line.contains("|   ") || inner.starts_with('^') } else { line.starts_with(' ') }
}

/// Returns whether a line is a stack frame: `at main (x.js:1:1)`, `- /srv/x.js` of a require stack, `0:
/// core::panicking`, `from x.rb:3`.
fn is_frame(text: &str) -> bool {
    let begins = ["at ", "from ", "... ", "- /"];
    let numbered = text.trim_start_matches(|c: char| c.is_ascii_digit());
    begins.iter().any(|begin| text.starts_with(begin))
        || (numbered.len() < text.len() && numbered.starts_with(": "))
}

/// Returns the cause in `cause: …` of uv, `Caused by: …` of Java and anyhow, `╰─▶ …` of miette.
fn cause_of(text: &str) -> Option<&str> {
    ["cause: ", "Caused by: ", "╰─▶ ", "├─▶ "].iter().find_map(|begin| text.strip_prefix(begin))
}

/// Returns the code in `code: 'ECONNREFUSED',` of a Node error.
fn code_of(text: &str) -> Option<&str> {
    let code = text.strip_prefix("code: ")?.trim_end_matches(',');
    code.strip_prefix('\'')?.strip_suffix('\'')
}

/// Returns whether an error only says that there were others.
fn is_summary(text: &str) -> bool {
    let begins = [
        "error: could not compile ",
        "error: aborting due to ",
        "Error: Could not create the Java Virtual Machine",
        "Error: A fatal exception has occurred",
    ];
    begins.iter().any(|begin| text.starts_with(begin))
}

/// Returns whether a line is a log record of level error.
fn is_error_record(text: &str) -> bool {
    const LEVELS: [&str; 6] =
        ["ERROR", "FATAL", "CRITICAL", "level=error", "level=fatal", "\"level\":\"error\""];
    let mut words =
        text.split(|c: char| c.is_whitespace() || matches!(c, '[' | ']' | ':' | '|' | '{' | ',')).take(12);
    LEVELS.iter().any(|level| text.starts_with(level)) || words.any(|word| LEVELS.contains(&word))
}

/// Returns whether programs write a line in any run.
fn is_noise(text: &str) -> bool {
    const BEGINS: [&str; 26] = [
        "Node.js v",
        "Bun v",
        "note: ",
        "stack backtrace:",
        "Require stack:",
        "npm warn ",
        "npm WARN ",
        "npm notice",
        "(Use `node ",
        "(node:",
        "node:internal/",
        "[notice]",
        "[cause]:",
        "exit status ",
        "[signal ",
        "For more information",
        "Run 'docker ",
        "See 'docker ",
        "The above exception was",
        "During handling of the above",
        "Emitted 'error' event",
        "warning: ",
        "hint: ",
        "help: ",
        "throw ",
        "thrown in ",
    ];
    let says_nothing = !text.contains(|c: char| c.is_alphanumeric());
    says_nothing || BEGINS.iter().any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests;
