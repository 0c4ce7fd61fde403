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

use super::{Broker, Denial, Link, Message, Refusal, Source, Subscription, Unsent, Welcome};
use crate::envelope::Headers;

/// Messages that wait for a slow reader before more are dropped.
const BACKLOG: usize = 4_096;

/// The longest message, as NATS has it by default.
const MAX_PAYLOAD: usize = 1 << 20;

/// A broker in memory. Clones are handles to the same one.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Mutex<Net>>);

/// What the one who comes through a door may do.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// Patterns of subjects to publish to.
    pub publish: Vec<String>,
    /// Patterns of subjects to listen to.
    pub subscribe: Vec<String>,
    /// Whether to answer once on the reply subject of each message that comes.
    pub may_respond: bool,
}

impl Rights {
    /// Everything.
    pub fn all() -> Self {
        Self { publish: vec![">".into()], subscribe: vec![">".into()], may_respond: true }
    }
}

/// What becomes of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at once, in order.
    Arrives,
    /// It arrives later, and others overtake it.
    After(Duration),
    /// It arrives at once and again later.
    Twice(Duration),
    /// It is lost.
    Lost,
}

/// Decides about each delivery: who sent it (the door's name), to whom, what.
pub type Weather = Box<dyn FnMut(&str, &str, &Message) -> Fate + Send>;

struct Net {
    is_up: bool,
    links: HashMap<u64, Member>,
    next: u64,
    turn: usize,
    weather: Option<Weather>,
}

struct Member {
    door: Arc<str>,
    rights: Rights,
    /// In the order in which they were made.
    interests: Vec<Interest>,
    /// Reply subjects that may be answered once.
    owed: HashSet<String>,
    denials: broadcast::Sender<Denial>,
    over: watch::Sender<Option<String>>,
}

struct Interest {
    number: u64,
    pattern: String,
    queue: Option<String>,
    inlet: mpsc::Sender<Message>,
}

impl MemoryBroker {
    /// A broker that is up.
    pub fn new() -> Self {
        let net = Net { is_up: true, links: HashMap::new(), next: 0, turn: 0, weather: None };
        Self(Arc::new(Mutex::new(net)))
    }

    /// A way in for somebody with a name and rights.
    pub fn door(&self, name: &str, rights: Rights) -> Arc<dyn Broker> {
        Arc::new(Door { broker: self.clone(), name: name.into(), rights: Some(rights) })
    }

    /// A way in for somebody whose credentials are wrong.
    pub fn wrong_door(&self, name: &str) -> Arc<dyn Broker> {
        Arc::new(Door { broker: self.clone(), name: name.into(), rights: None })
    }

    /// Goes down: everybody is cut off, and nobody gets in.
    pub fn go_down(&self) {
        let mut net = self.net();
        net.is_up = false;
        for (_, member) in net.links.drain() {
            member.over.send_replace(Some("the broker went down".into()));
        }
    }

    /// Comes up again, without a memory of who was there.
    pub fn come_up(&self) {
        self.net().is_up = true;
    }

    /// Cuts off everybody who came through doors of that name.
    pub fn cut(&self, door: &str) {
        let mut net = self.net();
        let cut: Vec<u64> =
            net.links.iter().filter(|(_, member)| &*member.door == door).map(|(id, _)| *id).collect();
        for id in cut {
            if let Some(member) = net.links.remove(&id) {
                member.over.send_replace(Some("the connection was cut".into()));
            }
        }
    }

    /// Decides about deliveries from now on. It must not use the broker.
    pub fn set_weather(&self, weather: Option<Weather>) {
        self.net().weather = weather;
    }

    /// Connections that are open.
    pub fn links(&self) -> usize {
        self.net().links.len()
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl Net {
    /// Delivers to everybody who listens, and to one of each queue.
    fn deliver(&mut self, from: &str, message: &Message) {
        let mut queues: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        let mut chosen = Vec::new();
        let mut ids: Vec<&u64> = self.links.keys().collect();
        ids.sort_unstable();
        for id in ids {
            for interest in &self.links[id].interests {
                if !matches(&interest.pattern, &message.subject) {
                    continue;
                }
                match &interest.queue {
                    Some(queue) => queues.entry(queue).or_default().push((*id, interest.number)),
                    None => chosen.push((*id, interest.number)),
                }
            }
        }
        for (_, members) in queues {
            self.turn = self.turn.wrapping_add(1);
            chosen.push(members[self.turn % members.len()]);
        }
        chosen.sort_unstable();
        if chosen.is_empty() {
            if let Some(reply) = &message.reply {
                let unheard =
                    Message { is_unheard: true, ..Message::new(reply.clone(), Headers::new(), Bytes::new()) };
                self.deliver("broker", &unheard);
            }
            return;
        }
        for (id, number) in chosen {
            self.hand_over(from, id, number, message);
        }
    }

    fn hand_over(&mut self, from: &str, id: u64, number: u64, message: &Message) {
        let Some(member) = self.links.get_mut(&id) else { return };
        let Some(interest) = member.interests.iter().find(|interest| interest.number == number) else {
            return;
        };
        let inlet = interest.inlet.clone();
        if let Some(reply) = &message.reply {
            member.owed.insert(reply.clone());
        }
        let fate = match &mut self.weather {
            Some(weather) => weather(from, &member.door, message),
            None => Fate::Arrives,
        };
        let later = |delay: Duration| {
            let (inlet, message) = (inlet.clone(), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = inlet.try_send(message);
            });
        };
        match fate {
            Fate::Arrives => drop(inlet.try_send(message.clone())),
            Fate::After(delay) => later(delay),
            // A broker writes its own word once, into the connection of the message that it is about.
            Fate::Twice(_) if message.is_unheard => drop(inlet.try_send(message.clone())),
            Fate::Twice(delay) => {
                let _ = inlet.try_send(message.clone());
                later(delay);
            }
            Fate::Lost => {}
        }
    }
}

/// Whether a subject fits a pattern with `*` and `>`.
pub fn matches(pattern: &str, subject: &str) -> bool {
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
struct Door {
    broker: MemoryBroker,
    name: Arc<str>,
    rights: Option<Rights>,
}

impl Broker for Door {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Link>, Refusal>> {
        Box::pin(async move {
            let mut net = self.broker.net();
            if !net.is_up {
                return Err(Refusal::Away("the broker is down".into()));
            }
            let Some(rights) = self.rights.clone() else {
                return Err(Refusal::Credentials("the credentials are wrong".into()));
            };
            net.next += 1;
            let id = net.next;
            let (over, ended) = watch::channel(None);
            let denials = broadcast::Sender::new(64);
            let member = Member {
                door: Arc::clone(&self.name),
                rights,
                interests: Vec::new(),
                owed: HashSet::new(),
                denials: denials.clone(),
                over,
            };
            net.links.insert(id, member);
            let welcome = Welcome { max_payload: MAX_PAYLOAD, asks_for_credentials: true, is_loopback: true };
            let link = MemoryLink { broker: self.broker.clone(), id, ended, denials, welcome };
            Ok(Arc::new(link) as Arc<dyn Link>)
        })
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

struct MemoryLink {
    broker: MemoryBroker,
    id: u64,
    ended: watch::Receiver<Option<String>>,
    denials: broadcast::Sender<Denial>,
    welcome: Welcome,
}

impl MemoryLink {
    fn publish_now(&self, message: &Message) -> Result<(), Unsent> {
        if message.body.len() > MAX_PAYLOAD {
            return Err(Unsent::TooLong { limit: MAX_PAYLOAD });
        }
        let mut net = self.broker.net();
        let member = net.links.get_mut(&self.id).ok_or(Unsent::Over)?;
        let may = member.rights.publish.iter().any(|pattern| matches(pattern, &message.subject))
            || (member.rights.may_respond && member.owed.remove(&message.subject));
        if !may {
            let _ = member.denials.send(Denial::Publish(message.subject.clone()));
            return Ok(());
        }
        let door = Arc::clone(&member.door);
        net.deliver(&door, message);
        Ok(())
    }

    fn subscribe_now(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, Unsent> {
        let (inlet, outlet) = mpsc::channel(BACKLOG);
        let mut net = self.broker.net();
        net.next += 1;
        let number = net.next;
        let member = net.links.get_mut(&self.id).ok_or(Unsent::Over)?;
        if member.rights.subscribe.iter().any(|pattern| covers(pattern, subject)) {
            let queue = queue.map(str::to_owned);
            member.interests.push(Interest { number, pattern: subject.to_owned(), queue, inlet });
        } else {
            let _ = member.denials.send(Denial::Subscribe(subject.to_owned()));
        }
        Ok(Subscription::new(Outlet { broker: self.broker.clone(), link: self.id, number, outlet }))
    }
}

/// Whether all that fits `subject`, itself a pattern, fits `pattern`.
fn covers(pattern: &str, subject: &str) -> bool {
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

impl Link for MemoryLink {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move { self.publish_now(&message) })
    }

    fn subscribe(&self, subject: &str, queue: Option<&str>) -> BoxFuture<'_, Result<Subscription, Unsent>> {
        let subscribed = self.subscribe_now(subject, queue);
        Box::pin(std::future::ready(subscribed))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Unsent>> {
        let is_over = !self.broker.net().links.contains_key(&self.id);
        Box::pin(std::future::ready(if is_over { Err(Unsent::Over) } else { Ok(()) }))
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
        if let Some(member) = self.broker.net().links.remove(&self.id) {
            member.over.send_replace(Some("we closed it".into()));
        }
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.denials.subscribe()
    }

    fn welcome(&self) -> &Welcome {
        &self.welcome
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.close();
    }
}

struct Outlet {
    broker: MemoryBroker,
    link: u64,
    number: u64,
    outlet: mpsc::Receiver<Message>,
}

impl Source for Outlet {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.outlet.poll_recv(cx)
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        self.forget();
        Box::pin(std::future::ready(()))
    }
}

impl Outlet {
    fn forget(&self) {
        if let Some(member) = self.broker.net().links.get_mut(&self.link) {
            member.interests.retain(|interest| interest.number != self.number);
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.forget();
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("links", &self.links()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
