//! A broker in memory: subjects, queue groups, rights and bad weather, under
//! whatever clock the runtime has. For tests and simulations.

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

/// Messages that wait for a slow reader before more are dropped.
const BACKLOG: usize = 4_096;

/// The longest message, as NATS has it by default.
const MAX_PAYLOAD: usize = 1 << 20;

/// A broker in memory. Clones are handles to the same one.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Mutex<MemoryBrokerState>>);

/// What the one who comes through a door may do.
#[derive(Debug, Clone, Default)]
pub struct BrokerPermissions {
    /// Patterns of subjects to publish to.
    pub publish: Vec<String>,
    /// Patterns of subjects to listen to.
    pub subscribe: Vec<String>,
    /// Whether to answer once on the reply subject of each message that comes.
    pub may_respond: bool,
}

impl BrokerPermissions {
    /// Everything.
    pub fn all() -> Self {
        Self { publish: vec![">".into()], subscribe: vec![">".into()], may_respond: true }
    }
}

/// What becomes of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageAction {
    /// It arrives at once, in order.
    Deliver,
    /// It arrives later, and others overtake it.
    Delay(Duration),
    /// It arrives at once and again later.
    Duplicate(Duration),
    /// It is lost.
    Drop,
}

/// Decides about each delivery: who sent it (the door's name), to whom, what.
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
    /// In the order in which they were made.
    subscriptions: Vec<MemorySubscription>,
    /// Reply subjects that may be answered once.
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
    /// A broker that is up.
    pub fn new() -> Self {
        let net = MemoryBrokerState {
            is_up: true,
            links: HashMap::new(),
            next: 0,
            queue_turn: 0,
            fault_injector: None,
        };
        Self(Arc::new(Mutex::new(net)))
    }

    /// A way in for somebody with a name and rights.
    pub fn for_user(&self, name: &str, rights: BrokerPermissions) -> Arc<dyn Broker> {
        Arc::new(MemoryUser { broker: self.clone(), name: name.into(), permissions: Some(rights) })
    }

    /// A way in for somebody whose credentials are wrong.
    pub fn with_bad_credentials(&self, name: &str) -> Arc<dyn Broker> {
        Arc::new(MemoryUser { broker: self.clone(), name: name.into(), permissions: None })
    }

    /// Goes down: everybody is cut off, and nobody gets in.
    pub fn go_down(&self) {
        let mut net = self.lock();
        net.is_up = false;
        for (_, member) in net.links.drain() {
            member.closed.send_replace(Some("the broker went down".into()));
        }
    }

    /// Comes up again, without a memory of who was there.
    pub fn come_up(&self) {
        self.lock().is_up = true;
    }

    /// Cuts off everybody who came through doors of that name.
    pub fn disconnect(&self, door: &str) {
        let mut net = self.lock();
        let cut: Vec<u64> =
            net.links.iter().filter(|(_, member)| &*member.user == door).map(|(id, _)| *id).collect();
        for id in cut {
            if let Some(member) = net.links.remove(&id) {
                member.closed.send_replace(Some("the connection was cut".into()));
            }
        }
    }

    /// Decides about deliveries from now on. It must not use the broker.
    pub fn set_fault_injector(&self, weather: Option<MessageFaultInjector>) {
        self.lock().fault_injector = weather;
    }

    /// Connections that are open.
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
    /// Delivers to everybody who listens, and to one of each queue.
    fn deliver(&mut self, from: &str, message: &BrokerMessage) {
        let mut queues: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        let mut chosen = Vec::new();
        let mut ids: Vec<&u64> = self.links.keys().collect();
        ids.sort_unstable();
        for id in ids {
            for interest in &self.links[id].subscriptions {
                if !subject_matches(&interest.pattern, &message.subject) {
                    continue;
                }
                match &interest.queue {
                    Some(queue) => queues.entry(queue).or_default().push((*id, interest.number)),
                    None => chosen.push((*id, interest.number)),
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
                let unheard = BrokerMessage {
                    is_no_responders: true,
                    ..BrokerMessage::new(reply.clone(), RelayHeaders::new(), Bytes::new())
                };
                self.deliver("broker", &unheard);
            }
            return;
        }
        for (id, number) in chosen {
            self.deliver_to(from, id, number, message);
        }
    }

    fn deliver_to(&mut self, from: &str, id: u64, number: u64, message: &BrokerMessage) {
        let Some(member) = self.links.get_mut(&id) else { return };
        let Some(interest) = member.subscriptions.iter().find(|interest| interest.number == number) else {
            return;
        };
        let inlet = interest.sender.clone();
        if let Some(reply) = &message.reply_to {
            member.allowed_replies.insert(reply.clone());
        }
        let fate = match &mut self.fault_injector {
            Some(weather) => weather(from, &member.user, message),
            None => MessageAction::Deliver,
        };
        let later = |delay: Duration| {
            let (inlet, message) = (inlet.clone(), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = inlet.try_send(message);
            });
        };
        match fate {
            MessageAction::Deliver => drop(inlet.try_send(message.clone())),
            MessageAction::Delay(delay) => later(delay),
            // A broker writes its own word once, into the connection of the message that it is about.
            MessageAction::Duplicate(_) if message.is_no_responders => drop(inlet.try_send(message.clone())),
            MessageAction::Duplicate(delay) => {
                let _ = inlet.try_send(message.clone());
                later(delay);
            }
            MessageAction::Drop => {}
        }
    }
}

/// Whether a subject fits a pattern with `*` and `>`.
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

/// A way in.
struct MemoryUser {
    broker: MemoryBroker,
    name: Arc<str>,
    permissions: Option<BrokerPermissions>,
}

impl Broker for MemoryUser {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            let mut net = self.broker.lock();
            if !net.is_up {
                return Err(BrokerConnectError::Unreachable("the broker is down".into()));
            }
            let Some(rights) = self.permissions.clone() else {
                return Err(BrokerConnectError::Credentials("the credentials are wrong".into()));
            };
            net.next += 1;
            let id = net.next;
            let (over, ended) = watch::channel(None);
            let denials = broadcast::Sender::new(64);
            let member = MemoryBrokerClient {
                user: Arc::clone(&self.name),
                permissions: rights,
                subscriptions: Vec::new(),
                allowed_replies: HashSet::new(),
                denials: denials.clone(),
                closed: over,
            };
            net.links.insert(id, member);
            let welcome =
                BrokerInfo { max_payload: MAX_PAYLOAD, requires_credentials: true, is_loopback: true };
            let link = MemoryLink { broker: self.broker.clone(), id, ended, denials, welcome };
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
    welcome: BrokerInfo,
}

impl MemoryLink {
    fn publish_now(&self, message: &BrokerMessage) -> Result<(), LinkError> {
        if message.body.len() > MAX_PAYLOAD {
            return Err(LinkError::TooLong { limit: MAX_PAYLOAD });
        }
        let mut net = self.broker.lock();
        let member = net.links.get_mut(&self.id).ok_or(LinkError::Closed)?;
        let may = member.permissions.publish.iter().any(|pattern| subject_matches(pattern, &message.subject))
            || (member.permissions.may_respond && member.allowed_replies.remove(&message.subject));
        if !may {
            let _ = member.denials.send(Denial::Publish(message.subject.clone()));
            return Ok(());
        }
        let door = Arc::clone(&member.user);
        net.deliver(&door, message);
        Ok(())
    }

    fn subscribe_now(&self, subject: &str, queue: Option<&str>) -> Result<BrokerSubscription, LinkError> {
        let (inlet, outlet) = mpsc::channel(BACKLOG);
        let mut net = self.broker.lock();
        net.next += 1;
        let number = net.next;
        let member = net.links.get_mut(&self.id).ok_or(LinkError::Closed)?;
        if member.permissions.subscribe.iter().any(|pattern| pattern_covers(pattern, subject)) {
            let queue = queue.map(str::to_owned);
            member.subscriptions.push(MemorySubscription {
                number,
                pattern: subject.to_owned(),
                queue,
                sender: inlet,
            });
        } else {
            let _ = member.denials.send(Denial::Subscribe(subject.to_owned()));
        }
        Ok(BrokerSubscription::new(MemorySource {
            broker: self.broker.clone(),
            link: self.id,
            number,
            receiver: outlet,
        }))
    }
}

/// Whether all that fits `subject`, itself a pattern, fits `pattern`.
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
        if let Some(member) = self.broker.lock().links.remove(&self.id) {
            member.closed.send_replace(Some("we closed it".into()));
        }
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.denials.subscribe()
    }

    fn broker_info(&self) -> &BrokerInfo {
        &self.welcome
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
        if let Some(member) = self.broker.lock().links.get_mut(&self.link) {
            member.subscriptions.retain(|interest| interest.number != self.number);
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
