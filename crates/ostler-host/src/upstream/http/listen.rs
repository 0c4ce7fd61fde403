//! Hearing of changes from a modern server: one request that stays open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::headers::{METHOD, PROTOCOL_VERSION};
use ostler_wire::{Hello, Message, Meta, Outcome};
use tokio::sync::watch;
use tokio::time::sleep;

use super::road::{Reply, header};
use super::session::Link;
use super::stream::EventStream;
use crate::lists::Kind;
use crate::upstream::heard::{ACKNOWLEDGED, Agreement, Heard, wishes};

/// The first wait before a stream that nothing came of is asked for again; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The requests for news that are open.
#[derive(Default)]
pub(crate) struct Listening {
    open: Arc<Open>,
}

/// Oldest first; the newest one counts. There are two while the newest one
/// waits for its acknowledgement, so that nothing goes unheard meanwhile.
#[derive(Default)]
struct Open(Mutex<Vec<Stream>>);

struct Stream {
    number: u64,
    /// What the server has agreed to tell on it.
    heard: Heard,
    /// Dropping it ends the task behind the stream.
    _keep: watch::Sender<()>,
}

/// How a stream of news ended.
enum End {
    /// It had been acknowledged; how long to wait before the next one.
    Heard(Duration),
    /// Nothing came of it.
    Unheard,
    /// The server has no such thing.
    Never,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the server tells on a stream. Those before it are not needed any more.
    fn acknowledge(&self, number: u64, heard: Heard) {
        let mut streams = self.lock();
        let Some(at) = streams.iter().position(|stream| stream.number == number) else { return };
        streams[at].heard = heard;
        streams.drain(..at);
    }

    /// A stream has ended; what was told on it.
    fn fall_silent(&self, number: u64) -> Heard {
        let mut streams = self.lock();
        let stream = streams.iter_mut().find(|stream| stream.number == number);
        stream.map(|stream| std::mem::take(&mut stream.heard)).unwrap_or_default()
    }
}

impl Listening {
    /// Whether the server has agreed to tell of changes of a list.
    pub(crate) fn hears(&self, kind: Kind) -> bool {
        self.open.lock().iter().any(|stream| stream.heard.tells(kind))
    }

    /// Asks for every change that the server announces and for these
    /// resources, in place of what was asked for before.
    pub(crate) fn begin(&self, link: &Arc<Link>, hello: &Hello, resources: &[String]) {
        let mut streams = self.open.lock();
        let Some(params) = wishes(hello, resources) else { return streams.clear() };
        let (keep, mut kept) = watch::channel(());
        let number = link.calls.number();
        let surplus = streams.len().saturating_sub(1);
        streams.drain(..surplus);
        streams.push(Stream { number, heard: Heard::default(), _keep: keep });
        drop(streams);
        let meta = hello.session_meta.clone();
        let body = move |id| {
            let meta = Meta { session: meta.as_ref(), ..Meta::default() };
            let mut body = Vec::new();
            ostler_wire::write_request(&mut body, id, ostler_wire::LISTEN, &params, &meta);
            body
        };
        let (listener, open) = (Arc::clone(link), Arc::clone(&self.open));
        let headers = headers(&hello.version);
        link.run(async move {
            tokio::select! {
                () = follow((&listener, &open, number), &headers, body) => {
                    open.lock().retain(|stream| stream.number != number);
                }
                _ = kept.changed() => {}
            }
        });
    }
}

fn headers(version: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header(METHOD), HeaderValue::from_static(ostler_wire::LISTEN));
    if let Ok(version) = HeaderValue::from_str(version) {
        headers.insert(header(PROTOCOL_VERSION), version);
    }
    headers
}

/// Listens again and again, until the server says that it can't be listened
/// to. Its lists are then as good as it says that they are.
async fn follow(
    (link, open, number): (&Arc<Link>, &Open, u64),
    headers: &HeaderMap,
    body: impl Fn(u64) -> Vec<u8>,
) {
    let mut wait = FIRST_WAIT;
    loop {
        let mut pause = wait;
        match link.road.post(body(link.calls.number()), headers.clone()).await {
            Ok(Reply::Events(stream)) => {
                let end = read(link, *stream, |heard| open.acknowledge(number, heard)).await;
                // Whatever changes before the next stream is there goes unheard.
                open.fall_silent(number).missed().for_each(|event| link.ear.tell(event));
                match end {
                    End::Never => return,
                    End::Unheard => {}
                    End::Heard(retry) => (wait, pause) = (FIRST_WAIT, retry),
                }
            }
            Ok(Reply::Refused(status, _)) if status.is_server_error() => {}
            Ok(_) => return,
            Err(Fault { kind: FaultKind::Paused { wait: asked, .. }, .. }) => pause = asked,
            Err(Fault { kind: FaultKind::NeedsAuth { .. }, .. }) => return,
            Err(_) => {}
        }
        sleep(pause).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Reads a stream of news to its end.
async fn read(link: &Link, mut stream: EventStream, acknowledge: impl Fn(Heard)) -> End {
    let mut is_heard = false;
    while let Ok(Some(event)) = stream.next().await {
        match Message::parse(event.data) {
            Ok(Message::Notification { method, params }) => {
                is_heard = true;
                if method != ACKNOWLEDGED {
                    link.ear.notice((&link.calls, &link.road.tally), (method, params), None);
                } else if let Some(agreement) = Agreement::parse(params.as_deref().unwrap_or(b"{}")) {
                    acknowledge(agreement.heard);
                }
            }
            Ok(Message::Response { outcome: Outcome::Error(error), .. })
                if super::talk::is_unknown_method(&error) =>
            {
                return End::Never;
            }
            Ok(Message::Response { .. }) => break,
            Ok(Message::Request { .. }) | Err(_) => link.road.tally.skip(),
        }
    }
    if is_heard { End::Heard(stream.place.retry) } else { End::Unheard }
}
