//! Identical concurrent reads share one upstream request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ostler_core::cache::CacheKey;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::retry::MethodKind;
use ostler_core::spec::CacheRule;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::answer::Answer;
use crate::host::Host;
use crate::in_flight::InFlight;
use crate::recall::cache_key;
use crate::request::Request;
use crate::server::PartitionOwner;
use crate::server::slot::Slot;

/// Key of a pending read: equal for all readers that share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CoalesceKey {
    key: CacheKey,
    /// Readers with different [owners](Slot::owner) never share: the answer may be private.
    owner: Arc<str>,
    /// One reader's verdict decides about sending, so all of them have the same: of one role, by one snapshot (the
    /// address of a value that the read holds), and about an item that is hidden from all or from none.
    role: Arc<str>,
    snapshot_address: usize,
    is_hidden: bool,
}

impl CoalesceKey {
    fn new(key: CacheKey, slot: &Slot, request: &Request<'_>) -> Self {
        Self {
            key,
            owner: slot.cache_owner(request.caller()).into(),
            role: request.caller().role().into(),
            snapshot_address: request.snapshot.as_ref().map_or(0, |judged_by| Arc::as_ptr(judged_by).addr()),
            is_hidden: request.is_hidden,
        }
    }
}

/// Outcome of a read, set once it is known.
#[derive(Debug, Default)]
struct PendingRead {
    result: OnceLock<Result<Answer, CallError>>,
    done: Notify,
}

impl PendingRead {
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

/// Reads in flight.
#[derive(Debug, Default)]
pub(crate) struct PendingReads(Mutex<HashMap<CoalesceKey, Arc<PendingRead>>>);

impl PendingReads {
    /// Keeps callers from joining the reads of a principal that has gone.
    pub(crate) fn forget(&self, owner: PartitionOwner<'_>) {
        self.lock().retain(|reading, _| !owner.owns(&reading.owner));
    }

    /// Removes a read, unless another one has replaced it.
    fn remove(&self, reading: &CoalesceKey, read: &Arc<PendingRead>) {
        let mut under_way = self.lock();
        if under_way.get(reading).is_some_and(|other| Arc::ptr_eq(other, read)) {
            under_way.remove(reading);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CoalesceKey, Arc<PendingRead>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Returns whether a request may share an upstream request: reads may, and tools that the operator has declared
    /// cacheable. A request with an observer or with an answer to a question may not.
    pub(crate) fn may_coalesce(&self, slot: &Slot, request: &Request<'_>) -> bool {
        if request.call_observer.is_some() || request.params.is_continuation() {
            return false;
        }
        match request.method_kind() {
            MethodKind::Read => true,
            MethodKind::Call => {
                let tool = request.tool_name();
                let rule = |tool: &str| self.with_spec(slot, request, |spec| spec.tool_rules(tool).cache);
                tool.is_some_and(|tool| matches!(rule(&tool), CacheRule::For(_)))
            }
        }
    }

    /// Joins an equal read in flight, or begins one. The read runs in a task of its own, so that its first caller may
    /// leave; that caller's in-flight permit moves to the task.
    pub(crate) async fn coalesce(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: InFlight,
    ) -> Result<Answer, CallError> {
        let Some(key) = cache_key(slot, request) else {
            return self.send_and_cache(slot, request).await;
        };
        let mut in_flight = Some(in_flight);
        let reading = CoalesceKey::new(key, slot, request);
        let shared = self.join_or_begin(reading, slot, request, &mut in_flight);
        match request.deadline {
            Some(deadline) => match timeout_at(deadline, shared.result()).await {
                Ok(result) => result,
                Err(_) => Err(slot.timed_out_error(request, Delivery::Unknown)),
            },
            None => shared.result().await,
        }
    }

    fn join_or_begin(
        &self,
        reading: CoalesceKey,
        slot: &Arc<Slot>,
        request: &Request<'_>,
        in_flight: &mut Option<InFlight>,
    ) -> Arc<PendingRead> {
        let mut under_way = self.inner().responses.pending_reads.lock();
        // Checked under the lock: a credential that ends later finds the read that is begun here.
        let is_shared = !request.caller().is_credential_ended();
        if let Some(shared) = under_way.get(&reading).filter(|_| is_shared) {
            return Arc::clone(shared);
        }
        let shared = Arc::<PendingRead>::default();
        if is_shared {
            under_way.insert(reading.clone(), Arc::clone(&shared));
        }
        let ending = CompletionGuard {
            host: self.clone(),
            slot: Arc::clone(slot),
            reading,
            shared: Arc::clone(&shared),
            result: None,
            in_flight: in_flight.take(),
        };
        let owned = as_host_request(slot, request);
        tokio::spawn(async move {
            let mut ending = ending;
            ending.result = Some(ending.host.send_and_cache(&ending.slot, &owned).await);
        });
        shared
    }
}

/// Guard of a read's task. When the task ends, even by a panic or with its runtime, the guard removes the read,
/// releases the in-flight permit and wakes all readers; after a panic there is no result.
struct CompletionGuard {
    host: Host,
    slot: Arc<Slot>,
    reading: CoalesceKey,
    shared: Arc<PendingRead>,
    result: Option<Result<Answer, CallError>>,
    /// In-flight permit of the reader that began the read.
    in_flight: Option<InFlight>,
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        self.host.inner().responses.pending_reads.remove(&self.reading, &self.shared);
        // A reader may send its next request as soon as it wakes, and must not be counted twice.
        drop(self.in_flight.take());
        let result = self.result.take().unwrap_or_else(|| Err(self.slot.shutting_down_error()));
        let _ = self.shared.result.set(result);
        self.shared.done.notify_waiters();
    }
}

/// Detaches a request from its caller. It speaks for the host and not for the client that asked first: the readers'
/// shared answer must not depend on one client's capabilities.
fn as_host_request(slot: &Slot, request: &Request<'_>) -> Request<'static> {
    let mut own = Request::new(request.caller(), request.method(), request.params.clone());
    own.is_hidden = request.is_hidden;
    own.snapshot.clone_from(&request.snapshot);
    own.with_server(slot.key.server.clone()).into_owned()
}
