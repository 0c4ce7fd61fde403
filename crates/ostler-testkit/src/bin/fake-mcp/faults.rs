//! The tools that do not behave.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use nix::sys::signal::{Signal, raise};

use crate::perform::Call;
use crate::reply;
use crate::serve::Server;
use crate::tool::{IdPlace, Quirk, Tool, When};

/// Long output is made of pieces of this size, so that its length costs no memory.
const PIECE: usize = 64 << 10;
/// An id no client has given yet.
const FOREIGN_ID: &str = "4000000000000";

/// Runs a tool that goes wrong. Answers given earlier are out before anything breaks.
pub(crate) fn run(server: &Server, call: &Call<'_>, tool: Tool) {
    match tool {
        Tool::Crash { when, once } => crash(server, call, when, once.as_deref()),
        Tool::Exit(code) => {
            server.delivery.flush();
            std::process::exit(code)
        }
        Tool::Stderr(bytes) => {
            server.delivery.flush();
            write_stderr(bytes);
            server.delivery.answer(call.id, call.text("written"));
        }
        Tool::Flood(count) => {
            for number in 1..=count {
                let params = format!(r#"{{"level":"info","data":"flood {number}"}}"#);
                server.delivery.send(&reply::notification("notifications/message", &params));
            }
            server.delivery.answer(call.id, call.text("flooded"));
        }
        Tool::HugeLine { bytes, id, has_newline } => huge_line(server, call, bytes, id, has_newline),
        Tool::Raw(text) => server.delivery.answer(call.id, (text.replace("ID", call.id) + "\n").into_bytes()),
        Tool::Quirk(quirk) => odd_answer(server, call, quirk),
        Tool::StopSelf => {
            server.delivery.flush();
            // A process may always signal itself.
            let _ = raise(Signal::SIGSTOP);
            server.delivery.answer(call.id, call.text("continued"));
        }
        Tool::CloseStdout => server.delivery.close_stdout(),
        // What hangs is not answered; everything else is run by `perform`.
        _ => {}
    }
}

fn crash(server: &Server, call: &Call<'_>, when: When, once: Option<&str>) {
    let answer = call.text("survived");
    let is_first = once.is_none_or(|file| OpenOptions::new().write(true).create_new(true).open(file).is_ok());
    if !is_first {
        return server.delivery.answer(call.id, answer);
    }
    let written = match when {
        When::Before => 0,
        When::Middle => answer.len() / 2,
        When::After => answer.len(),
    };
    // Past delays and shuffling: the bytes must be out when the process ends.
    server.delivery.send(&answer[..written]);
    server.delivery.flush();
    std::process::exit(1)
}

fn write_stderr(bytes: usize) {
    let line = [b"e".repeat(79), b"\n".to_vec()].concat().repeat(PIECE / 80);
    let mut stderr = io::stderr().lock();
    let mut left = bytes;
    while left > 0 {
        let piece = &line[..left.min(line.len())];
        // A reader that went away is not the fault this tool is about.
        if stderr.write_all(piece).is_err() {
            return;
        }
        left -= piece.len();
    }
}

/// One answer line of exactly `bytes` bytes, its newline not counted, unless the frame alone is longer.
fn huge_line(server: &Server, call: &Call<'_>, bytes: usize, place: IdPlace, has_newline: bool) {
    let id = format!(r#""id":{},"#, call.id);
    let (first, last) = match place {
        IdPlace::First => (id, String::new()),
        IdPlace::Last => (String::new(), format!(r#","id":{}"#, call.id)),
        IdPlace::Nowhere => (String::new(), String::new()),
    };
    let result_type = reply::result_type(call.era);
    let head =
        format!(r#"{{"jsonrpc":"2.0",{first}"result":{{{result_type}"content":[{{"type":"text","text":""#);
    let tail = format!(r#""}}],"isError":false}}{last}}}{}"#, if has_newline { "\n" } else { "" });
    let frame = head.len() + tail.len() - usize::from(has_newline);
    let mut left = bytes.saturating_sub(frame);
    let piece = b"x".repeat(PIECE);
    let mut out = server.delivery.outlet.reserve();
    out.push(head.as_bytes());
    while left > 0 {
        let size = left.min(PIECE);
        out.push(&piece[..size]);
        left -= size;
    }
    out.push(tail.as_bytes());
    out.flush();
}

fn odd_answer(server: &Server, call: &Call<'_>, quirk: Quirk) {
    let answer = call.text("odd");
    match quirk {
        Quirk::Garbage => {
            for line in [
                &b"\n"[..],
                b"   \r\n",
                b"INFO ready\n",
                b"\xff\xfe\x80 \xc3\x28\n",
                b"{\"jsonrpc\":\"2.0\",\"id\":\n",
            ] {
                server.delivery.send(line);
            }
        }
        Quirk::Twice => server.delivery.answer(call.id, answer.clone()),
        Quirk::ForeignId => {
            let foreign = Call { id: FOREIGN_ID, era: call.era, params: call.params };
            server.delivery.answer(call.id, foreign.text("odd"));
        }
        Quirk::StringId => {
            let id = reply::quote(call.id);
            let renamed = Call { id: &id, era: call.era, params: call.params };
            return server.delivery.answer(call.id, renamed.text("odd"));
        }
    }
    server.delivery.answer(call.id, answer);
}
