//! A way between two parties that can be cut, held up and closed on one side.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes that are carried at once: small, so that a cut falls into messages.
const CHUNK: usize = 16 << 10;

/// How long the far side may take to accept.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(2);

/// What holds for all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ProxyState {
    is_stalled: bool,
    /// Connections that were opened under a lower number are over.
    cut: u64,
    /// Those say nothing more towards the far side.
    half_closed: u64,
}

/// Listens on a port of its own and passes everything on.
#[derive(Debug, Clone)]
pub(crate) struct CuttableProxy {
    pub(crate) port: u16,
    state: Arc<watch::Sender<ProxyState>>,
}

impl CuttableProxy {
    pub(crate) async fn start(far: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let weather = Arc::new(watch::Sender::new(ProxyState::default()));
        let accepting = Arc::clone(&weather);
        tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { continue };
                tokio::spawn(forward(near, far, accepting.subscribe()));
            }
        });
        Ok(Self { port, state: weather })
    }

    /// Ends every connection at once.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|weather| weather.cut += 1);
    }

    /// Nothing more goes towards the far side on any connection; what comes back does.
    pub(crate) fn half_close(&self) {
        self.state.send_modify(|weather| weather.half_closed += 1);
    }

    /// Nothing moves, in no direction, until it is let go.
    pub(crate) fn set_stalled(&self, is_held: bool) {
        self.state.send_modify(|weather| weather.is_stalled = is_held);
    }
}

async fn forward(near: TcpStream, far: u16, weather: watch::Receiver<ProxyState>) {
    let Ok(Ok(far)) = tokio::time::timeout(ACCEPT_TIMEOUT, TcpStream::connect(("127.0.0.1", far))).await
    else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let there = copy_until_cut(near_in, far_out, weather.clone(), true);
    let back = copy_until_cut(far_in, near_out, weather, false);
    tokio::join!(there, back);
}

/// Carries one direction until it ends or is cut.
async fn copy_until_cut(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<ProxyState>,
    may_be_halved: bool,
) {
    let began = *weather.borrow_and_update();
    let is_over =
        |now: &ProxyState| now.cut != began.cut || (may_be_halved && now.half_closed != began.half_closed);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            over = weather.wait_for(|now| is_over(now)) => { drop(over); break }
        };
        let Ok(read @ 1..) = read else { break };
        let clear = weather.wait_for(|now| is_over(now) || !now.is_stalled).await.map(|now| is_over(&now));
        if clear.unwrap_or(true) {
            break;
        }
        let written = tokio::select! {
            written = to.write_all(&buffer[..read]) => written.is_ok(),
            over = weather.wait_for(|now| is_over(now)) => { drop(over); false }
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
