//! Output of the program: data on stdout, messages on stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use ostler_core::error::needs_escape;

use crate::failure::CommandFailure;
use crate::time_text::log_time;

/// Data has gone to stdout. Programs can't parse a document that is followed by a second one.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Returns whether the arguments of this process ask for JSON, valid or not.
pub(crate) fn is_json_wanted() -> bool {
    let typed = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    typed.filter_map(|arg| arg.into_string().ok()).any(|arg| arg == "--json" || arg.starts_with("--json="))
}

/// Writes data to stdout.
pub(crate) fn print(text: &str) -> Result<(), CommandFailure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout unchanged.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CommandFailure> {
    HAS_PRINTED.store(true, Ordering::Relaxed);
    begin_line();
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CommandFailure::OutputClosed,
        _ => CommandFailure::Output(error),
    })
}

/// Writes indented JSON to stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CommandFailure::Output(error.into()))?;
    print(&(text + "\n"))
}

/// Prints a message on stderr. A failure to write is ignored: there is no other place to report it.
pub(crate) fn print_stderr(text: &str) {
    begin_line();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a message with the time before it, for a process that lives long.
pub(crate) fn print_timed(text: &str) {
    let time = log_time(SystemTime::now(), io::stderr().is_terminal());
    print_stderr(&format!("{} {text}", Style::stderr().paint(Tint::Faint, &time)));
}

/// The last line of the terminal is transient: the next message replaces it.
static HAS_TRANSIENT_LINE: AtomicBool = AtomicBool::new(false);
/// The cursor stands behind a prompt.
static HAS_OPEN_PROMPT: AtomicBool = AtomicBool::new(false);

/// Prints a transient line on the terminal, which the next message replaces.
pub(crate) fn print_transient(text: &str) {
    let text = crate::text_table::truncate(text, stderr_columns().map(|columns| columns.saturating_sub(1)));
    let mut stderr = io::stderr().lock();
    HAS_TRANSIENT_LINE.store(true, Ordering::Relaxed);
    let _ = write!(stderr, "\r{text}\x1b[K").and_then(|()| stderr.flush());
}

/// Moves the cursor to the beginning of an empty line.
fn begin_line() {
    if HAS_TRANSIENT_LINE.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
    if HAS_OPEN_PROMPT.swap(false, Ordering::Relaxed) {
        let _ = writeln!(io::stderr().lock());
    }
}

/// Records that the answer to a prompt has moved the cursor to a new line.
pub(crate) fn close_prompt() {
    HAS_OPEN_PROMPT.store(false, Ordering::Relaxed);
}

/// Prints a prompt on stderr; the answer is typed on the same line.
pub(crate) fn prompt(text: &str) {
    begin_line();
    HAS_OPEN_PROMPT.store(true, Ordering::Relaxed);
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Returns the columns of the terminal, or `COLUMNS`; without either, lines have no limit.
pub(crate) fn stdout_columns() -> Option<usize> {
    let wished = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let actual = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    wished.or_else(actual).filter(|width| *width > 0)
}

/// Returns the columns of the terminal that stderr is; `None` if it is none.
pub(crate) fn stderr_columns() -> Option<usize> {
    let actual = terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0));
    // A terminal that does not report its size is assumed to have the usual 80 columns.
    actual.or_else(|| io::stderr().is_terminal().then_some(80))
}

/// Choice of colours for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    is_coloured: bool,
}

/// Meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tint {
    Plain,
    Heading,
    Label,
    Faint,
    Success,
    Warning,
    Error,
    /// A removed part of a text.
    Removed,
    /// An added part of a text.
    Added,
}

impl Style {
    /// Returns the style for text on stdout.
    pub(crate) fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// Returns the style for text on stderr.
    pub(crate) fn stderr() -> Self {
        Self::of(&io::stderr())
    }

    /// Returns a style with colours, for any stream.
    #[cfg(test)]
    pub(crate) fn painted() -> Self {
        Self { is_coloured: true }
    }

    /// Returns a style without colours, for any stream.
    pub(crate) fn plain() -> Self {
        Self { is_coloured: false }
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { is_coloured: stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb }
    }

    /// Returns whether the style has colours.
    pub(crate) fn has_colours(self) -> bool {
        self.is_coloured
    }

    /// Returns the text in its colour.
    pub(crate) fn paint(self, tint: Tint, text: &str) -> String {
        let code = match tint {
            Tint::Plain => return text.to_owned(),
            Tint::Heading => "1",
            Tint::Label => "36",
            Tint::Faint => "2",
            Tint::Success => "32",
            Tint::Warning => "33",
            Tint::Error => "1;31",
            Tint::Removed => "9;31",
            Tint::Added => "4;32",
        };
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Escapes text of servers for one line of a terminal: characters that control it or change how others are shown.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text, needs_escape)
}

/// Escapes text of servers that may have lines: it can't move the cursor, change colours or titles, reach the
/// clipboard, or reorder the text around it.
pub(crate) fn escape_text(text: &str) -> String {
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    escape(&text.replace("\r\n", "\n"), |c| is_control(c) || is_bidi_control(c))
}

/// Returns whether a character sets the direction of its neighbours: the property `Bidi_Control` of Unicode.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, is_strange: impl Fn(char) -> bool) -> String {
    let escape = |c: char| if is_strange(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Limit of the names that a message lists, so that it stays readable.
const MAX_NAMES: usize = 20;

/// Returns `` `a`, `b`, `c` ``, and the number of those left out.
pub(crate) fn quote_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let (shown, more) = names.split_at(names.len().min(MAX_NAMES));
    let shown = shown.iter().map(|name| format!("`{}`", escape_line(name))).collect::<Vec<_>>().join(", ");
    if more.is_empty() { shown } else { format!("{shown} and {} more", more.len()) }
}

/// Returns `1 server`, `2 servers`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a size for people: `812 B`, `12.3 KB`.
pub(crate) fn size(bytes: usize) -> String {
    const UNITS: [&str; 3] = ["KB", "MB", "GB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes / 100;
    let mut unit = 0;
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1000;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Returns the label of the stream that a line of a server came from, and the line without its prefix.
pub(crate) fn split_stream_label(line: &str) -> (&'static str, &str) {
    line.strip_prefix("stdout: ").map_or(("stderr:", line), |rest| ("stdout:", rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_server_has_one_label() {
        assert_eq!(split_stream_label("stdout: hello"), ("stdout:", "hello"));
        assert_eq!(split_stream_label("hello"), ("stderr:", "hello"));
    }

    #[test]
    fn text_of_servers_can_not_move_the_cursor() {
        assert_eq!(escape_line("a\u{1b}[2Jb\r\u{202e}c é 日"), "a\\u{1b}[2Jb\\r\\u{202e}c é 日");
    }

    #[test]
    fn lines_of_servers_stay_lines_and_nothing_else() {
        assert_eq!(
            escape_text("a\r\n\tb\n\u{1b}]0;x\u{7}\rc\u{9b}2J"),
            "a\n\tb\n\\u{1b}]0;x\\u{7}\\rc\\u{9b}2J"
        );
    }

    #[test]
    fn text_of_servers_can_not_reorder_what_a_terminal_shows() {
        let text = "rm \u{202e}txt.exe\u{202c} \u{2066}a\u{2069} \u{200f}שלום 日本 👩\u{200d}💻";
        let shown = "rm \\u{202e}txt.exe\\u{202c} \\u{2066}a\\u{2069} \\u{200f}שלום 日本 👩\u{200d}💻";
        assert_eq!(escape_text(text), shown);
    }

    #[test]
    fn sizes_are_short() {
        let table = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (12_345, "12.3 KB"),
            (999_999, "999.9 KB"),
            (1_000_000, "1.0 MB"),
            (5_000_000_000_000, "5000.0 GB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn colours_stay_out_of_plain_text() {
        assert_eq!(Style::plain().paint(Tint::Error, "x"), "x");
        assert_eq!(Style { is_coloured: true }.paint(Tint::Error, "x"), "\x1b[1;31mx\x1b[0m");
    }
}
