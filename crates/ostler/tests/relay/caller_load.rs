//! Load of many callers at the pipes of one worker, each with one call in flight.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than any call may take, with the delays of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Id of the `initialize` request; calls have others.
const HELLO: u64 = 0;

/// Size of the range of call numbers of each load.
const RANGE: u64 = 1_000_000;

/// Outcome of a call for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadCallEnd {
    Ok,
    /// It may have run.
    Unknown,
    /// It has not run.
    Unrun,
}

/// Call that has ended.
#[derive(Debug)]
pub(crate) struct EndedCall {
    /// Unique among all calls of the test.
    pub(crate) number: u64,
    pub(crate) caller: u64,
    began: Instant,
    pub(crate) ended: Instant,
    pub(crate) end: LoadCallEnd,
    /// Answer to the caller, unless it is the expected result.
    pub(crate) told: Value,
}

impl EndedCall {
    pub(crate) fn took(&self) -> Duration {
        self.ended - self.began
    }
}

/// Callers that call until [`end`](Self::end).
pub(crate) struct CallerLoad {
    shared: Arc<LoadShared>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

#[derive(Default)]
struct LoadShared {
    state: Mutex<LoadState>,
    changed: Condvar,
}

#[derive(Default)]
struct LoadState {
    under_way: HashMap<u64, (u64, Instant)>,
    ended: Vec<EndedCall>,
    ok: usize,
    is_over: bool,
    has_hung_up: bool,
}

impl CallerLoad {
    /// Starts the worker and this many callers. `place` distinguishes the loads of one test.
    pub(crate) fn start(mut command: Command, place: u64, callers: u64) -> Self {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let pipes = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let shared = Arc::<LoadShared>::default();
        let reading = AnswerReader { shared: Arc::clone(&shared), next: place * RANGE + 1 };
        let reader = std::thread::spawn(move || reading.run(pipes, callers));
        Self { shared, reader: Some(reader), child }
    }

    /// Returns the number of calls that have succeeded.
    pub(crate) fn ok(&self) -> usize {
        self.shared.state.lock().unwrap().ok
    }

    /// Waits until this many more calls have succeeded.
    pub(crate) fn until_ok(&self, more: usize) {
        let wanted = self.ok() + more;
        self.until(&format!("{more} more calls succeed"), |state| state.ok >= wanted);
    }

    /// Waits for a condition, until the timeout.
    fn until(&self, what: &str, is_so: impl Fn(&LoadState) -> bool) {
        let state = self.shared.state.lock().unwrap();
        let waiting = |state: &mut LoadState| !is_so(state) && !state.has_hung_up;
        let (state, late) = self.shared.changed.wait_timeout_while(state, PATIENCE, waiting).unwrap();
        assert!(!late.timed_out(), "{what}: {}", state.shown());
        assert!(is_so(&state), "{what}: the worker hung up: {}", state.shown());
    }

    /// Stops calling; returns the outcomes of all calls, in the order of their ends.
    pub(crate) fn end(mut self) -> Vec<EndedCall> {
        self.shared.state.lock().unwrap().is_over = true;
        self.until("all calls end", |state| state.under_way.is_empty());
        // After the last answer the reader drops the input, and so the worker ends.
        self.reader.take().unwrap().join().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        std::mem::take(&mut self.shared.state.lock().unwrap().ended)
    }
}

impl Drop for CallerLoad {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|exit| exit.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl LoadState {
    /// Returns the state, for the message of a timeout.
    fn shown(&self) -> String {
        let oldest = self.under_way.values().map(|(_, began)| began.elapsed()).max();
        let last = self.ended.last();
        let (ended, under_way) = (self.ended.len(), self.under_way.len());
        format!("{ended} ended, {under_way} under way, the oldest for {oldest:?}, the last was {last:?}")
    }
}

/// Thread that reads answers, and sends the next call after each.
struct AnswerReader {
    shared: Arc<LoadShared>,
    next: u64,
}

impl AnswerReader {
    fn run(mut self, (mut input, lines): (ChildStdin, BufReader<ChildStdout>), callers: u64) {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "crowd", "version": "1"}
        });
        say(&mut input, &json!({"jsonrpc": "2.0", "id": HELLO, "method": "initialize", "params": hello}));
        for line in lines.lines() {
            let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let Some(id) = answer["id"].as_u64() else { continue };
            if id == HELLO {
                assert!(answer["result"].is_object(), "{answer}");
                say(&mut input, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
                (0..callers).for_each(|caller| self.call(&mut input, caller));
                continue;
            }
            let (caller, is_over) = self.take(id, answer);
            match is_over {
                false => self.call(&mut input, caller),
                true if self.shared.state.lock().unwrap().under_way.is_empty() => break,
                true => {}
            }
        }
        self.shared.state.lock().unwrap().has_hung_up = true;
        self.shared.changed.notify_all();
    }

    fn call(&mut self, input: &mut ChildStdin, caller: u64) {
        let id = self.next;
        self.next += 1;
        self.shared.state.lock().unwrap().under_way.insert(id, (caller, Instant::now()));
        let (name, arguments) = asked(id);
        let params = json!({"name": name, "arguments": arguments});
        say(input, &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Records an answer; returns its caller, and whether that was the last call.
    fn take(&self, id: u64, answer: Value) -> (u64, bool) {
        let ended = Instant::now();
        let end = end_of(id, &answer);
        let mut state = self.shared.state.lock().unwrap();
        let (caller, began) = state.under_way.remove(&id).unwrap_or_else(|| panic!("nobody asked: {answer}"));
        let told = if end == LoadCallEnd::Ok { Value::Null } else { answer };
        state.ok += usize::from(end == LoadCallEnd::Ok);
        state.ended.push(EndedCall { number: id, caller, began, ended, end, told });
        self.shared.changed.notify_all();
        (caller, state.is_over)
    }
}

/// Returns the tool and the arguments of a call: some take a while, others do not.
fn asked(number: u64) -> (&'static str, Value) {
    match number % 4 {
        0 => ("fake__echo", json!({"n": number})),
        slow => ("fake__sleep", json!({"n": number, "ms": 10 * slow})),
    }
}

/// Returns the outcome in an answer. Any other content is a defect.
fn end_of(number: u64, answer: &Value) -> LoadCallEnd {
    if let Some(result) = answer.get("result") {
        let (name, arguments) = asked(number);
        let is_own = name != "fake__echo" || result["structuredContent"] == arguments;
        assert!(is_own && result["isError"] == false, "{number}: {answer}");
        return LoadCallEnd::Ok;
    }
    let about = &answer["error"]["data"];
    match (about["code"].as_str(), about["delivery"].as_str()) {
        (Some("outcome-unknown"), _) | (Some("timed-out"), Some("unknown")) => LoadCallEnd::Unknown,
        (Some("timed-out"), Some("not-sent" | "rejected")) => LoadCallEnd::Unrun,
        (Some("server-unavailable" | "overloaded"), None | Some("not-sent" | "rejected")) => {
            LoadCallEnd::Unrun
        }
        _ => panic!("no caller should be told this: {answer}"),
    }
}

fn say(input: &mut ChildStdin, message: &Value) {
    writeln!(input, "{message}").unwrap();
}
