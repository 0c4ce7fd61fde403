//! The two directions of a client's bytes, and the change from one daemon to the next.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Frame, LineSplitter};

use super::conversation::{Conversation, FromClient, refuse_oversize};
use super::find::{Connection, Finder};
use crate::failure::Failure;
use crate::output::{Style, tell};
use crate::refusal;

/// How much is read at once.
const CHUNK: usize = 16 << 10;
/// How often it is looked for the next daemon while nothing waits for it.
const IDLE_LOOK: Duration = Duration::from_millis(500);

/// What both directions share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    conversation: Conversation,
    /// The way to the daemon, while there is one.
    daemon: Option<Arc<ToDaemon>>,
    /// The longest message that the daemon takes, or took if there is none.
    max_message: usize,
}

/// The way to a daemon.
struct ToDaemon {
    stream: TcpStream,
    /// Held while a line is written, so that no other gets into it.
    line: Mutex<()>,
}

impl ToDaemon {
    fn of(connection: &Connection) -> Result<Arc<Self>, Failure> {
        let stream = connection.reader.get_ref().try_clone().map_err(Failure::Machine)?;
        Ok(Arc::new(Self { stream, line: Mutex::default() }))
    }

    /// Sends one message.
    fn send(&self, line: &[u8]) -> io::Result<()> {
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        let _turn = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&whole)
    }

    /// Says that nothing more will be said. The daemon finishes what it was asked, and then hangs up.
    fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }
}

/// Copies messages both ways until the client has said all that it had to say and has its answers.
pub(super) fn run(mut finder: Finder, first: Connection) -> Result<(), Failure> {
    let daemon = Some(ToDaemon::of(&first)?);
    let state =
        Mutex::new(State { conversation: Conversation::new(), daemon, max_message: first.max_message });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    let reading = Arc::clone(&shared);
    std::thread::spawn(move || read_client(&reading));
    let mut connection = first;
    loop {
        let url = connection.url.clone();
        read_daemon(&shared, connection)?;
        let cause = format!("the daemon at {url} ended before it answered");
        let (is_orderly, answers, is_over) = shared.change(|state| {
            state.daemon = None;
            let is_orderly = state.conversation.is_leaving();
            (is_orderly, state.conversation.lost(&cause), state.conversation.is_over())
        });
        write_client(&answers)?;
        if is_over {
            return Ok(());
        }
        connection = match next(&shared, &mut finder, is_orderly)? {
            Some(connection) => connection,
            None => return Ok(()),
        };
        tell(&format!("the daemon at {url} has ended; attached to the one at {}", connection.url));
        let daemon = ToDaemon::of(&connection)?;
        shared.change(|state| {
            state.daemon = Some(Arc::clone(&daemon));
            state.max_message = connection.max_message;
            state.conversation.resume();
        });
        // Not by this thread: the daemon may have to be heard before it takes everything.
        let resuming = Arc::clone(&shared);
        std::thread::spawn(move || resume(&resuming, &daemon));
    }
}

/// The next daemon; none if the client leaves before it needs one. After an orderly end none is started until
/// something waits for it: whoever ended the daemon wanted that.
fn next(shared: &Shared, finder: &mut Finder, mut is_orderly: bool) -> Result<Option<Connection>, Failure> {
    loop {
        let (is_wanted, is_over) = {
            let state = shared.state();
            (state.conversation.wants_daemon(), state.conversation.is_over())
        };
        if is_over {
            return Ok(None);
        }
        if !is_wanted && is_orderly && !finder.is_there() {
            let state = shared.state();
            drop(shared.changed.wait_timeout(state, IDLE_LOOK));
            continue;
        }
        let failure = match finder.next() {
            Ok(connection) => return Ok(Some(connection)),
            Err(failure) => failure,
        };
        let error = refusal::error_object(&failure);
        let (answers, is_done) = shared
            .change(|state| (state.conversation.give_up(error.as_bytes()), state.conversation.is_over()));
        write_client(&answers)?;
        // What was refused is refused again; the rest may be mended before the client's next request.
        if is_done || !matches!(failure, Failure::Unreachable { .. } | Failure::Stillborn { .. }) {
            return Err(failure);
        }
        tell(&failure.render(Style::stderr()));
        is_orderly = true;
    }
}

/// Sends what the new daemon has to know, and what waits for it.
fn resume(shared: &Shared, daemon: &Arc<ToDaemon>) {
    let is_current = |state: &State| state.daemon.as_ref().is_some_and(|now| Arc::ptr_eq(now, daemon));
    loop {
        let line =
            shared.change(|state| if is_current(state) { state.conversation.next_to_send() } else { None });
        match line {
            Some(line) => {
                if daemon.send(&line).is_err() {
                    return;
                }
            }
            None => break,
        }
    }
    let state = shared.state();
    if is_current(&state) && state.conversation.is_said() {
        daemon.finish();
    }
}

/// Reads the client and sends what it says, or keeps it for the next daemon. A message that the daemon would not take is
/// refused here, and never held.
fn read_client(shared: &Shared) {
    let mut stdin = io::stdin().lock();
    let mut lines = LineSplitter::new(shared.state().max_message);
    let mut is_open = true;
    while is_open {
        is_open = matches!(read_some(&mut stdin, &mut lines), Ok(1..));
        let longest = shared.state().max_message;
        lines.set_cap(longest);
        while let Some(frame) = lines.next_frame().or_else(|| if is_open { None } else { lines.finish() }) {
            match frame {
                Frame::Line(line) => take(shared, &line),
                Frame::Oversize(oversize) => drop(write_client(&refuse_oversize(oversize.request, longest))),
            }
        }
    }
    shared.change(|state| {
        if state.conversation.client_is_done()
            && let Some(daemon) = &state.daemon
        {
            daemon.finish();
        }
    });
}

fn take(shared: &Shared, line: &Bytes) {
    let mut state = shared.state();
    while !state.conversation.has_room() {
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let daemon = match state.conversation.client_said(line) {
        FromClient::Send => state.daemon.clone(),
        FromClient::Kept => None,
    };
    drop(state);
    match daemon {
        // A daemon that does not take it is lost, which its other direction tells.
        Some(daemon) => drop(daemon.send(line)),
        None => shared.changed.notify_all(),
    }
}

/// Reads the daemon and passes on what it says, until it hangs up.
fn read_daemon(shared: &Shared, connection: Connection) -> Result<(), Failure> {
    let mut reader = connection.reader;
    // The daemon bounds what it sends.
    let mut lines = LineSplitter::new(usize::MAX / 2);
    let mut out = Vec::new();
    while let Ok(1..) = read_some(&mut reader, &mut lines) {
        while let Some(Frame::Line(line)) = lines.next_frame() {
            let (told, may_leave) = shared
                .change(|state| (state.conversation.daemon_said(&line), state.conversation.may_leave()));
            if told.is_shown {
                out.extend_from_slice(&line);
                out.push(b'\n');
            }
            out.extend_from_slice(&told.more);
            told.notice.iter().for_each(|notice| tell(&format!("warning: {notice}")));
            if may_leave {
                let _ = reader.get_ref().shutdown(Shutdown::Write);
            }
        }
        write_client(&out)?;
        out.clear();
        // One huge answer must not stay allocated for the rest of the connection.
        out.shrink_to(CHUNK);
    }
    Ok(())
}

/// Reads what there is.
fn read_some(from: &mut impl Read, lines: &mut LineSplitter) -> io::Result<usize> {
    let mut buffer = [0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(read) => {
                lines.buffer().extend_from_slice(&buffer[..read]);
                return Ok(read);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes whole lines to the client, at once: a message must not wait for the next.
fn write_client(lines: &[u8]) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(lines).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        Err(error) => Err(Failure::Output(error)),
    }
}
