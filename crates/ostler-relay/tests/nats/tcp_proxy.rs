//! A way to a server that can be held and cut while the server stays up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a gate does with what clients send.
#[derive(Clone, Copy, PartialEq)]
enum HoldableProxyMode {
    Open,
    Held,
}

/// A way to a server.
pub(crate) struct HoldableProxy {
    port: u16,
    way: Arc<watch::Sender<(HoldableProxyMode, usize)>>,
    connections: Arc<AtomicUsize>,
}

impl HoldableProxy {
    /// A gate before a server, open.
    pub(crate) async fn in_front_of(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap_or_else(|error| panic!("{error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let way = Arc::new(watch::Sender::new((HoldableProxyMode::Open, 0)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (heard, count) = (way.subscribe(), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(client, server, heard.clone()));
            }
        });
        Self { port, way, connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Connections that were made through it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// From now on nothing of a client reaches the server.
    pub(crate) fn hold(&self) {
        self.way.send_modify(|way| way.0 = HoldableProxyMode::Held);
    }

    /// Cuts all connections, and lets new ones through.
    pub(crate) fn cut(&self) {
        self.way.send_modify(|way| *way = (HoldableProxyMode::Open, way.1 + 1));
    }
}

async fn forward(client: TcpStream, server: u16, mut way: watch::Receiver<(HoldableProxyMode, usize)>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let cuts = way.borrow().1;
    let mut held = way.clone();
    let up = async {
        let mut buffer = vec![0; 65_536];
        loop {
            let _ = held.wait_for(|(way, _)| *way == HoldableProxyMode::Open).await;
            let Ok(length @ 1..) = from_client.read(&mut buffer).await else { return };
            // Whatever was read just before it was held has not left either.
            if held.borrow().0 == HoldableProxyMode::Held {
                return std::future::pending().await;
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        _ = way.wait_for(|(_, now)| *now != cuts) => {}
    }
}
