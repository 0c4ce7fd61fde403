//! Forwarding between client and daemon in both directions, and the change from one daemon to the next.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::{Frame, LineSplitter};

use super::client_session::{ClientLineAction, StdioClientSession, refuse_oversize};
use super::daemon_finder::{DaemonConnection, DaemonFinder};
use crate::failure::CommandFailure;
use crate::output::{Style, print_stderr};
use crate::stdio_failure;

/// Bytes per read.
const CHUNK: usize = 16 << 10;
/// Poll interval for the next daemon while no message waits for it.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// State that both directions share.
struct ForwardingShared {
    state: Mutex<ForwardingState>,
    changed: Condvar,
}

struct ForwardingState {
    session: StdioClientSession,
    /// Writer to the daemon, while one is attached.
    daemon: Option<Arc<DaemonWriter>>,
    /// Upper bound on a message to the daemon, or to the last one.
    max_message: usize,
}

/// Writer to a daemon.
struct DaemonWriter {
    stream: TcpStream,
    /// Held while a line is written, so that lines do not mix.
    write_lock: Mutex<()>,
}

impl DaemonWriter {
    fn of(connection: &DaemonConnection) -> Result<Arc<Self>, CommandFailure> {
        let stream = connection.reader.get_ref().try_clone().map_err(CommandFailure::Machine)?;
        Ok(Arc::new(Self { stream, write_lock: Mutex::default() }))
    }

    /// Sends one message.
    fn send(&self, line: &[u8]) -> io::Result<()> {
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&whole)
    }

    /// Closes the write direction. The daemon finishes its requests, and then closes the connection.
    fn shutdown_write(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl ForwardingShared {
    fn state(&self) -> MutexGuard<'_, ForwardingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut ForwardingState) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }
}

/// Forwards messages in both directions until the client has closed its input and has its responses.
pub(super) fn run(mut finder: DaemonFinder, first: DaemonConnection) -> Result<(), CommandFailure> {
    let daemon = Some(DaemonWriter::of(&first)?);
    let state = Mutex::new(ForwardingState {
        session: StdioClientSession::new(),
        daemon,
        max_message: first.max_message,
    });
    let shared = Arc::new(ForwardingShared { state, changed: Condvar::new() });
    let reading = Arc::clone(&shared);
    std::thread::spawn(move || read_client(&reading));
    let mut connection = first;
    loop {
        let url = connection.url.clone();
        read_daemon(&shared, connection)?;
        let cause = format!("the daemon at {url} ended before it answered");
        let (is_orderly, answers, is_over) = shared.change(|state| {
            state.daemon = None;
            let is_orderly = state.session.is_draining();
            (is_orderly, state.session.handle_connection_lost(&cause), state.session.is_finished())
        });
        write_client(&answers)?;
        if is_over {
            return Ok(());
        }
        connection = match next_connection(&shared, &mut finder, is_orderly)? {
            Some(connection) => connection,
            None => return Ok(()),
        };
        print_stderr(&format!("the daemon at {url} has ended; attached to the one at {}", connection.url));
        let daemon = DaemonWriter::of(&connection)?;
        shared.change(|state| {
            state.daemon = Some(Arc::clone(&daemon));
            state.max_message = connection.max_message;
            state.session.resume();
        });
        // Another thread sends: the daemon may block until its own lines are read.
        let resuming = Arc::clone(&shared);
        std::thread::spawn(move || send_backlog(&resuming, &daemon));
    }
}

/// Returns the next daemon; `None` if the client leaves before it needs one. After an orderly end no daemon is started
/// until a message waits for it: the operator wanted that end.
fn next_connection(
    shared: &ForwardingShared,
    finder: &mut DaemonFinder,
    mut is_orderly: bool,
) -> Result<Option<DaemonConnection>, CommandFailure> {
    loop {
        let (is_wanted, is_over) = {
            let state = shared.state();
            (state.session.wants_daemon(), state.session.is_finished())
        };
        if is_over {
            return Ok(None);
        }
        if !is_wanted && is_orderly && !finder.is_daemon_running() {
            let state = shared.state();
            drop(shared.changed.wait_timeout(state, IDLE_POLL_INTERVAL));
            continue;
        }
        let failure = match finder.next() {
            Ok(connection) => return Ok(Some(connection)),
            Err(failure) => failure,
        };
        let error = stdio_failure::error_object(&failure);
        let (answers, is_done) = shared
            .change(|state| (state.session.fail_pending(error.as_bytes()), state.session.is_finished()));
        write_client(&answers)?;
        // A refusal is permanent; other failures may be repaired before the client's next request.
        if is_done
            || !matches!(
                failure,
                CommandFailure::Unreachable { .. } | CommandFailure::DaemonNotStarted { .. }
            )
        {
            return Err(failure);
        }
        print_stderr(&failure.render(Style::stderr()));
        is_orderly = true;
    }
}

/// Sends the session's state and the queue to the new daemon.
fn send_backlog(shared: &ForwardingShared, daemon: &Arc<DaemonWriter>) {
    let is_current =
        |state: &ForwardingState| state.daemon.as_ref().is_some_and(|now| Arc::ptr_eq(now, daemon));
    loop {
        let line = shared.change(|state| if is_current(state) { state.session.next_to_send() } else { None });
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
    if is_current(&state) && state.session.must_finish_daemon() {
        daemon.shutdown_write();
    }
}

/// Reads the client's messages and sends or queues them. A message above the daemon's limit is refused here, and never
/// kept.
fn read_client(shared: &ForwardingShared) {
    let mut stdin = io::stdin().lock();
    let mut lines = LineSplitter::new(shared.state().max_message);
    let mut is_open = true;
    while is_open {
        is_open = matches!(read_some(&mut stdin, &mut lines), Ok(1..));
        let longest = shared.state().max_message;
        lines.set_cap(longest);
        while let Some(frame) = lines.next_frame().or_else(|| if is_open { None } else { lines.finish() }) {
            match frame {
                Frame::Line(line) => forward_client_line(shared, &line),
                Frame::Oversize(oversize) => {
                    drop(write_client(&refuse_oversize(oversize.request_id, longest)))
                }
            }
        }
    }
    shared.change(|state| {
        if state.session.finish_client()
            && let Some(daemon) = &state.daemon
        {
            daemon.shutdown_write();
        }
    });
}

fn forward_client_line(shared: &ForwardingShared, line: &Bytes) {
    let mut state = shared.state();
    while !state.session.has_room() {
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let daemon = match state.session.handle_client_line(line) {
        ClientLineAction::Send => state.daemon.clone(),
        ClientLineAction::Queue => None,
    };
    drop(state);
    match daemon {
        // A failed write means that the daemon is lost, which the other direction reports.
        Some(daemon) => drop(daemon.send(line)),
        None => shared.changed.notify_all(),
    }
}

/// Reads the daemon's messages and passes them on, until it closes the connection.
fn read_daemon(shared: &ForwardingShared, connection: DaemonConnection) -> Result<(), CommandFailure> {
    let mut reader = connection.reader;
    // The daemon bounds its messages.
    let mut lines = LineSplitter::new(usize::MAX / 2);
    let mut out = Vec::new();
    while let Ok(1..) = read_some(&mut reader, &mut lines) {
        while let Some(Frame::Line(line)) = lines.next_frame() {
            let (told, may_leave) =
                shared.change(|state| (state.session.handle_daemon_line(&line), state.session.may_detach()));
            if told.is_shown {
                out.extend_from_slice(&line);
                out.push(b'\n');
            }
            out.extend_from_slice(&told.more);
            told.notice.iter().for_each(|notice| print_stderr(&format!("warning: {notice}")));
            if may_leave {
                let _ = reader.get_ref().shutdown(Shutdown::Write);
            }
        }
        write_client(&out)?;
        out.clear();
        // The memory of one huge response must not stay allocated for the rest of the connection.
        out.shrink_to(CHUNK);
    }
    Ok(())
}

/// Reads the bytes that are there.
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

/// Writes whole lines to the client, and flushes: a message must not wait for the next.
fn write_client(lines: &[u8]) -> Result<(), CommandFailure> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(lines).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandFailure::OutputClosed),
        Err(error) => Err(CommandFailure::Output(error)),
    }
}
