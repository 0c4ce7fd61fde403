//! stdin and stdout as one connection.
//!
//! Each has a thread that copies. Reading stdin can't be interrupted, and a
//! thread that nobody waits for keeps the program from ending as little as a
//! client that has stopped reading.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Socket;
use std::sync::mpsc;
use std::time::Duration;

use tokio::net::UnixStream;

use crate::failure::CommandFailure;
use crate::stdio::copy;

/// How long the last answers may take to leave.
const RESPONSES_TIMEOUT: Duration = Duration::from_secs(2);

/// What becomes of the output.
pub(super) struct StdoutCopy(mpsc::Receiver<io::Result<()>>);

/// The two of them as one connection; it ends when stdin does.
pub(super) fn open() -> io::Result<(UnixStream, StdoutCopy)> {
    let (near, far) = Socket::pair()?;
    near.set_nonblocking(true)?;
    let (incoming, outgoing) = (far.try_clone()?, far);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        // Whatever ends it, there is no more to come.
        let _ = copy(&mut io::stdin().lock(), &mut &incoming);
        let _ = incoming.shutdown(Shutdown::Write);
    })?;
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("stdout".into()).spawn(move || {
        let copied = copy(&mut &outgoing, &mut io::stdout().lock());
        // Nobody reads the answers, so nobody needs them.
        let _ = outgoing.shutdown(Shutdown::Both);
        let _ = tell.send(copied);
    })?;
    Ok((UnixStream::from_std(near)?, StdoutCopy(told)))
}

impl StdoutCopy {
    /// Waits until everything has left, but not for ever.
    pub(super) fn finish(&self) -> Result<(), CommandFailure> {
        match self.0.recv_timeout(RESPONSES_TIMEOUT) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandFailure::OutputClosed),
            Ok(Err(error)) => Err(CommandFailure::Output(error)),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}
