//! stdin and stdout as one connection.
//!
//! A thread copies each direction, because reading stdin can't be interrupted. Neither thread is joined, so neither a
//! blocked read nor a client that has stopped reading keeps the program from ending.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Socket;
use std::sync::mpsc;
use std::time::Duration;

use tokio::net::UnixStream;

use crate::failure::CommandFailure;
use crate::stdio::copy;

/// Timeout of the last responses.
const RESPONSES_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of copying to stdout.
pub(super) struct StdoutCopy(mpsc::Receiver<io::Result<()>>);

/// Opens both as one connection; it ends when stdin does.
pub(super) fn open() -> io::Result<(UnixStream, StdoutCopy)> {
    let (near, far) = Socket::pair()?;
    near.set_nonblocking(true)?;
    let (incoming, outgoing) = (far.try_clone()?, far);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        // An error ends the input like its end.
        let _ = copy(&mut io::stdin().lock(), &mut &incoming);
        let _ = incoming.shutdown(Shutdown::Write);
    })?;
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("stdout".into()).spawn(move || {
        let copied = copy(&mut &outgoing, &mut io::stdout().lock());
        // The client has stopped reading, so responses are of no use.
        let _ = outgoing.shutdown(Shutdown::Both);
        let _ = tell.send(copied);
    })?;
    Ok((UnixStream::from_std(near)?, StdoutCopy(told)))
}

impl StdoutCopy {
    /// Waits until everything is written, but not for ever.
    pub(super) fn finish(&self) -> Result<(), CommandFailure> {
        match self.0.recv_timeout(RESPONSES_TIMEOUT) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(CommandFailure::OutputClosed),
            Ok(Err(error)) => Err(CommandFailure::Output(error)),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}
