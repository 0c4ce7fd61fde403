//! HTTP server: accepts connections, bounded in number and in time.
//!
//! ```text
//! listener ─ accept ─ admit: free slot, else evict an idle or stalled connection, else reserved slot, else 503
//!                       │
//!                     task: hyper on a metered socket ─ throttle ─ service
//! sweep ─ evicts connections that are idle, slow or do not read
//! ```

mod activity;
mod connection;
mod connection_table;
mod metered_socket;
mod service;
mod throttle;
mod tracked_body;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::connection::HttpConnection;
use self::connection_table::ConnectionTable;
use self::metered_socket::MeteredSocket;
use self::throttle::Throttle;
use self::tracked_body::{RequestGuard, TrackedBody};
use crate::http::{ClientConnection, LongStream, Payload, Peer, no_connection, raw_no_connection};

pub use self::activity::{Activity, ActivityGuard};
pub(crate) use self::connection::{BacklogShare, StreamBacklog};
pub use self::service::{HttpService, OnRefusal, Privilege, PrivilegeCheck, RefusalHandler};

/// Connections that are accepted in a row before other tasks get their turn.
const MAX_ACCEPTS_IN_ROW: u32 = 16;

/// Delay before the next accept after a failure, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of the buffer for the head of a request; hyper accepts no less than 8 KiB.
const MAX_HEAD: usize = 64 * 1024;

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Maximum number of connections. One more evicts the longest idle one, or one whose client does not read; if there
    /// is none it is refused with 503.
    pub max_connections: usize,
    /// Connections above `max_connections`, for requests that the service declares
    /// [privileged](HttpService::with_privileged). Other requests get 503 on them.
    pub reserved_connections: usize,
    /// Timeout for the head of a request, from its first byte or from the beginning of the connection.
    pub header_timeout: Duration,
    /// Idle timeout of a connection between requests.
    pub idle_timeout: Duration,
    /// Timeout of a client that leaves its answer unread, or takes less of it than 8 KiB per second.
    pub write_timeout: Duration,
    /// Bytes of large answers that clients may leave unread together. Above it the connections that have taken nothing
    /// for longest are evicted.
    pub max_unread: usize,
    /// Timeout of requests in flight when the program shuts down.
    pub drain_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 1_024,
            reserved_connections: 0,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            max_unread: 128 << 20,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Serves over HTTP/1.1 until `shutdown`. Then it accepts no more connections, ends long streams at once, and gives
/// requests in flight the drain timeout to finish.
///
/// The peer's address is in the extensions of every request to its routes as
/// [`ConnectInfo`](axum::extract::ConnectInfo). Upgrades work; an upgraded connection belongs to its handler, and the
/// shutdown does not wait for it.
pub async fn serve(
    listener: TcpListener,
    service: impl Into<HttpService>,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()>,
) {
    let table = Arc::new(ConnectionTable::new(&limits));
    let (stopping, stop) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval((limits.header_timeout / 4).max(Duration::from_millis(10)));
    let service = Arc::new(service.into());
    let throttle = Throttle::new();
    let full = raw_no_connection();
    let mut accepts = 0;
    let mut shutdown = pin!(shutdown);
    loop {
        if accepts == MAX_ACCEPTS_IN_ROW {
            accepts = 0;
            tokio::task::yield_now().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted.inspect(|_| accepts += 1) {
                Ok((stream, address)) => match table.admit() {
                    Some(connection) => {
                        let (service, throttle) = (Arc::clone(&service), Arc::clone(&throttle));
                        let client = Arc::new(ClientConnection::new(connection.backlog()));
                        let peer = Peer { address: Some(address), connection: Some(client) };
                        let task = ConnectionTask { service, throttle, connection, peer, stop: stop.clone() };
                        connections.spawn(task.run(stream));
                    }
                    None => refuse_connection(stream, &full),
                },
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = sweep.tick() => table.sweep(Instant::now(), &limits),
            Some(_) = connections.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let drained = tokio::time::timeout(limits.drain_timeout, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        connections.shutdown().await;
    }
}

fn refuse_connection(stream: TcpStream, full: &[u8]) {
    // A client that can't even take this in its empty buffer learns it by the end of the connection.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(full);
    }
}

/// Task of one connection.
struct ConnectionTask {
    service: Arc<HttpService>,
    throttle: Arc<Throttle>,
    connection: Arc<HttpConnection>,
    peer: Peer,
    stop: watch::Receiver<bool>,
}

/// End of a connection.
enum ConnectionEnd {
    Immediate,
    /// After its requests in flight.
    GracefulShutdown,
}

impl ConnectionTask {
    async fn run(self, stream: TcpStream) {
        // Answers are small and awaited: waiting for more to send only adds latency.
        let _ = stream.set_nodelay(true);
        let (connection, mut stop) = (Arc::clone(&self.connection), self.stop.clone());
        let socket = TokioIo::new(MeteredSocket::new(stream, Arc::clone(&connection)));
        let task = Arc::new(self);
        let service = service_fn(move |request| Arc::clone(&task).respond(request));
        let served =
            http1::Builder::new().max_buf_size(MAX_HEAD).serve_connection(socket, service).with_upgrades();
        let mut served = pin!(served);
        let told = stop.clone();
        let mut leaving = pin!(async {
            tokio::select! {
                () = connection.evicted() => ConnectionEnd::Immediate,
                _ = stop.wait_for(|stop| *stop) => ConnectionEnd::GracefulShutdown,
            }
        });
        let mut is_awaited = false;
        let leaving = poll_fn(|cx| {
            // Polled once before a busy client has used up this task's budget, so that the change wakes the task; then
            // only if there is a change.
            let has_news = connection.is_evicted() || told.has_changed().unwrap_or(true);
            if (!is_awaited || has_news)
                && let Poll::Ready(leaving) = leaving.as_mut().poll(cx)
            {
                return Poll::Ready(leaving);
            }
            is_awaited = true;
            // Errors of a connection concern its client alone.
            served.as_mut().poll(cx).map(|_| ConnectionEnd::Immediate)
        });
        if let ConnectionEnd::Immediate = leaving.await {
            return;
        }
        served.as_mut().graceful_shutdown();
        tokio::select! {
            _ = served => {}
            () = connection.evicted() => {}
        }
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<TrackedBody>, Infallible> {
        let Some(mut busy) = self.connection.begin_request() else {
            // The connection was just evicted.
            let mut refusal = Response::new(TrackedBody::untracked(Payload::whole("")));
            *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(refusal);
        };
        if self.connection.is_reserved() && !self.connection.may_serve(self.service.privilege_of(&request)) {
            // Not counted as in flight: a client that does not take it can be evicted for the next.
            return Ok(no_connection().map(TrackedBody::untracked));
        }
        self.throttle.wait_for_turn().await;
        let active = self.service.track_activity(&request);
        let response = self.service.handle(self.peer.clone(), request).await;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            busy.detach();
            return Ok(response.map(TrackedBody::untracked));
        }
        busy.set_serves_caller(response.body().serves_caller());
        let stop = response.extensions().get::<LongStream>().map(|_| self.stop.clone());
        let under_way = RequestGuard::new(busy, active);
        Ok(response.map(|body| TrackedBody::new(body, under_way, stop)))
    }
}
