//! TCP proxy that can hold or cut connections while the server stays up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Treatment of the bytes that clients send.
#[derive(Clone, Copy, PartialEq)]
enum HoldableProxyMode {
    Open,
    Held,
}

/// Proxy in front of a server.
pub(crate) struct HoldableProxy {
    port: u16,
    mode: Arc<watch::Sender<(HoldableProxyMode, usize)>>,
    connections: Arc<AtomicUsize>,
}

impl HoldableProxy {
    /// Starts a proxy in front of a server, open.
    pub(crate) async fn in_front_of(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap_or_else(|error| panic!("{error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let mode_sender = Arc::new(watch::Sender::new((HoldableProxyMode::Open, 0)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (mode, count) = (mode_sender.subscribe(), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(client, server, mode.clone()));
            }
        });
        Self { port, mode: mode_sender, connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the number of connections made through the proxy.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Holds everything that clients send from now on.
    pub(crate) fn hold(&self) {
        self.mode.send_modify(|mode| mode.0 = HoldableProxyMode::Held);
    }

    /// Cuts all connections and lets new ones through.
    pub(crate) fn cut(&self) {
        self.mode.send_modify(|mode| *mode = (HoldableProxyMode::Open, mode.1 + 1));
    }
}

async fn forward(client: TcpStream, server: u16, mut mode: watch::Receiver<(HoldableProxyMode, usize)>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let cuts = mode.borrow().1;
    let mut held = mode.clone();
    let upload = async {
        let mut buffer = vec![0; 65_536];
        loop {
            let _ = held.wait_for(|(mode, _)| *mode == HoldableProxyMode::Open).await;
            let Ok(length @ 1..) = from_client.read(&mut buffer).await else { return };
            // Bytes read just before the hold have not left either.
            if held.borrow().0 == HoldableProxyMode::Held {
                return std::future::pending().await;
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = upload => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        _ = mode.wait_for(|(_, now)| *now != cuts) => {}
    }
}
