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
const PATIENCE: Duration = Duration::from_secs(2);

/// What holds for all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Weather {
    is_held: bool,
    /// Connections that were opened under a lower number are over.
    cut: u64,
    /// Those say nothing more towards the far side.
    half: u64,
}

/// Listens on a port of its own and passes everything on.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    weather: Arc<watch::Sender<Weather>>,
}

impl Proxy {
    pub(crate) async fn start(far: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let weather = Arc::new(watch::Sender::new(Weather::default()));
        let accepting = Arc::clone(&weather);
        tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { continue };
                tokio::spawn(pass(near, far, accepting.subscribe()));
            }
        });
        Ok(Self { port, weather })
    }

    /// Ends every connection at once.
    pub(crate) fn cut(&self) {
        self.weather.send_modify(|weather| weather.cut += 1);
    }

    /// Nothing more goes towards the far side on any connection; what comes back does.
    pub(crate) fn half_close(&self) {
        self.weather.send_modify(|weather| weather.half += 1);
    }

    /// Nothing moves, in no direction, until it is let go.
    pub(crate) fn hold(&self, is_held: bool) {
        self.weather.send_modify(|weather| weather.is_held = is_held);
    }
}

async fn pass(near: TcpStream, far: u16, weather: watch::Receiver<Weather>) {
    let Ok(Ok(far)) = tokio::time::timeout(PATIENCE, TcpStream::connect(("127.0.0.1", far))).await else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let there = carry(near_in, far_out, weather.clone(), true);
    let back = carry(far_in, near_out, weather, false);
    tokio::join!(there, back);
}

/// Carries one direction until it ends or is cut.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    may_be_halved: bool,
) {
    let began = *weather.borrow_and_update();
    let is_over = |now: &Weather| now.cut != began.cut || (may_be_halved && now.half != began.half);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            over = weather.wait_for(|now| is_over(now)) => { drop(over); break }
        };
        let Ok(read @ 1..) = read else { break };
        let clear = weather.wait_for(|now| is_over(now) || !now.is_held).await.map(|now| is_over(&now));
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

    async fn pair() -> (Proxy, TcpStream, TcpStream) {
        let far = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy::start(far.local_addr().unwrap().port()).await.unwrap();
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
