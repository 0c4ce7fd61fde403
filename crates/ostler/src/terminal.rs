//! Terminal: shows a person the events of a call, and asks the questions of its server.
//!
//! Everything is shown on stderr and read from the terminal itself, so that pipes stay free for data. Text of servers
//! is bounded, indented on every line, and its control characters are escaped: it can't pass for Ostler's own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, tcgetpgrp};
use ostler_host::REQUEST_STATE_TTL;
use ostler_host::upstream::ServerRequest;
use ostler_wire::RpcOutcome;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::call_events::{CallEvent, CallEvents};
use crate::cli;
use crate::elicitation::{Elicitation, ElicitationField, ElicitationReply, host_of};
use crate::output::{self, escape_line, print_stderr, prompt};
use crate::signals::CtrlCHold;
use crate::text_table::{truncate, wrap};

/// Timeout of one question: the request state of a modern server is still valid then.
const ANSWER_TIMEOUT: Duration = REQUEST_STATE_TTL.saturating_sub(Duration::from_secs(30));
/// Limit of the questions that one call may ask: a server that asks without end must not keep a person busy.
const MAX_QUESTIONS: u32 = 32;
/// Lines and characters of a server's text that are shown.
const MAX_LINES: usize = 20;
const MAX_TEXT_CHARS: usize = 2000;
/// Characters of a server's label, option or default that are shown.
const MAX_LABEL_CHARS: usize = 80;
/// Options that are shown; the others can be chosen too.
const MAX_SHOWN_OPTIONS: usize = 64;
/// Columns of a server's progress and log that are shown.
const MAX_COLUMNS: usize = 500;
/// Rows of a page's address that are shown: more could push Ostler's warning off the screen.
const MAX_URL_ROWS: usize = 10;
/// Prefix of every line of a server's text, which distinguishes it from Ostler's own.
const INDENT: &str = "  ";
/// Columns of a server's text on a terminal that is narrower still.
const MIN_COLUMNS: usize = 8;

/// Terminal of one command.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Progress rewrites one line; otherwise each message has a line.
    is_rewriting: bool,
    input: Option<TerminalInput>,
    /// Questions that came so far.
    questions: u32,
    /// Ctrl-C has cancelled a question. The next Ctrl-C ends the call, or a server that asks again would take it away.
    was_interrupted: bool,
}

impl Terminal {
    /// Returns the terminal of this process; `None` if nothing that is shown would be visible.
    pub(crate) fn open(shared: &cli::GlobalOptions) -> Option<Self> {
        let is_terminal = io::stderr().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let input = if is_terminal { TerminalInput::open() } else { None };
        // A log on stderr would break the line that is rewritten.
        let is_rewriting = is_terminal && !is_dumb && !shared.verbose;
        (is_terminal || shared.verbose).then_some(Self {
            is_rewriting,
            input,
            questions: 0,
            was_interrupted: false,
        })
    }

    /// Returns whether questions can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        self.input.is_some()
    }

    /// Shows events of a call to a server, and answers its questions, until the future is dropped.
    pub(crate) async fn show_events<T>(&mut self, server: &str, events: &mut CallEvents) -> T {
        while let Some(event) = events.recv().await {
            match event {
                CallEvent::ServerRequest(question) => self.answer_request(server, question).await,
                note => self.show_event(server, &note),
            }
        }
        // The call goes on without events.
        std::future::pending().await
    }

    /// Shows events that arrived together with the result.
    pub(crate) fn show_remaining(&self, server: &str, events: &mut CallEvents) {
        while let Ok(note) = events.try_recv() {
            self.show_event(server, &note);
        }
    }

    fn show_event(&self, server: &str, note: &CallEvent) {
        match note {
            CallEvent::Progress(note) => self.show_progress(server, note),
            CallEvent::Log(note) => show_log(server, note),
            // The server does not wait for it any more.
            CallEvent::ServerRequest(_) => {}
        }
    }

    fn show_progress(&self, server: &str, note: &[u8]) {
        #[derive(Deserialize)]
        struct ProgressNotification {
            progress: f64,
            total: Option<f64>,
            message: Option<String>,
        }
        let Ok(ProgressNotification { progress, total, message }) = serde_json::from_slice(note) else {
            return;
        };
        let short = |number: f64| format!("{:.1$}", number, usize::from(number.fract() != 0.0) * 2);
        let figure = match total {
            Some(total) if total > 0.0 => {
                let percent = (progress / total * 100.0).clamp(0.0, 100.0);
                format!("{}/{} ({percent:.0}%)", short(progress), short(total))
            }
            _ => short(progress),
        };
        let message = message.map(|text| format!(" {}", escape_line(&text))).unwrap_or_default();
        let line = format!("{server}: {figure}{message}");
        if self.is_rewriting {
            output::print_transient(&line)
        } else {
            print_stderr(&wrap_indented(&truncate(&line, Some(MAX_COLUMNS))))
        }
    }

    /// Answers a question of a server that waits for it during the call.
    async fn answer_request(&mut self, server: &str, mut question: ServerRequest) {
        let params = question.params.clone().unwrap_or_else(|| Bytes::from_static(b"{}"));
        let result = tokio::select! {
            result = self.elicit(server, &params) => result,
            () = question.cancelled() => {
                return print_stderr("  the server does not wait for this answer any more");
            }
        };
        question.answer(RpcOutcome::Result(result.into()));
    }

    /// Asks a person the questions of a server; returns the result of its request.
    pub(crate) async fn elicit(&mut self, server: &str, params: &[u8]) -> String {
        self.questions = self.questions.saturating_add(1);
        if self.questions > MAX_QUESTIONS {
            if self.questions == MAX_QUESTIONS + 1 {
                print_stderr(&format!(
                    "`{server}` has asked {MAX_QUESTIONS} questions in this call: further ones are cancelled, \
                     Ctrl-C ends the call"
                ));
            }
            return ElicitationReply::Cancel.result();
        }
        let asked = match Elicitation::parse(params) {
            Ok(asked) => asked,
            Err(why) => {
                print_stderr(&format!("`{server}` asks something that can't be answered here:"));
                print_server_text(&why);
                return ElicitationReply::Cancel.result();
            }
        };
        let Some(input) = &mut self.input else { return ElicitationReply::Cancel.result() };
        let held = (!self.was_interrupted).then(CtrlCHold::claim);
        let interrupted = async {
            match &held {
                Some(held) => held.interrupted().await,
                // Ctrl-C ends the call.
                None => std::future::pending().await,
            }
        };
        let ctrl_c = if self.was_interrupted { "ends the call" } else { "cancels" };
        let reply = tokio::select! {
            reply = timeout(ANSWER_TIMEOUT, ask_person(input, server, &asked, ctrl_c)) => reply.unwrap_or_else(|_| {
                print_stderr("  no answer came in time");
                ElicitationReply::Cancel
            }),
            () = interrupted => {
                self.was_interrupted = true;
                ElicitationReply::Cancel
            }
        };
        match &reply {
            ElicitationReply::Accept(_) => {}
            ElicitationReply::Decline => print_stderr("  declined"),
            ElicitationReply::Cancel if self.was_interrupted => {
                print_stderr("  cancelled; Ctrl-C again ends the call")
            }
            ElicitationReply::Cancel => print_stderr("  cancelled"),
        }
        reply.result()
    }
}

fn show_log(server: &str, note: &[u8]) {
    #[derive(Deserialize)]
    struct LogNotification {
        level: String,
        #[serde(default)]
        data: Value,
    }
    let Ok(LogNotification { level, data }) = serde_json::from_slice(note) else { return };
    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
    let line = format!("{server}: {}: {}", escape_line(&level), escape_line(&text));
    print_stderr(&wrap_indented(&truncate(&line, Some(MAX_COLUMNS))));
}

/// Shows text of a server, line by line.
fn print_server_text(text: &str) {
    let start = start_of(text, MAX_TEXT_CHARS);
    for line in start.lines().take(MAX_LINES) {
        print_server_line(&escape_line(line));
    }
    match text.lines().count().saturating_sub(MAX_LINES) {
        0 if start.len() < text.len() => print_server_line("…"),
        0 => {}
        more => print_server_line(&format!("… {more} more lines")),
    }
}

/// Shows a line of a server's text that is already escaped.
fn print_server_line(line: &str) {
    print_stderr(&format!("{INDENT}{}", wrap_indented(line)));
}

/// Breaks a line at the edge of the terminal and indents the rest: a terminal that breaks it does not indent.
fn wrap_indented(line: &str) -> String {
    let Some(columns) = output::stderr_columns() else { return line.to_owned() };
    let room = columns.saturating_sub(INDENT.len() + 1).max(MIN_COLUMNS);
    wrap(line, room).join(&format!("\n{INDENT}"))
}

/// Breaks the address of a page into rows. Those that continue it are indented further, so that none of them looks like
/// an address. Returns `None` if there are too many.
fn url_rows(url: &str, columns: Option<usize>) -> Option<String> {
    let room =
        columns.map_or(usize::MAX, |columns| columns.saturating_sub(2 * INDENT.len() + 1).max(MIN_COLUMNS));
    let rows = wrap(url, room);
    let text = format!("{INDENT}{}", rows.join(&format!("\n{INDENT}{INDENT}")));
    (rows.len() <= MAX_URL_ROWS).then_some(text)
}

/// Returns a server's text as part of a line, escaped and shortened.
fn label(text: &str) -> String {
    let start = start_of(text, MAX_LABEL_CHARS);
    escape_line(start) + if start.len() < text.len() { "…" } else { "" }
}

/// Returns the first characters of a text.
fn start_of(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Asks a question; `ctrl_c` says what that key does.
async fn ask_person(
    input: &mut TerminalInput,
    server: &str,
    asked: &Elicitation,
    ctrl_c: &str,
) -> ElicitationReply {
    // Input typed before the question is no answer to it.
    input.flush();
    match asked {
        Elicitation::Form { message, fields } => {
            print_stderr(&format!("`{server}` asks:"));
            print_server_text(message);
            fill_form(input, server, fields, ctrl_c).await
        }
        Elicitation::Url { message, url } => {
            let host = host_of(url);
            let Some(rows) = url_rows(url.as_str(), output::stderr_columns()) else {
                print_stderr(&format!("`{server}` asks you to visit a page of {host}:"));
                print_stderr(&format!(
                    "{INDENT}its address has more than {MAX_URL_ROWS} rows, which can deceive"
                ));
                return ElicitationReply::Decline;
            };
            print_stderr(&format!("`{server}` asks you to visit a page of {host}:"));
            print_server_text(message);
            print_stderr(&rows);
            // Repeats the host: the end of an address can look like another one.
            print_stderr(&format!("That is a page of {host}. Ostler does not open it."));
            print_stderr("If you trust that address, open it yourself.");
            match confirm(input, &format!("Did you open the page of `{host}`, or will you? [y/N] "), false)
                .await
            {
                true => ElicitationReply::Accept(None),
                false => ElicitationReply::Decline,
            }
        }
    }
}

async fn fill_form(
    input: &mut TerminalInput,
    server: &str,
    fields: &[ElicitationField],
    ctrl_c: &str,
) -> ElicitationReply {
    let mut content = Map::new();
    if fields.is_empty() {
        return match confirm(input, "Agree? [y/N] ", false).await {
            true => ElicitationReply::Accept(Some(content)),
            false => ElicitationReply::Decline,
        };
    }
    print_stderr(&format!(
        "(Ctrl-D declines, and so does Enter where an answer is required; Ctrl-C {ctrl_c})"
    ));
    for field in fields {
        match ask_value(input, field).await {
            Some(Some(value)) => drop(content.insert(field.name.clone(), value)),
            Some(None) => {}
            None => return ElicitationReply::Decline,
        }
    }
    if fields.len() > 1 && !confirm(input, &format!("Send this to `{server}`? [Y/n] "), true).await {
        return ElicitationReply::Decline;
    }
    ElicitationReply::Accept(Some(content))
}

/// Asks for one value until one is valid; `Some(None)` leaves it out, `None` declines.
async fn ask_value(input: &mut TerminalInput, field: &ElicitationField) -> Option<Option<Value>> {
    if let Some(description) = &field.description {
        print_server_text(description);
    }
    let options = field.options();
    options.iter().take(MAX_SHOWN_OPTIONS).for_each(|option| print_server_line(&label(option)));
    if options.len() > MAX_SHOWN_OPTIONS {
        print_server_line(&format!("… {} more", options.len() - MAX_SHOWN_OPTIONS));
    }
    let optional = if field.is_required { "" } else { ", optional" };
    let default = field.shown_default().map(|value| format!(" [{}]", label(&value))).unwrap_or_default();
    let question = format!("{} ({}{optional}){default}: ", label(field.label()), label(&field.input_hint()));
    let question = format!("{INDENT}{}", wrap_indented(&question));
    loop {
        prompt(&question);
        let typed = input.line().await?;
        if typed.trim().is_empty() {
            return match (&field.default, field.is_required) {
                (Some(value), _) => Some(Some(value.clone())),
                (None, false) => Some(None),
                (None, true) => None,
            };
        }
        match field.parse_input(&typed) {
            Ok(value) => return Some(Some(value)),
            Err(why) => print_stderr(&format!("  {why}")),
        }
    }
}

/// Asks for yes or no; an empty line means the default, and no line at all means no.
async fn confirm(input: &mut TerminalInput, question: &str, default: bool) -> bool {
    loop {
        prompt(question);
        let Some(typed) = input.line().await else { return false };
        match typed.trim().to_lowercase().as_str() {
            "" => return default,
            "y" | "yes" => return true,
            "n" | "no" => return false,
            _ => print_stderr("  answer y or n"),
        }
    }
}

/// Lines that a person types. A thread reads them, one for each request: reading a terminal can't be cancelled.
#[derive(Debug)]
struct TerminalInput {
    terminal: File,
    line_requests: std::sync::mpsc::SyncSender<()>,
    lines: mpsc::Receiver<Option<String>>,
    /// A line was requested and has not come.
    is_reading: bool,
}

impl TerminalInput {
    /// Opens the terminal of this process; `None` without one, and in the background of a shell.
    fn open() -> Option<Self> {
        let stdin = || {
            let stdin = io::stdin();
            stdin.is_terminal().then(|| stdin.as_fd().try_clone_to_owned().ok().map(File::from)).flatten()
        };
        let terminal = File::open("/dev/tty").ok().or_else(stdin)?;
        if tcgetpgrp(&terminal).is_ok_and(|foreground| foreground != getpgrp()) {
            return None;
        }
        let mut reader = BufReader::new(terminal.try_clone().ok()?);
        // One line is requested at a time, so neither end ever waits for capacity.
        let (wanted, wishes) = std::sync::mpsc::sync_channel(1);
        let (typed, lines) = mpsc::channel(1);
        // It ends with the process, in the middle of a read if need be.
        std::thread::spawn(move || {
            while wishes.recv().is_ok() {
                let mut line = String::new();
                let read = reader.read_line(&mut line).ok().filter(|read| *read > 0);
                let line = read.map(|_| line.trim_end_matches(['\n', '\r']).to_owned());
                if typed.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Some(Self { terminal, line_requests: wanted, lines, is_reading: false })
    }

    /// Discards input that was typed and not read.
    fn flush(&mut self) {
        let _ = tcflush(&self.terminal, FlushArg::TCIFLUSH);
        while self.lines.try_recv().is_ok() {
            self.is_reading = false;
        }
    }

    /// Waits for a line; `None` if there is none (Ctrl-D).
    async fn line(&mut self) -> Option<String> {
        if !self.is_reading {
            self.line_requests.send(()).ok()?;
            self.is_reading = true;
        }
        let line = self.lines.recv().await?;
        self.is_reading = false;
        line.inspect(|_| output::close_prompt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_indented_where_it_goes_on_and_refused_where_it_fills_the_screen() {
        assert_eq!(url_rows("https://a.example/x", Some(80)).unwrap(), "  https://a.example/x");
        let hostile = |rows: usize| {
            let start = "https://evil.example/";
            format!("{start}{}https://github.com/login/device", "a".repeat(75 * rows - start.len()))
        };
        let shown = url_rows(&hostile(9), Some(80)).unwrap();
        let rows: Vec<&str> = shown.lines().collect();
        assert_eq!((rows.len(), rows[9]), (10, "    https://github.com/login/device"));
        assert!(rows.iter().all(|row| row.len() < 80));
        assert_eq!(rows.concat().replace(' ', ""), hostile(9), "it can be put together");
        assert_eq!(url_rows(&hostile(10), Some(80)), None);
        assert_eq!(url_rows(&hostile(2), Some(0)), None);
    }
}
