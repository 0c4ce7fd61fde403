//! The serve loop: connections in, bounded in number and in time.
//!
//! ```text
//! listener ─ accept ─ a seat, or the longest idle connection leaves, or a reserved seat, or 503
//!                       │
//!                     task: hyper on a watched socket ─ door ─ router
//! sweep ─ connections that idle, dawdle or do not read leave
//! ```

mod body;
mod door;
mod seat;
mod site;
mod socket;

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

use self::body::Guarded;
use self::door::Door;
use self::seat::{Seat, Seats};
use self::socket::Watched;
use super::long::LongStream;
use super::{Origin, refuse};

pub use self::site::{OnRefusal, Privilege, Privileged, Site};

/// Connections that are accepted in a row, before what is under way has its turn.
const ACCEPTS: u32 = 16;

/// Before the next try when no connection can be accepted, as when there are
/// no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Room for the head of a request, and the least that hyper takes.
const HEAD: usize = 64 * 1024;

/// What connections may do.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once. One more makes the longest idle one leave; if none
    /// idles it is refused with 503.
    pub max_connections: usize,
    /// Connections beyond these, for requests that the site says are
    /// [privileged](Site::with_privileged). Others get 503 on them.
    pub reserved_connections: usize,
    /// How long the head of a request may take, from its first byte or from
    /// the beginning of the connection.
    pub header_timeout: Duration,
    /// How long a connection may stay open between requests.
    pub idle_timeout: Duration,
    /// How long a client may leave what we say unread, or take less of it than
    /// 8 KiB in a second.
    pub write_timeout: Duration,
    /// Bytes of large answers that clients may leave unread together. Beyond it
    /// those leave that have taken nothing for longest.
    pub max_unread: usize,
    /// How long requests may go on when the program shuts down.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1_024,
            reserved_connections: 0,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            max_unread: 128 << 20,
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves a site over HTTP/1.1 until `shutdown`. Then nothing is accepted any
/// more, streams that last end at once, and requests under way get the time to
/// finish that the limits allow.
///
/// The peer's address is in the extensions of every request to its routes as
/// [`ConnectInfo`](axum::extract::ConnectInfo). Upgrades work; an upgraded connection is its handler's
/// and is not waited for.
pub async fn serve(
    listener: TcpListener,
    site: impl Into<Site>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let seats = Arc::new(Seats::new(&limits));
    let (stopping, stop) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval((limits.header_timeout / 4).max(Duration::from_millis(10)));
    let site = Arc::new(site.into());
    let door = Door::new();
    let full = refuse::full();
    let mut accepts = 0;
    let mut shutdown = pin!(shutdown);
    loop {
        if accepts == ACCEPTS {
            accepts = 0;
            tokio::task::yield_now().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted.inspect(|_| accepts += 1) {
                Ok((stream, peer)) => match seats.take() {
                    Some(seat) => {
                        let (site, door) = (Arc::clone(&site), Arc::clone(&door));
                        let origin = Origin { peer: Some(peer), connection: Some(Arc::default()) };
                        let connection = Connection { site, door, seat, origin, stop: stop.clone() };
                        connections.spawn(connection.run(stream));
                    }
                    None => turn_away(stream, &full),
                },
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = sweep.tick() => seats.sweep(Instant::now(), &limits),
            Some(_) = connections.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let drained =
        tokio::time::timeout(limits.drain, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        connections.shutdown().await;
    }
}

fn turn_away(stream: TcpStream, full: &[u8]) {
    // A client that can't even take this in its empty buffer learns it by the end of the connection.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(full);
    }
}

struct Connection {
    site: Arc<Site>,
    door: Arc<Door>,
    seat: Arc<Seat>,
    origin: Origin,
    stop: watch::Receiver<bool>,
}

/// How a connection ends.
enum Leaving {
    Now,
    /// After what it has begun.
    InOrder,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and awaited: waiting for more to send only costs time.
        let _ = stream.set_nodelay(true);
        let (seat, mut stop) = (Arc::clone(&self.seat), self.stop.clone());
        let socket = TokioIo::new(Watched::new(stream, Arc::clone(&seat)));
        let connection = Arc::new(self);
        let service = service_fn(move |request| Arc::clone(&connection).respond(request));
        let served =
            http1::Builder::new().max_buf_size(HEAD).serve_connection(socket, service).with_upgrades();
        let mut served = pin!(served);
        let told = stop.clone();
        let mut leaving = pin!(async {
            tokio::select! {
                () = seat.evicted() => Leaving::Now,
                _ = stop.wait_for(|stop| *stop) => Leaving::InOrder,
            }
        });
        let mut is_awaited = false;
        let leaving = poll_fn(|cx| {
            // Looked at once, before a busy client has used up this task's turn, so that it
            // wakes the task; then only if it has something to say.
            let has_news = seat.is_evicted() || told.has_changed().unwrap_or(true);
            if (!is_awaited || has_news)
                && let Poll::Ready(leaving) = leaving.as_mut().poll(cx)
            {
                return Poll::Ready(leaving);
            }
            is_awaited = true;
            // What goes wrong on a connection is its client's affair.
            served.as_mut().poll(cx).map(|_| Leaving::Now)
        });
        if let Leaving::Now = leaving.await {
            return;
        }
        served.as_mut().graceful_shutdown();
        tokio::select! {
            _ = served => {}
            () = seat.evicted() => {}
        }
    }

    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Guarded>, Infallible> {
        let Some(guard) = self.seat.begin() else {
            // The connection was just told to leave.
            let mut refusal = Response::new(Guarded::empty());
            *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(refusal);
        };
        if self.seat.is_reserved() && !self.seat.may_ask(self.site.privilege_of(&request)) {
            // Not counted as a user: a client that does not take it makes room for the next.
            return Ok(refuse::no_connection().map(|body| Guarded::new(body, None, None)));
        }
        self.door.pass().await;
        let response = self.site.answer(self.origin.clone(), request).await;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            guard.stay();
            return Ok(response.map(|body| Guarded::new(body, None, None)));
        }
        let stop = response.extensions().get::<LongStream>().map(|_| self.stop.clone());
        Ok(response.map(|body| Guarded::new(body, Some(guard), stop)))
    }
}
