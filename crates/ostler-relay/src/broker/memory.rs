//! In-memory broker for tests and simulations: subjects, queue groups, permissions and injected
//! faults under the runtime's clock, paused or real.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ostler_host::upstream::BoxFuture;
use tokio::sync::{broadcast, mpsc, watch};

use super::{
    Broker, BrokerConnectError, BrokerInfo, BrokerMessage, BrokerSubscription, Denial, LinkError,
    MessageSource, RelayLink,
};
use crate::envelope::RelayHeaders;

/// Messages buffered per subscription; the broker drops further ones, as NATS does.
const BACKLOG: usize = 4_096;

/// Longest message: the default of NATS.
const MAX_PAYLOAD: usize = 1 << 20;

/// In-memory broker. Clones are handles to the same broker.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Mutex<MemoryBrokerState>>);

/// Permissions of one user.
#[derive(Debug, Clone, Default)]
pub struct BrokerPermissions {
    /// Patterns of subjects that the user may publish to.
    pub publish: Vec<String>,
    /// Patterns of subjects that the user may subscribe to.
    pub subscribe: Vec<String>,
    /// Allows one publish to the reply subject of each received message.
    pub may_respond: bool,
}

impl BrokerPermissions {
    /// Returns permissions for every subject.
    pub fn all() -> Self {
        Self { publish: vec![">".into()], subscribe: vec![">".into()], may_respond: true }
    }
}

/// Fault injected into one delivery; [`Deliver`](Self::Deliver) injects none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageAction {
    /// Delivers at once, in order.
    Deliver,
    /// Delivers later; other messages overtake it.
    Delay(Duration),
    /// Delivers at once and once more after the delay.
    Duplicate(Duration),
    /// Drops the message.
    Drop,
}

/// Decides the fate of each delivery from its sender, its receiver (both user names) and the
/// message.
pub type MessageFaultInjector = Box<dyn FnMut(&str, &str, &BrokerMessage) -> MessageAction + Send>;

struct MemoryBrokerState {
    is_up: bool,
    links: HashMap<u64, MemoryBrokerClient>,
    next: u64,
    queue_turn: usize,
    fault_injector: Option<MessageFaultInjector>,
}

struct MemoryBrokerClient {
    user: Arc<str>,
    permissions: BrokerPermissions,
    /// In order of subscription.
    subscriptions: Vec<MemorySubscription>,
    /// Reply subjects that the user may still publish to, once each.
    allowed_replies: HashSet<String>,
    denials: broadcast::Sender<Denial>,
    closed: watch::Sender<Option<String>>,
}

struct MemorySubscription {
    number: u64,
    pattern: String,
    queue: Option<String>,
    sender: mpsc::Sender<BrokerMessage>,
}

impl MemoryBroker {
    /// Returns a broker that is up.
    pub fn new() -> Self {
        let state = MemoryBrokerState {
            is_up: true,
            links: HashMap::new(),
            next: 0,
            queue_turn: 0,
            fault_injector: None,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns a connection factory for a user with these permissions.
    pub fn for_user(&self, name: &str, permissions: BrokerPermissions) -> Arc<dyn Broker> {
        Arc::new(MemoryUser { broker: self.clone(), name: name.into(), permissions: Some(permissions) })
    }

    /// Returns a connection factory whose credentials the broker rejects.
    pub fn with_bad_credentials(&self, name: &str) -> Arc<dyn Broker> {
        Arc::new(MemoryUser { broker: self.clone(), name: name.into(), permissions: None })
    }

    /// Closes every connection and rejects new ones.
    pub fn go_down(&self) {
        let mut state = self.lock();
        state.is_up = false;
        for (_, client) in state.links.drain() {
            client.closed.send_replace(Some("the broker went down".into()));
        }
    }

    /// Accepts connections again; subscriptions of earlier connections are gone.
    pub fn come_up(&self) {
        self.lock().is_up = true;
    }

    /// Closes every connection of a user.
    pub fn disconnect(&self, user: &str) {
        let mut state = self.lock();
        let cut: Vec<u64> =
            state.links.iter().filter(|(_, client)| &*client.user == user).map(|(id, _)| *id).collect();
        for id in cut {
            if let Some(client) = state.links.remove(&id) {
                client.closed.send_replace(Some("the connection was cut".into()));
            }
        }
    }

    /// Installs a fault injector for all further deliveries. The injector must not use the broker:
    /// it runs under the broker's lock.
    pub fn set_fault_injector(&self, injector: Option<MessageFaultInjector>) {
        self.lock().fault_injector = injector;
    }

    /// Returns the number of open connections.
    pub fn link_count(&self) -> usize {
        self.lock().links.len()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryBrokerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBrokerState {
    /// Delivers to every subscription without a queue group and to one member of each group.
    fn deliver(&mut self, from: &str, message: &BrokerMessage) {
        let mut queues: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        let mut chosen = Vec::new();
        let mut ids: Vec<&u64> = self.links.keys().collect();
        ids.sort_unstable();
        for id in ids {
            for subscription in &self.links[id].subscriptions {
                if !subject_matches(&subscription.pattern, &message.subject) {
                    continue;
                }
                match &subscription.queue {
                    Some(queue) => queues.entry(queue).or_default().push((*id, subscription.number)),
                    None => chosen.push((*id, subscription.number)),
                }
            }
        }
        for (_, members) in queues {
            self.queue_turn = self.queue_turn.wrapping_add(1);
            chosen.push(members[self.queue_turn % members.len()]);
        }
        chosen.sort_unstable();
        if chosen.is_empty() {
            if let Some(reply) = &message.reply_to {
                let no_responders = BrokerMessage {
                    is_no_responders: true,
                    ..BrokerMessage::new(reply.clone(), RelayHeaders::new(), Bytes::new())
                };
                self.deliver("broker", &no_responders);
            }
            return;
        }
        for (id, number) in chosen {
            self.deliver_to(from, id, number, message);
        }
    }

    fn deliver_to(&mut self, from: &str, id: u64, number: u64, message: &BrokerMessage) {
        let Some(client) = self.links.get_mut(&id) else { return };
        let Some(subscription) =
            client.subscriptions.iter().find(|subscription| subscription.number == number)
        else {
            return;
        };
        let sender = subscription.sender.clone();
        if let Some(reply) = &message.reply_to {
            client.allowed_replies.insert(reply.clone());
        }
        let action = match &mut self.fault_injector {
            Some(injector) => injector(from, &client.user, message),
            None => MessageAction::Deliver,
        };
        let deliver_later = |delay: Duration| {
            let (sender, message) = (sender.clone(), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = sender.try_send(message);
            });
        };
        match action {
            MessageAction::Deliver => drop(sender.try_send(message.clone())),
            MessageAction::Delay(delay) => deliver_later(delay),
            // The broker writes the no-responders reply once, to the connection of the request.
            MessageAction::Duplicate(_) if message.is_no_responders => drop(sender.try_send(message.clone())),
            MessageAction::Duplicate(delay) => {
                let _ = sender.try_send(message.clone());
                deliver_later(delay);
            }
            MessageAction::Drop => {}
        }
    }
}

/// Returns whether `subject` matches `pattern`, which may contain `*` and `>`.
pub fn subject_matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// Connection factory of one user.
struct MemoryUser {
    broker: MemoryBroker,
    name: Arc<str>,
    permissions: Option<BrokerPermissions>,
}

impl Broker for MemoryUser {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            let mut state = self.broker.lock();
            if !state.is_up {
                return Err(BrokerConnectError::Unreachable("the broker is down".into()));
            }
            let Some(permissions) = self.permissions.clone() else {
                return Err(BrokerConnectError::Credentials("the credentials are wrong".into()));
            };
            state.next += 1;
            let id = state.next;
            let (closed, ended) = watch::channel(None);
            let denials = broadcast::Sender::new(64);
            let client = MemoryBrokerClient {
                user: Arc::clone(&self.name),
                permissions,
                subscriptions: Vec::new(),
                allowed_replies: HashSet::new(),
                denials: denials.clone(),
                closed,
            };
            state.links.insert(id, client);
            let broker_info =
                BrokerInfo { max_payload: MAX_PAYLOAD, requires_credentials: true, is_loopback: true };
            let link = MemoryLink { broker: self.broker.clone(), id, ended, denials, broker_info };
            Ok(Arc::new(link) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        "memory".into()
    }
}

struct MemoryLink {
    broker: MemoryBroker,
    id: u64,
    ended: watch::Receiver<Option<String>>,
    denials: broadcast::Sender<Denial>,
    broker_info: BrokerInfo,
}

impl MemoryLink {
    fn publish_now(&self, message: &BrokerMessage) -> Result<(), LinkError> {
        if message.body.len() > MAX_PAYLOAD {
            return Err(LinkError::TooLong { limit: MAX_PAYLOAD });
        }
        let mut state = self.broker.lock();
        let client = state.links.get_mut(&self.id).ok_or(LinkError::Closed)?;
        let is_allowed =
            client.permissions.publish.iter().any(|pattern| subject_matches(pattern, &message.subject))
                || (client.permissions.may_respond && client.allowed_replies.remove(&message.subject));
        if !is_allowed {
            let _ = client.denials.send(Denial::Publish(message.subject.clone()));
            return Ok(());
        }
        let user = Arc::clone(&client.user);
        state.deliver(&user, message);
        Ok(())
    }

    fn subscribe_now(&self, subject: &str, queue: Option<&str>) -> Result<BrokerSubscription, LinkError> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let mut state = self.broker.lock();
        state.next += 1;
        let number = state.next;
        let client = state.links.get_mut(&self.id).ok_or(LinkError::Closed)?;
        if client.permissions.subscribe.iter().any(|pattern| pattern_covers(pattern, subject)) {
            let queue = queue.map(str::to_owned);
            client.subscriptions.push(MemorySubscription {
                number,
                pattern: subject.to_owned(),
                queue,
                sender,
            });
        } else {
            let _ = client.denials.send(Denial::Subscribe(subject.to_owned()));
        }
        Ok(BrokerSubscription::new(MemorySource {
            broker: self.broker.clone(),
            link: self.id,
            number,
            receiver,
        }))
    }
}

/// Returns whether every subject that matches the pattern `subject` also matches `pattern`.
fn pattern_covers(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(token)) if token != ">" => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

impl RelayLink for MemoryLink {
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move { self.publish_now(&message) })
    }

    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>> {
        let subscribed = self.subscribe_now(subject, queue);
        Box::pin(std::future::ready(subscribed))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>> {
        let is_over = !self.broker.lock().links.contains_key(&self.id);
        Box::pin(std::future::ready(if is_over { Err(LinkError::Closed) } else { Ok(()) }))
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            match ended.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(why)) => why.clone(),
                Ok(None) | Err(_) => "the connection is over".into(),
            }
        })
    }

    fn close(&self) {
        if let Some(client) = self.broker.lock().links.remove(&self.id) {
            client.closed.send_replace(Some("we closed it".into()));
        }
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.denials.subscribe()
    }

    fn broker_info(&self) -> &BrokerInfo {
        &self.broker_info
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.close();
    }
}

struct MemorySource {
    broker: MemoryBroker,
    link: u64,
    number: u64,
    receiver: mpsc::Receiver<BrokerMessage>,
}

impl MessageSource for MemorySource {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BrokerMessage>> {
        self.receiver.poll_recv(cx)
    }

    fn drain(&mut self) -> BoxFuture<'_, ()> {
        self.unsubscribe();
        Box::pin(std::future::ready(()))
    }
}

impl MemorySource {
    fn unsubscribe(&self) {
        if let Some(client) = self.broker.lock().links.get_mut(&self.link) {
            client.subscriptions.retain(|subscription| subscription.number != self.number);
        }
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.unsubscribe();
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("links", &self.link_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
