//! Hearing of changes from a modern server: one request that stays open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use ostler_core::fault::{Fault, FaultKind};
use ostler_wire::headers::{METHOD, PROTOCOL_VERSION};
use ostler_wire::{Hello, Message, Meta, Params};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::road::{Reply, header};
use super::session::Link;
use super::stream::EventStream;
use crate::upstream::Event;

const LISTEN: &str = "subscriptions/listen";

/// The first wait before a stream that has ended is asked for again; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The request for news that is open, if one is.
#[derive(Default)]
pub(crate) struct Listening {
    /// Dropping the sender ends the task behind it.
    current: Mutex<Option<watch::Sender<()>>>,
}

/// How a stream of news ended.
enum End {
    /// It had been acknowledged.
    Heard,
    /// Nothing came of it.
    Unheard,
    /// The server has no such thing.
    Never,
}

impl Listening {
    /// Asks for every change that the server announces and for these
    /// resources, in place of what was asked for before.
    pub(crate) fn begin(&self, link: &Arc<Link>, hello: &Hello, resources: &[String]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = None;
        let Some(params) = wishes(hello, resources) else { return };
        let (keep, mut kept) = watch::channel(());
        let (listener, meta, version) = (Arc::clone(link), hello.session_meta.clone(), hello.version.clone());
        let body = move |id| {
            let meta = Meta { session: meta.as_ref(), ..Meta::default() };
            let mut body = Vec::new();
            ostler_wire::write_request(&mut body, id, LISTEN, &params, &meta);
            body
        };
        link.run(async move {
            tokio::select! {
                () = follow(&listener, &version, body) => {}
                _ = kept.changed() => {}
            }
        });
        *current = Some(keep);
    }
}

/// Listens again and again, until the server says that it can't be listened to.
async fn follow(link: &Arc<Link>, version: &str, body: impl Fn(u64) -> Vec<u8>) {
    let mut headers = HeaderMap::new();
    headers.insert(header(METHOD), HeaderValue::from_static(LISTEN));
    if let Ok(version) = HeaderValue::from_str(version) {
        headers.insert(header(PROTOCOL_VERSION), version);
    }
    let mut wait = FIRST_WAIT;
    loop {
        match link.road.post(body(link.calls.number()), headers.clone()).await {
            Ok(Reply::Events(stream)) => match read(link, *stream).await {
                End::Never => return,
                End::Heard => {
                    wait = FIRST_WAIT;
                    // Whatever changes before the next stream is there goes unheard.
                    for event in [Event::ToolsChanged, Event::PromptsChanged, Event::ResourcesChanged] {
                        link.ear.tell(event);
                    }
                }
                End::Unheard => {}
            },
            Ok(Reply::Refused(status, _)) if status.is_server_error() => {}
            Ok(_) => return,
            Err(Fault { kind: FaultKind::Paused { wait: asked, .. }, .. }) => sleep(asked).await,
            Err(Fault { kind: FaultKind::NeedsAuth { .. }, .. }) => return,
            Err(_) => {}
        }
        sleep(wait).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Reads a stream of news to its end.
async fn read(link: &Link, mut stream: EventStream) -> End {
    let mut end = End::Unheard;
    while let Ok(Some(event)) = stream.next().await {
        match Message::parse(event.data) {
            Ok(Message::Notification { method, params }) => {
                end = End::Heard;
                if !method.as_str().starts_with("notifications/subscriptions/") {
                    link.ear.notice((&link.calls, &link.road.tally), (method, params), None);
                }
            }
            Ok(Message::Response { outcome: ostler_wire::Outcome::Error(error), .. })
                if super::talk::is_unknown_method(&error) =>
            {
                return End::Never;
            }
            Ok(Message::Response { .. }) => return end,
            Ok(Message::Request { .. }) | Err(_) => link.road.tally.skip(),
        }
    }
    end
}

/// The parameters that ask for every change a server announces and for these
/// resources; `None` if that is nothing.
fn wishes(hello: &Hello, resources: &[String]) -> Option<Params> {
    let lists = [
        ("toolsListChanged", "tools.listChanged"),
        ("promptsListChanged", "prompts.listChanged"),
        ("resourcesListChanged", "resources.listChanged"),
    ];
    let announced = lists.into_iter().filter(|(_, capability)| hello.has_capability(capability));
    let mut wanted: Map<String, Value> =
        announced.map(|(member, _)| (member.to_owned(), Value::Bool(true))).collect();
    if !resources.is_empty() {
        wanted.insert("resourceSubscriptions".into(), json!(resources));
    }
    if wanted.is_empty() {
        return None;
    }
    Params::parse(json!({ "notifications": wanted }).to_string().into()).ok()
}
