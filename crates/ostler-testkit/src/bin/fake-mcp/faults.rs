//! Tools that misbehave.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use nix::sys::signal::{Signal, raise};

use crate::call_tool::AdmittedCall;
use crate::response;
use crate::server::FakeServer;
use crate::tool::{AnswerTiming, BrokenAnswer, IdPosition, ToolCall};

/// Long output is written in pieces of this size, so that its length costs no memory.
const PIECE: usize = 64 << 10;
/// An id that no client uses.
const FOREIGN_ID: &str = "4000000000000";

/// Runs a tool that misbehaves. Earlier answers are flushed before anything breaks.
pub(crate) fn run(server: &FakeServer, call: &AdmittedCall<'_>, tool: ToolCall) {
    match tool {
        ToolCall::Crash { when, once } => crash(server, call, when, once.as_deref()),
        ToolCall::Exit(code) => {
            server.output.flush();
            std::process::exit(code)
        }
        ToolCall::Stderr(bytes) => {
            server.output.flush();
            write_stderr(bytes);
            server.output.send_answer(call.id, call.text("written"));
        }
        ToolCall::Flood(count) => {
            for number in 1..=count {
                let params = format!(r#"{{"level":"info","data":"flood {number}"}}"#);
                server.output.send(&response::notification("notifications/message", &params));
            }
            server.output.send_answer(call.id, call.text("flooded"));
        }
        ToolCall::HugeLine { bytes, id, has_newline } => huge_line(server, call, bytes, id, has_newline),
        ToolCall::Raw(text) => {
            server.output.send_answer(call.id, (text.replace("ID", call.id) + "\n").into_bytes())
        }
        ToolCall::Broken(fault) => broken_answer(server, call, fault),
        ToolCall::StopSelf => {
            server.output.flush();
            // A process may always signal itself.
            let _ = raise(Signal::SIGSTOP);
            server.output.send_answer(call.id, call.text("continued"));
        }
        ToolCall::CloseStdout => server.output.close_stdout(),
        // `hang` never answers; every other tool is run by `call_tool`.
        _ => {}
    }
}

fn crash(server: &FakeServer, call: &AdmittedCall<'_>, when: AnswerTiming, once: Option<&str>) {
    let answer = call.text("survived");
    let is_first = once.is_none_or(|file| OpenOptions::new().write(true).create_new(true).open(file).is_ok());
    if !is_first {
        return server.output.send_answer(call.id, answer);
    }
    let written = match when {
        AnswerTiming::Before => 0,
        AnswerTiming::Middle => answer.len() / 2,
        AnswerTiming::After => answer.len(),
    };
    // Bypasses delays and shuffling: the bytes must be out when the process ends.
    server.output.send(&answer[..written]);
    server.output.flush();
    std::process::exit(1)
}

fn write_stderr(bytes: usize) {
    let line = [b"e".repeat(79), b"\n".to_vec()].concat().repeat(PIECE / 80);
    let mut stderr = io::stderr().lock();
    let mut left = bytes;
    while left > 0 {
        let piece = &line[..left.min(line.len())];
        // A closed stderr is not the fault of this tool.
        if stderr.write_all(piece).is_err() {
            return;
        }
        left -= piece.len();
    }
}

/// Writes one answer line of exactly `bytes` bytes, its newline not counted, unless the frame alone
/// is longer.
fn huge_line(
    server: &FakeServer,
    call: &AdmittedCall<'_>,
    bytes: usize,
    position: IdPosition,
    has_newline: bool,
) {
    let id = format!(r#""id":{},"#, call.id);
    let (first, last) = match position {
        IdPosition::First => (id, String::new()),
        IdPosition::Last => (String::new(), format!(r#","id":{}"#, call.id)),
        IdPosition::Absent => (String::new(), String::new()),
    };
    let result_type = response::result_type(call.era);
    let head =
        format!(r#"{{"jsonrpc":"2.0",{first}"result":{{{result_type}"content":[{{"type":"text","text":""#);
    let tail = format!(r#""}}],"isError":false}}{last}}}{}"#, if has_newline { "\n" } else { "" });
    let frame = head.len() + tail.len() - usize::from(has_newline);
    let mut left = bytes.saturating_sub(frame);
    let piece = b"x".repeat(PIECE);
    let mut out = server.output.stdout.reserve();
    out.push(head.as_bytes());
    while left > 0 {
        let size = left.min(PIECE);
        out.push(&piece[..size]);
        left -= size;
    }
    out.push(tail.as_bytes());
    out.flush();
}

fn broken_answer(server: &FakeServer, call: &AdmittedCall<'_>, fault: BrokenAnswer) {
    let answer = call.text("odd");
    match fault {
        BrokenAnswer::Garbage => {
            for line in [
                &b"\n"[..],
                b"   \r\n",
                b"INFO ready\n",
                b"\xff\xfe\x80 \xc3\x28\n",
                b"{\"jsonrpc\":\"2.0\",\"id\":\n",
            ] {
                server.output.send(line);
            }
        }
        BrokenAnswer::Twice => server.output.send_answer(call.id, answer.clone()),
        BrokenAnswer::ForeignId => {
            let foreign = AdmittedCall { id: FOREIGN_ID, era: call.era, params: call.params };
            server.output.send_answer(call.id, foreign.text("odd"));
        }
        BrokenAnswer::StringId => {
            let id = response::quote(call.id);
            let renamed = AdmittedCall { id: &id, era: call.era, params: call.params };
            return server.output.send_answer(call.id, renamed.text("odd"));
        }
    }
    server.output.send_answer(call.id, answer);
}
