//! Listen streams of a modern server: each is one request that stays open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::headers::{METHOD, PROTOCOL_VERSION};
use ostler_wire::{Message, RequestMeta, RpcOutcome, ServerInfo};
use tokio::sync::watch;
use tokio::time::sleep;

use super::endpoint_client::{HttpReply, header};
use super::event_stream::EventStream;
use super::session::HttpSessionState;
use crate::lists::Kind;
use crate::upstream::subscription_ack::{ACKNOWLEDGED, NotifiedLists, SubscriptionAck, subscription_params};

/// First delay before a stream that was not acknowledged is requested again; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Upper bound on the delay.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The open listen streams.
#[derive(Default)]
pub(crate) struct ListenStreams {
    open: Arc<OpenListenStreams>,
}

/// Oldest first; the newest one counts. There are two while the newest one waits for its acknowledgement, so that no
/// change is missed meanwhile.
#[derive(Default)]
struct OpenListenStreams(Mutex<Vec<ListenStream>>);

struct ListenStream {
    number: u64,
    /// The changes that the server has agreed to announce on the stream.
    lists: NotifiedLists,
    /// Dropping it ends the task behind the stream.
    _keep: watch::Sender<()>,
}

/// Outcome of a listen stream.
enum ListenEnd {
    /// It was acknowledged; holds the delay before the next one.
    Acknowledged(Duration),
    /// It was not acknowledged.
    NotAcknowledged,
    /// The server does not support listening.
    Unsupported,
}

impl OpenListenStreams {
    fn lock(&self) -> MutexGuard<'_, Vec<ListenStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the changes that the server announces on a stream, and drops the older streams.
    fn acknowledge(&self, number: u64, heard: NotifiedLists) {
        let mut streams = self.lock();
        let Some(at) = streams.iter().position(|stream| stream.number == number) else { return };
        streams[at].lists = heard;
        streams.drain(..at);
    }

    /// Returns the changes that were announced on a stream that has ended.
    fn take_lists(&self, number: u64) -> NotifiedLists {
        let mut streams = self.lock();
        let stream = streams.iter_mut().find(|stream| stream.number == number);
        stream.map(|stream| std::mem::take(&mut stream.lists)).unwrap_or_default()
    }
}

impl ListenStreams {
    /// Returns whether the server has agreed to announce changes of a list.
    pub(crate) fn is_notified_of(&self, kind: Kind) -> bool {
        self.open.lock().iter().any(|stream| stream.lists.includes(kind))
    }

    /// Requests every change that the server announces and these resources, in place of the earlier request.
    pub(crate) fn start(&self, link: &Arc<HttpSessionState>, hello: &ServerInfo, resources: &[String]) {
        let mut streams = self.open.lock();
        let Some(params) = subscription_params(hello, resources) else { return streams.clear() };
        let (keep, mut kept) = watch::channel(());
        let number = link.pending_calls.next_id();
        let surplus = streams.len().saturating_sub(1);
        streams.drain(..surplus);
        streams.push(ListenStream { number, lists: NotifiedLists::default(), _keep: keep });
        drop(streams);
        let meta = hello.session_meta.clone();
        let body = move |id| {
            let meta = RequestMeta { session: meta.as_ref(), ..RequestMeta::default() };
            let mut body = Vec::new();
            ostler_wire::write_request(&mut body, id, ostler_wire::SUBSCRIPTIONS_LISTEN, &params, &meta);
            body
        };
        let (listener, open) = (Arc::clone(link), Arc::clone(&self.open));
        let headers = headers(&hello.version);
        link.spawn(async move {
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
    headers.insert(header(METHOD), HeaderValue::from_static(ostler_wire::SUBSCRIPTIONS_LISTEN));
    if let Ok(version) = HeaderValue::from_str(version) {
        headers.insert(header(PROTOCOL_VERSION), version);
    }
    headers
}

/// Listens again and again, until the server reports that it does not support listening. Its lists are then valid for
/// the time to live that it gives.
async fn follow(
    (link, open, number): (&Arc<HttpSessionState>, &OpenListenStreams, u64),
    headers: &HeaderMap,
    body: impl Fn(u64) -> Vec<u8>,
) {
    let mut wait = FIRST_WAIT;
    loop {
        let mut pause = wait;
        match link.client.post(body(link.pending_calls.next_id()), headers.clone()).await {
            Ok(HttpReply::Events(stream)) => {
                let end = read(link, *stream, |heard| open.acknowledge(number, heard)).await;
                // Changes before the next stream opens are missed.
                open.take_lists(number).assumed_changes().for_each(|event| link.server_messages.emit(event));
                match end {
                    ListenEnd::Unsupported => return,
                    ListenEnd::NotAcknowledged => {}
                    ListenEnd::Acknowledged(retry) => (wait, pause) = (FIRST_WAIT, retry),
                }
            }
            Ok(HttpReply::Refused(status, _)) if status.is_server_error() => {}
            Ok(_) => return,
            Err(Fault { kind: FaultKind::RetryAfter { wait: asked, .. }, .. }) => pause = asked,
            Err(Fault { kind: FaultKind::NeedsAuth { .. }, .. }) => return,
            Err(_) => {}
        }
        sleep(pause).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Reads a listen stream to its end.
async fn read(
    link: &HttpSessionState,
    mut stream: EventStream,
    acknowledge: impl Fn(NotifiedLists),
) -> ListenEnd {
    let mut is_heard = false;
    while let Ok(Some(event)) = stream.next().await {
        match Message::parse(event.data) {
            Ok(Message::Notification { method, params }) => {
                is_heard = true;
                if method != ACKNOWLEDGED {
                    link.server_messages.on_notification(
                        (&link.pending_calls, &link.client.counters),
                        (method, params),
                        None,
                    );
                } else if let Some(agreement) = SubscriptionAck::parse(params.as_deref().unwrap_or(b"{}")) {
                    acknowledge(agreement.lists);
                }
            }
            Ok(Message::Response { outcome: RpcOutcome::Error(error), .. })
                if super::request::is_unknown_method(&error) =>
            {
                return ListenEnd::Unsupported;
            }
            Ok(Message::Response { .. }) => break,
            Ok(Message::Request { .. }) | Err(_) => link.client.counters.skip(),
        }
    }
    if is_heard { ListenEnd::Acknowledged(stream.position.retry) } else { ListenEnd::NotAcknowledged }
}
