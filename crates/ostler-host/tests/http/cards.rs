//! Server cards: fetched without starting the server, cached for their time to live, and harmless with any content.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::Frame;
use ostler_core::error::CallError;
use ostler_host::{CardReport, Host, HostOptions, ServerName, ServerSpec};
use serde_json::{Value, json};

use crate::fixture::{HttpFixture, LONG, spec, spec_with};
use crate::scripted_endpoint::{RecordedRequest, ScriptedEndpoint, modern, raw, respond, stream};

const KIND: &str = "application/mcp-server-card+json";

fn card() -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "com.example/remote", "version": "1", "description": "Does things elsewhere.",
    })
}

fn is_card(got: &RecordedRequest) -> bool {
    got.path == "/mcp/server-card"
}

/// Makes a server whose card comes from `answer`.
fn with_card(answer: impl Fn(&RecordedRequest) -> Response + Send + Sync + 'static) -> ScriptedEndpoint {
    ScriptedEndpoint::start(modern(move |got| is_card(got).then(|| answer(got))))
}

fn asked(remote: &ScriptedEndpoint) -> usize {
    remote.requests().iter().filter(|got| is_card(got)).count()
}

/// Reads the card; fails if that does not end.
async fn read(host: &Host) -> Result<CardReport, CallError> {
    tokio::time::timeout(LONG, host.card("remote")).await.unwrap()
}

/// Returns the reason for which a card can't be read; the error has a hint.
fn why(outcome: Result<CardReport, CallError>) -> String {
    match outcome {
        Err(error @ CallError::CardUnreadable { .. }) => {
            assert_eq!((error.code(), error.exit_code()), ("card-unreadable", 6));
            assert!(error.hint().is_some_and(|hint| hint.contains("`card`")), "{}", error.render());
            error.cause().unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_of_a_sleeping_server_is_read_without_starting_it() {
    let remote = with_card(|_| raw(200, KIND, card().to_string()));
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &[("X-Key", "k-1")])).await;
    assert_eq!(stage.status().card, None, "nothing is read unasked");
    let report = read(&stage.host).await.unwrap();
    assert_eq!((report.card.name.as_str(), report.compared), ("com.example/remote", false));
    assert_eq!(report.source, format!("{}/server-card", remote.url()));
    let got = remote.requests();
    assert_eq!(got.len(), 1, "the server itself is asked nothing");
    assert_eq!((got[0].header("accept"), got[0].header("x-key")), (Some(KIND), Some("k-1")));
    let status = stage.status();
    assert_eq!((status.state.as_str(), status.starts_total), ("idle", 0));
    assert_eq!(status.card.unwrap().description, "Does things elsewhere.");
}

#[tokio::test]
async fn a_card_is_kept_for_five_minutes_or_as_its_response_says() {
    let table = [(None, Some(300)), (Some("public, max-age=3600"), Some(3_600)), (Some("no-store"), None)];
    for (said, seconds) in table {
        let remote = with_card(move |_| {
            let mut response = raw(200, KIND, card().to_string());
            said.map(|said| response.headers_mut().insert("cache-control", said.parse().unwrap()));
            response
        });
        let stage = HttpFixture::connected_to(&remote).await;
        for _ in 0..3 {
            read(&stage.host).await.unwrap();
        }
        let Some(seconds) = seconds else {
            assert_eq!(asked(&remote), 3, "{said:?}");
            assert_eq!(stage.status().card, None, "{said:?}: it may not be kept");
            continue;
        };
        assert_eq!(asked(&remote), 1, "{said:?}");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        assert!(stage.status().card.unwrap().seconds_ago >= seconds, "{said:?}: shown with its age");
        read(&stage.host).await.unwrap();
        assert_eq!(asked(&remote), 2, "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_at_the_same_time_shares_one_request() {
    let (feed, response) = stream();
    let response = std::sync::Mutex::new(Some(response));
    let remote = with_card(move |_| {
        let body = response.lock().unwrap().take().unwrap().into_body();
        raw(200, KIND, body)
    });
    let stage = HttpFixture::connected_to(&remote).await;
    let readers: Vec<_> = (0..16)
        .map(|_| {
            let host = stage.host.clone();
            tokio::spawn(async move { read(&host).await })
        })
        .collect();
    ostler_testkit::eventually("the request", LONG, || asked(&remote) == 1).await;
    // A caller that leaves affects no other.
    readers[0].abort();
    assert!(feed.write(card().to_string()));
    drop(feed);
    for reader in readers.into_iter().skip(1) {
        reader.await.unwrap().unwrap();
    }
    assert_eq!(asked(&remote), 1);
}

/// Answers a request for a card.
type CardResponder = Box<dyn Fn() -> Response + Send + Sync>;

/// Makes an endless body; it counts the bytes that were read of it.
struct Endless(Arc<AtomicU64>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        const PIECE: &[u8] = &[b' '; 64 << 10];
        // The billion bytes that a hostile server would send.
        let so_far = self.0.fetch_add(PIECE.len() as u64, Ordering::Relaxed);
        Poll::Ready((so_far < 1 << 30).then(|| Ok(Frame::data(Bytes::from_static(PIECE)))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_card_is_an_error_and_nothing_else_is_affected() {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    let elsewhere = ScriptedEndpoint::start(|got| raw(200, KIND, format!("{}{}", card(), got.path)));
    let away = format!("http://{}/card", elsewhere.address);
    let table: Vec<(CardResponder, &str)> = vec![
        (
            Box::new(move || raw(200, KIND, Body::new(Endless(Arc::clone(&counted))))),
            "longer than 1048576 bytes",
        ),
        (Box::new(|| raw(200, "text/html", "<html>")), "text/html"),
        (Box::new(|| raw(200, KIND, format!("{{\"_meta\":{}", "[".repeat(500_000)))), "it is no card"),
        (Box::new(|| raw(200, KIND, vec![0xff, 0xfe])), "UTF-8"),
        (Box::new(|| raw(200, KIND, "")), "it is no card"),
        (Box::new(|| respond(200, &[], json!({"name": "x"}))), "missing field"),
        (Box::new(|| raw(404, "text/plain", "nothing\u{1b}[2J here")), "HTTP 404"),
        (Box::new(|| respond(401, &[("www-authenticate", "Bearer")], Value::Null)), "401"),
        (Box::new(move || respond(302, &[("location", &away)], Value::Null)), "within one origin"),
        (
            Box::new(|| respond(307, &[("location", "http://169.254.169.254/latest")], Value::Null)),
            "within one origin",
        ),
        (Box::new(|| respond(302, &[("location", "/mcp/server-card")], Value::Null)), "three at most"),
        (Box::new(|| respond(302, &[("location", "file:///etc/passwd")], Value::Null)), "within one origin"),
    ];
    for (answer, expected) in table {
        let remote = with_card(move |_| answer());
        let stage =
            HttpFixture::with_server(spec_with(&remote.url(), &[("Authorization", "Bearer k-1")])).await;
        let why = why(read(&stage.host).await);
        assert!(why.contains(expected), "{why}");
        assert!(!why.contains('\u{1b}'), "{why}");
        assert_eq!(stage.text("echo").await, "echo", "{expected}");
        let status = stage.status();
        assert_eq!(
            (status.card, status.last_error, status.consecutive_failures),
            (None, None, 0),
            "{expected}"
        );
    }
    assert!(taken.load(Ordering::Relaxed) < 64 << 20, "reading stops long before the end");
    assert_eq!(elsewhere.requests().len(), 0, "no credential and no request leaves the origin");
}

#[tokio::test]
async fn a_card_that_does_not_end_is_given_up_after_ten_seconds() {
    let feeds = std::sync::Mutex::new(Vec::new());
    let remote = with_card(move |_| {
        let (feed, response) = stream();
        feed.write("{");
        feeds.lock().unwrap().push(feed);
        raw(200, KIND, response.into_body())
    });
    let stage = HttpFixture::connected_to(&remote).await;
    let host = stage.host.clone();
    let reading = tokio::spawn(async move { host.card("remote").await });
    ostler_testkit::eventually("the request", LONG, || asked(&remote) == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    let why = why(tokio::time::timeout(LONG, reading).await.unwrap().unwrap());
    assert!(why.contains("did not come within 10"), "{why}");
    assert_eq!(stage.text("echo").await, "echo");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_within_the_origin_are_followed() {
    let remote = ScriptedEndpoint::start(modern(|got| match got.path.as_str() {
        "/mcp/server-card" => Some(respond(301, &[("location", "/moved")], Value::Null)),
        "/moved" => Some(respond(308, &[("location", "again?x=1")], Value::Null)),
        "/again" => Some(raw(200, "application/json; charset=utf-8", card().to_string())),
        _ => None,
    }));
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &[("X-Key", "k-1")])).await;
    assert_eq!(read(&stage.host).await.unwrap().card.version, "1");
    assert!(remote.requests().iter().all(|got| got.header("x-key") == Some("k-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_go_to_a_card_of_the_same_origin_alone() {
    let remote = ScriptedEndpoint::start(modern(|_| None));
    let elsewhere = ScriptedEndpoint::start(|_| raw(200, KIND, card().to_string()));
    let headers = [("Authorization", "Bearer k-1")];
    let mut away = spec_with(&remote.url(), &headers);
    away.card = Some(format!("http://{}/card.json", elsewhere.address));
    let stage = HttpFixture::with_server(away).await;
    read(&stage.host).await.unwrap();
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
    assert_eq!(remote.requests().len(), 0);
    let mut near = spec_with(&format!("http://{}/mcp", elsewhere.address), &headers);
    near.card = Some(format!("http://{}/card.json", elsewhere.address));
    let stage = HttpFixture::with_server(near).await;
    read(&stage.host).await.unwrap();
    assert_eq!(elsewhere.requests()[1].header("authorization"), Some("Bearer k-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_server_that_says_otherwise_is_a_warning() {
    let remote = with_card(|_| {
        let mut card = card();
        card["version"] = json!("9");
        card["remotes"] = json!([{"type": "streamable-http", "url": "https://other.example/mcp"}]);
        raw(200, KIND, card.to_string())
    });
    let stage = HttpFixture::connected_to(&remote).await;
    let report = read(&stage.host).await.unwrap();
    assert_eq!((report.compared, report.differences.len()), (false, 0), "it sleeps");
    assert_eq!(stage.text("echo").await, "echo", "a difference keeps nobody from calling");
    let report = read(&stage.host).await.unwrap();
    assert!(report.compared);
    assert_eq!(report.differences[0], "the card says version `9`, the server says `1`");
    assert!(report.differences[1].contains("`remotes`"), "{report:?}");
    assert_eq!(stage.status().card.unwrap().differences, report.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_repeats_a_secret_is_shown_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "s3cr3t-value-of-a-file").unwrap();
    let remote = with_card(|got| {
        let mut card = card();
        card["description"] = json!(got.header("x-key").unwrap());
        raw(200, KIND, card.to_string())
    });
    let reference = format!("${{file:{}}}", file.display());
    let stage = HttpFixture::with_server(spec_with(&remote.url(), &[("X-Key", &reference)])).await;
    let report = read(&stage.host).await.unwrap();
    assert!(!report.card.description.contains("s3cr3t"), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_may_be_a_file_which_is_read_whenever_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    let mut program = ServerSpec::stdio(ServerName::new("remote").unwrap(), "no-such-program");
    let stage = HttpFixture::with_server(program.clone().lazy()).await;
    assert!(why(read(&stage.host).await).contains("a program has no usual place"));
    program.card = Some(file.display().to_string());
    let host = Host::new(HostOptions::default());
    host.spawn(&stage.me, program.lazy()).await.unwrap();
    let why_not = why(read(&host).await);
    assert!(why_not.contains("card.json"), "{why_not}");
    for version in ["1", "2"] {
        let mut card = card();
        card["version"] = json!(version);
        std::fs::write(&file, card.to_string()).unwrap();
        assert_eq!(read(&host).await.unwrap().card.version, version);
    }
    std::fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(why(read(&host).await).contains("larger than 1 MiB"));
    assert_eq!(host.status_of("remote").unwrap().card.unwrap().version, "2", "the last good one");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(why(read(&host).await).contains("not a regular file"));
    let unknown = host.card("nope").await.unwrap_err();
    assert_eq!(unknown.code(), "unknown-server");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nothing_listens_on_is_told() {
    let mut remote = ScriptedEndpoint::start(modern(|_| None));
    let stage = HttpFixture::with_server(spec(&remote.url())).await;
    remote.stop();
    let why = why(read(&stage.host).await);
    assert!(why.contains("server-card: "), "{why}");
}
