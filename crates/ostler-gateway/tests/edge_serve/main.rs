//! HTTP server under clients that behave badly.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that fails fails the test that took it")]

#[path = "../edge_http/world.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod world;

use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ostler_gateway::{Activity, ConnectionLimits, GatewayOptions, HttpService, Privilege};
use ostler_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use world::{PATIENCE, Request, World};

fn valid_request() -> Request {
    Request::modern("tools/list", "1")
}

async fn world_with_limits(limits: ConnectionLimits) -> World {
    World::with(GatewayOptions::default(), limits).await
}

/// Waits for the other side to close, and returns the bytes it sent before.
async fn read_until_closed(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A connection may also be reset, which is an end as well.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it is closed");
    String::from_utf8(said).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_client_works_beside_two_thousand_idle_connections() {
    let world =
        world_with_limits(ConnectionLimits { max_connections: 256, ..ConnectionLimits::default() }).await;
    let mut idle = Vec::new();
    for at in 0..2_000 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        if at % 2 == 0 {
            // A head that never ends.
            let _ = stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").await;
        }
        idle.push(stream);
        if at % 100 == 0 {
            assert_eq!(world.send(valid_request()).await.status, 200, "with {at} idle connections");
        }
    }
    let open = || {
        let is_open = |stream: &&TcpStream| {
            // No byte was ever sent on them, so only an end can be read.
            matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        idle.iter().filter(is_open).count()
    };
    eventually("all but the last are closed", PATIENCE, || open() <= 256).await;
    assert_eq!(world.send(valid_request()).await.status, 200);
}

#[tokio::test]
async fn a_connection_that_works_is_not_made_to_leave() {
    let world =
        world_with_limits(ConnectionLimits { max_connections: 1, ..ConnectionLimits::default() }).await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let mut streaming = world.connect().await;
    streaming.start(Request::new("GET", "/mcp").in_session(&session)).await;
    assert_eq!(streaming.head().await.status, 200);
    let mut refused = TcpStream::connect(world.address).await.unwrap();
    let said = read_until_closed(&mut refused).await;
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("\r\nretry-after: 1\r\n"), "{said}");
    let body: serde_json::Value = serde_json::from_str(said.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["error"]["data"]["code"], "overloaded", "{said}");
    assert_eq!(body["error"]["data"]["retryAfterMs"], 1_000);
    drop(streaming);
    let freed = tokio::time::timeout(PATIENCE, async {
        loop {
            let mut stream = TcpStream::connect(world.address).await.unwrap();
            let text = valid_request().with("Connection", "close").text(world.address);
            let _ = stream.write_all(text.as_bytes()).await;
            if read_until_closed(&mut stream).await.starts_with("HTTP/1.1 200 ") {
                return;
            }
        }
    });
    freed.await.expect("its place is free again");
}

#[tokio::test]
async fn of_connections_that_idle_the_longest_idle_one_makes_room() {
    let world =
        world_with_limits(ConnectionLimits { max_connections: 3, ..ConnectionLimits::default() }).await;
    let mut first = world.connect().await;
    let mut second = world.connect().await;
    let mut third = world.connect().await;
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
    let mut fourth = world.connect().await;
    assert_eq!(fourth.send(valid_request()).await.status, 200);
    read_until_closed(&mut first.stream).await;
    // It is no longer the longest idle one.
    assert_eq!(second.send(valid_request()).await.status, 200);
    let mut fifth = world.connect().await;
    assert_eq!(fifth.send(valid_request()).await.status, 200);
    read_until_closed(&mut third.stream).await;
    for client in [&mut second, &mut fourth, &mut fifth] {
        assert_eq!(client.send(valid_request()).await.status, 200);
    }
}

/// Returns whether no request is in flight.
fn is_idle(activity: &Activity) -> bool {
    let idle = std::pin::pin!(activity.idle_for(Duration::ZERO));
    idle.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test]
async fn a_request_is_activity_until_the_last_byte_of_its_answer_unless_its_path_is_left_out() {
    let activity = Activity::new();
    let counted = Arc::clone(&activity);
    let world = World::serving(GatewayOptions::default(), ConnectionLimits::default(), |gateway| {
        let seen = Arc::clone(&counted);
        let look = get(move || {
            let seen = Arc::clone(&seen);
            async move { is_idle(&seen).to_string() }
        });
        let routes = Router::new().route("/look", look.clone()).route("/healthz", look);
        HttpService::new(gateway.clone()).with_routes(routes).with_activity(counted, &["/healthz"])
    })
    .await;
    let until_idle = || tokio::time::timeout(PATIENCE, activity.idle_for(Duration::ZERO));
    assert_eq!(world.send(Request::new("GET", "/look")).await.body, "false");
    until_idle().await.expect("the answer has left");
    assert_eq!(world.send(Request::new("GET", "/healthz")).await.body, "true");
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    until_idle().await.expect("the answer has left");
    let mut streaming = world.connect().await;
    streaming.start(Request::new("GET", "/mcp").in_session(&session)).await;
    assert_eq!(streaming.head().await.status, 200);
    assert!(!is_idle(&activity), "the stream lasts");
    drop(streaming);
    until_idle().await.expect("the stream is over");
}

#[tokio::test]
async fn privileged_requests_are_answered_while_all_connections_work() {
    let limits =
        ConnectionLimits { max_connections: 1, reserved_connections: 2, ..ConnectionLimits::default() };
    let world = World::serving(GatewayOptions::default(), limits, |gateway| {
        let routes = Router::new().route("/admin", get(async || "ok"));
        let privileged = |uri: &http::Uri, headers: &http::HeaderMap| match uri.path() {
            "/admin" if headers.contains_key("x-admin") => Privilege::Full,
            "/admin" => Privilege::Prelude,
            _ => Privilege::None,
        };
        HttpService::new(gateway.clone()).with_routes(routes).with_privileged(Arc::new(privileged))
    })
    .await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let mut streaming = world.connect().await;
    streaming.start(Request::new("GET", "/mcp").in_session(&session)).await;
    assert_eq!(streaming.head().await.status, 200);

    let admin = || Request::new("GET", "/admin").with("x-admin", "1");
    let refused = world.send(valid_request()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("connection"), Some("close"));
    // Clients that send nothing, or only requests without a credential, hold no reserved connection.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
        let mut asking = world.connect().await;
        assert_eq!(asking.send(Request::new("GET", "/admin")).await.status, 200);
        assert_eq!(world.send(admin()).await.status, 200);
    }
    let mut repeating = world.connect().await;
    assert_eq!(repeating.send(Request::new("GET", "/admin")).await.status, 200);
    assert_eq!(repeating.send(Request::new("GET", "/admin")).await.status, 503);
    read_until_closed(&mut repeating.stream).await;
    let mut operator = world.connect().await;
    for _ in 0..3 {
        assert_eq!(operator.send(admin()).await.status, 200);
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let limits =
        ConnectionLimits { header_timeout: Duration::from_millis(50), ..ConnectionLimits::default() };
    let world = world_with_limits(limits).await;
    let mut silent = world.connect().await;
    let mut slow = world.connect().await;
    assert_eq!(slow.send(valid_request()).await.status, 200);
    slow.stream.write_all(b"POST /mcp").await.unwrap();
    read_until_closed(&mut silent.stream).await;
    read_until_closed(&mut slow.stream).await;
}

#[tokio::test]
async fn a_connection_between_requests_is_closed_after_its_time() {
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let world = world_with_limits(limits).await;
    let mut client = world.connect().await;
    let start = std::time::Instant::now();
    assert_eq!(client.send(valid_request()).await.status, 200);
    read_until_closed(&mut client.stream).await;
    assert!(
        start.elapsed() >= Duration::from_millis(200),
        "the time for a head is not the time between requests"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let app = Router::new().route("/", get(|| async { "x".repeat(64 << 20) }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(40),
        write_timeout: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    tokio::spawn(ostler_gateway::serve(listener, app, limits, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // The buffers fill until a write has to wait, and it fails when the server closes.
    let gone =
        tokio::time::timeout(PATIENCE, async { while stream.write_all(&[b'\n'; 65_536]).await.is_ok() {} });
    gone.await.expect("the connection is closed");
}

#[tokio::test]
async fn shutting_down_lets_requests_finish_and_ends_streams() {
    let mut world = world_with_limits(ConnectionLimits::default()).await;
    let session = world.send(Request::initialize("2025-11-25")).await.session();
    let mut streaming = world.connect().await;
    streaming.start(Request::new("GET", "/mcp").in_session(&session)).await;
    assert_eq!(streaming.head().await.status, 200);
    // A request whose body is not complete yet.
    let mut asking = world.connect().await;
    let text = valid_request().text(world.address);
    let (head, rest) = text.split_at(text.len() - 5);
    asking.stream.write_all(head.as_bytes()).await.unwrap();
    let mut other = world.connect().await;
    assert_eq!(other.send(valid_request()).await.status, 200, "what was written before has been read");

    world.stop.take().unwrap().send(()).unwrap();
    assert!(streaming.chunk().await.unwrap().starts_with("id: 0-0\n"));
    assert_eq!(streaming.chunk().await, None, "the stream ends as streams end");
    asking.stream.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(asking.head_and_body().await.status, 200);
    tokio::time::timeout(PATIENCE, world.serving).await.expect("it ends").unwrap();
    assert!(TcpStream::connect(world.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn shutting_down_does_not_wait_for_ever() {
    let limits = ConnectionLimits { drain_timeout: Duration::from_millis(50), ..ConnectionLimits::default() };
    let mut world = world_with_limits(limits).await;
    let mut asking = world.connect().await;
    let text = valid_request().text(world.address);
    asking.stream.write_all(&text.as_bytes()[..text.len() - 5]).await.unwrap();
    let mut other = world.connect().await;
    assert_eq!(other.send(valid_request()).await.status, 200);
    world.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(PATIENCE, world.serving).await.expect("it ends").unwrap();
    assert_eq!(read_until_closed(&mut asking.stream).await, "");
}

#[tokio::test]
async fn an_upgraded_connection_is_its_handlers() {
    let app = Router::new().route("/up", get(upgrade));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(40),
        ..ConnectionLimits::default()
    };
    tokio::spawn(ostler_gateway::serve(listener, app, limits, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "GET /up HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = vec![0; 1_024];
    let read = stream.read(&mut said).await.unwrap();
    assert!(said[..read].starts_with(b"HTTP/1.1 101 "));
    // Longer than the idle timeout of a connection: others come and go meanwhile.
    let mut other = TcpStream::connect(address).await.unwrap();
    read_until_closed(&mut other).await;
    stream.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"hello");
}

async fn upgrade(request: axum::extract::Request) -> axum::response::Response {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(hyper_util::rt::TokioIo::new(upgraded));
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    });
    let mut response = axum::response::Response::new(axum::body::Body::empty());
    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("upgrade", "echo".parse().unwrap());
    response.headers_mut().insert("connection", "upgrade".parse().unwrap());
    response
}

/// Maximum number of a burst's requests that start between two steps of another request.
const BETWEEN_STEPS: usize = 64;

#[test]
fn what_is_under_way_goes_on_beside_a_crowd_that_never_stops_asking() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const CROWD: usize = 400;
    const STEPS: usize = 20;
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&served);
    let turned_down = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "no" }
    };
    let counted = Arc::clone(&served);
    let steps = move || async move {
        let before = counted.load(Ordering::Relaxed);
        for _ in 0..STEPS {
            tokio::task::yield_now().await;
        }
        (counted.load(Ordering::Relaxed) - before).to_string()
    };
    let app = Router::new().route("/no", get(turned_down)).route("/steps", get(steps));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        serving.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let until = async {
                let _ = stopped.await;
            };
            let limits = ConnectionLimits { drain_timeout: Duration::ZERO, ..ConnectionLimits::default() };
            ostler_gateway::serve(listener, app, limits, until).await;
        });
    });
    let asking = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let meanwhile = asking.block_on(async {
        for _ in 0..CROWD {
            let mut stream = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move {
                let ask = b"GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n";
                let mut heard = vec![0; 65_536];
                while stream.write_all(ask).await.is_ok() && stream.read(&mut heard).await.is_ok() {}
            });
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = b"GET /steps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let said = read_until_closed(&mut stream).await;
        said.rsplit("\r\n").next().unwrap().parse::<usize>().unwrap()
    });
    drop(stop);
    drop(asking);
    server.join().unwrap();
    assert!(meanwhile <= STEPS * BETWEEN_STEPS, "{meanwhile} requests of others in {STEPS} steps");
}

/// Serves an endpoint that answers with that many bytes.
async fn serve_bytes(size: usize, limits: ConnectionLimits) -> std::net::SocketAddr {
    let app = Router::new().route("/", get(move || async move { "x".repeat(size) }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(ostler_gateway::serve(listener, app, limits, std::future::pending()));
    address
}

/// Returns a client with a small window that has sent a request and reads nothing.
async fn request_with_small_window(address: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_reads_a_little_now_and_then_is_given_up() {
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(40),
        write_timeout: Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let address = serve_bytes(64 << 20, limits).await;
    let mut stream = request_with_small_window(address).await;
    let gone = tokio::time::timeout(PATIENCE, async {
        // About a kilobyte per second, which is below the minimum rate.
        while stream.read(&mut [0; 100]).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    gone.await.expect("the connection is closed");
}

#[tokio::test]
async fn a_client_that_reads_on_gets_all_of_it_though_it_takes_longer_than_a_connection_may_idle() {
    const SIZE: usize = 16 << 20;
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    let address = serve_bytes(SIZE, limits).await;
    let mut stream = request_with_small_window(address).await;
    let (mut read, mut pauses, mut piece) = (0, 5, vec![0; 512 * 1024]);
    while read < SIZE {
        let more = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(more > 0, "cut off after {read} bytes");
        read += more;
        // Long pauses, as on a bad connection.
        if pauses > 0 && read > SIZE / 8 {
            pauses -= 1;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

#[tokio::test]
async fn what_clients_leave_unread_is_bounded_and_those_who_read_get_theirs() {
    const SIZE: usize = 8 << 20;
    let limits = ConnectionLimits { max_unread: 2 * SIZE, ..ConnectionLimits::default() };
    let address = serve_bytes(SIZE, limits).await;
    let mut deaf = Vec::new();
    for _ in 0..8 {
        deaf.push(request_with_small_window(address).await);
    }
    let gone = tokio::time::timeout(PATIENCE, async {
        // Two fit; the others are evicted for those that came after them.
        for stream in &mut deaf[..5] {
            while stream.write_all(&[b'\n'; 65_536]).await.is_ok() {}
        }
    });
    gone.await.expect("the first are closed, long before their time is over");
    let mut reading = request_with_small_window(address).await;
    let (mut read, mut piece) = (0, vec![0; 65_536]);
    while read < SIZE {
        let more = tokio::time::timeout(PATIENCE, reading.read(&mut piece)).await.unwrap().unwrap();
        assert!(more > 0, "cut off after {read} bytes");
        read += more;
    }
}
