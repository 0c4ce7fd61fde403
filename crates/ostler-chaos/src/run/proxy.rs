//! Proxy between two parties whose connections can be cut, stalled and half-closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes copied at once: few, so that a cut falls into messages.
const CHUNK: usize = 16 << 10;

/// Upper bound of the far side's time to accept.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(2);

/// State that holds for all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ProxyState {
    is_stalled: bool,
    /// Connections that were opened under a lower number are cut.
    cut: u64,
    /// Connections below this number send nothing more to the far side.
    half_closed: u64,
}

/// A proxy with a port of its own.
#[derive(Debug, Clone)]
pub(crate) struct CuttableProxy {
    pub(crate) port: u16,
    state: Arc<watch::Sender<ProxyState>>,
}

impl CuttableProxy {
    pub(crate) async fn start(far: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(watch::Sender::new(ProxyState::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { continue };
                tokio::spawn(forward(near, far, shared.subscribe()));
            }
        });
        Ok(Self { port, state })
    }

    /// Ends every connection at once.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cut += 1);
    }

    /// Ends the direction to the far side on every connection; the other direction stays open.
    pub(crate) fn half_close(&self) {
        self.state.send_modify(|state| state.half_closed += 1);
    }

    /// Stops all bytes in both directions, or lets them flow again.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.state.send_modify(|state| state.is_stalled = is_stalled);
    }
}

async fn forward(near: TcpStream, far: u16, state: watch::Receiver<ProxyState>) {
    let Ok(Ok(far)) = tokio::time::timeout(ACCEPT_TIMEOUT, TcpStream::connect(("127.0.0.1", far))).await
    else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let outbound = copy_until_cut(near_in, far_out, state.clone(), true);
    let inbound = copy_until_cut(far_in, near_out, state, false);
    tokio::join!(outbound, inbound);
}

/// Copies one direction until it ends or is cut.
async fn copy_until_cut(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<ProxyState>,
    can_half_close: bool,
) {
    let began = *state.borrow_and_update();
    let is_over =
        |now: &ProxyState| now.cut != began.cut || (can_half_close && now.half_closed != began.half_closed);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            over = state.wait_for(|now| is_over(now)) => { drop(over); break }
        };
        let Ok(read @ 1..) = read else { break };
        let clear = state.wait_for(|now| is_over(now) || !now.is_stalled).await.map(|now| is_over(&now));
        if clear.unwrap_or(true) {
            break;
        }
        let written = tokio::select! {
            written = to.write_all(&buffer[..read]) => written.is_ok(),
            over = state.wait_for(|now| is_over(now)) => { drop(over); false }
        };
        if !written {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]

    use super::*;

    async fn pair() -> (CuttableProxy, TcpStream, TcpStream) {
        let far = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = CuttableProxy::start(far.local_addr().unwrap().port()).await.unwrap();
        let near = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
        let far = far.accept().await.unwrap().0;
        (proxy, near, far)
    }

    #[tokio::test]
    async fn what_is_cut_ends_on_both_sides() {
        let (proxy, mut near, mut far) = pair().await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        proxy.cut();
        assert!(far.read_u8().await.is_err() && near.read_u8().await.is_err());
    }

    #[tokio::test]
    async fn a_half_closed_way_still_brings_answers() {
        let (proxy, mut near, mut far) = pair().await;
        near.write_all(b"x").await.unwrap();
        far.read_u8().await.unwrap();
        proxy.half_close();
        assert!(far.read_u8().await.is_err());
        far.write_all(b"y").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'y');
    }
}
