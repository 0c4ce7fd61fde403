//! Identical concurrent reads share one upstream request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ostler_core::cache::Key;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::repeat::MethodKind;
use ostler_core::spec::CacheRule;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::answer::Answer;
use crate::host::Host;
use crate::in_flight::InFlight;
use crate::recall::cache_key;
use crate::request::Request;
use crate::server::slot::Slot;

/// One read under way: the same for everyone who asks while it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reading {
    key: Key,
    /// Readers with different [owners](Slot::owner) never share: the answer may be private.
    owner: Arc<str>,
    /// One reader's verdict decides about sending, so all of them have the same: of one role, by one snapshot (the
    /// address of a value that the read holds), and about an item that is hidden from all or from none.
    role: Arc<str>,
    judged_by: usize,
    is_hidden: bool,
}

impl Reading {
    fn new(key: Key, slot: &Slot, request: &Request<'_>) -> Self {
        Self {
            key,
            owner: slot.owner(request.caller()).into(),
            role: request.caller().role().into(),
            judged_by: request.judged_by.as_ref().map_or(0, |judged_by| Arc::as_ptr(judged_by).addr()),
            is_hidden: request.is_hidden,
        }
    }
}

/// What came of a read, as soon as something did.
#[derive(Debug, Default)]
struct Shared {
    result: OnceLock<Result<Answer, CallError>>,
    done: Notify,
}

impl Shared {
    async fn result(&self) -> Result<Answer, CallError> {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if let Some(result) = self.result.get() {
                return result.clone();
            }
            done.await;
        }
    }
}

/// Reads under way.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<HashMap<Reading, Arc<Shared>>>);

impl Host {
    /// Reads, and tools that the operator has declared cacheable, may be
    /// shared. One with a voice or an answer to a question may not.
    pub(crate) fn may_share(&self, slot: &Slot, request: &Request<'_>) -> bool {
        if request.voice.is_some() || request.params.is_continuation() {
            return false;
        }
        match request.kind() {
            MethodKind::Read => true,
            MethodKind::Call => {
                let tool = request.tool_name();
                tool.is_some_and(|tool| matches!(slot.spec.rules(&tool).cache, CacheRule::For(_)))
            }
        }
    }

    /// Joins the same read if one is under way, or begins one. It runs in a
    /// task of its own, so that whoever began it may leave; the count of the
    /// one who began it goes over to the task.
    pub(crate) async fn share(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: InFlight,
    ) -> Result<Answer, CallError> {
        let Some(key) = cache_key(slot, request) else {
            return self.perform_and_remember(slot, request).await;
        };
        let mut in_flight = Some(in_flight);
        let reading = Reading::new(key, slot, request);
        let shared = self.join_or_begin(reading, slot, request, &mut in_flight);
        match request.deadline {
            Some(deadline) => match timeout_at(deadline, shared.result()).await {
                Ok(result) => result,
                Err(_) => Err(slot.out_of_time(request, Delivery::Unknown)),
            },
            None => shared.result().await,
        }
    }

    fn join_or_begin(
        &self,
        reading: Reading,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: &mut Option<InFlight>,
    ) -> Arc<Shared> {
        let readings = &self.shared().responses.readings;
        let mut under_way = readings.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = under_way.get(&reading) {
            return Arc::clone(shared);
        }
        let shared = Arc::<Shared>::default();
        under_way.insert(reading.clone(), Arc::clone(&shared));
        let ending = Ending {
            host: self.clone(),
            slot: Arc::clone(slot),
            reading,
            shared: Arc::clone(&shared),
            result: None,
            in_flight: in_flight.take(),
        };
        let owned = in_the_hosts_name(slot, request);
        tokio::spawn(async move {
            let mut ending = ending;
            ending.result = Some(ending.host.perform_and_remember(&ending.slot, &owned).await);
        });
        shared
    }
}

/// Takes a reading off the list, counts it out and tells everybody when its
/// task ends, however it ends: one that panics or loses its runtime has no result.
struct Ending {
    host: Host,
    slot: Arc<Slot>,
    reading: Reading,
    shared: Arc<Shared>,
    result: Option<Result<Answer, CallError>>,
    /// The count of the one who began it.
    in_flight: Option<InFlight>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.host
            .shared()
            .responses
            .readings
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.reading);
        // Who is told may come again at once, and must not meet its own count.
        drop(self.in_flight.take());
        let result = self.result.take().unwrap_or_else(|| Err(self.slot.vanished()));
        let _ = self.shared.result.set(result);
        self.shared.done.notify_waiters();
    }
}

/// A request that outlives whoever made it. It speaks for the host and not for
/// the client that happened to ask first: what its readers share must not
/// depend on what one of them can do.
fn in_the_hosts_name(slot: &Slot, request: &Request<'_>) -> Request<'static> {
    let mut own = Request::new(request.caller(), request.method(), request.params.clone());
    own.is_hidden = request.is_hidden;
    own.judged_by.clone_from(&request.judged_by);
    own.at(slot.key.server.clone()).into_owned()
}
