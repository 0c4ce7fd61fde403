//! Asking a server for one of its lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_wire::Params;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::Kind;
use super::pages::Pages;
use crate::host::Host;
use crate::off_thread::off_thread;
use crate::request::Request;
use crate::server::known::{Known, list_owner};
use crate::server::shelf::LastRound;
use crate::server::slot::Slot;

/// The longest that all pages of one list may take together.
const MAX_ROUND: Duration = Duration::from_secs(120);

/// Whether asking for a list may start its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Active,
    Passive,
}

/// A place in the asking for a list.
pub(super) enum Round {
    /// Another one was under way, and this is what it has brought.
    Shared(Result<Arc<Known>, CallError>),
    /// Nobody asks now, nor can anybody as long as this is held.
    Own(OwnedMutexGuard<LastRound>),
}

impl Slot {
    /// Waits for the round that is under way, if there is one.
    pub(super) async fn join_round(&self, caller: &Caller, kind: Kind) -> Result<Round, CallError> {
        // Whom the server would refuse need not wait for the round of somebody
        // who was let in before.
        self.check_open()?;
        let shelf = self.shelf(kind);
        let before = shelf.rounds.load(Ordering::Acquire);
        let listing = Arc::clone(&shelf.listing).lock_owned().await;
        let is_over = shelf.rounds.load(Ordering::Acquire) != before;
        match &*listing {
            Some(outcome) if is_over && may_share(outcome, caller) => Ok(Round::Shared(outcome.clone())),
            _ => Ok(Round::Own(listing)),
        }
    }
}

/// Whether what somebody else's round has brought is good for a caller too.
fn may_share(outcome: &Result<Arc<Known>, CallError>, caller: &Caller) -> bool {
    outcome.as_ref().map_or(true, |known| !known.is_outdated() && known.is_for(caller))
}

impl Host {
    /// The list, asked for again unless it is known to be good.
    pub(crate) async fn current_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<Known>, CallError> {
        match slot.fresh_list(caller, kind) {
            Some(known) => Ok(known),
            None => self.fetch_list(slot, caller, kind).await,
        }
    }

    /// Asks the server for all pages of its list. Callers that ask at the same
    /// time share one round of requests, and its failure too.
    pub(crate) async fn fetch_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<Known>, CallError> {
        match slot.join_round(caller, kind).await? {
            Round::Shared(outcome) => outcome,
            Round::Own(listing) => self.ask_round(slot, (caller, kind), listing).await,
        }
    }

    /// Asks the session that is there for a list that is not known to be good. Never starts one.
    pub(crate) async fn refresh_live_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<(), CallError> {
        if slot.fresh_list(caller, kind).is_some() || slot.live().is_none() {
            return Ok(());
        }
        if let Round::Own(mut listing) = slot.join_round(caller, kind).await? {
            let reading = self.learn_list(slot, (caller, kind), Demand::Passive);
            let outcome = timeout(slot.spec.call_timeout.min(MAX_ROUND), reading).await;
            // A failure is nobody else's: whoever waits may start a session.
            if let Ok(Ok(known)) = outcome {
                *listing = Some(Ok(known));
                slot.shelf(kind).rounds.fetch_add(1, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Makes a round of requests, and leaves what it brings to those who wait.
    pub(super) async fn ask_round(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        mut listing: OwnedMutexGuard<LastRound>,
    ) -> Result<Arc<Known>, CallError> {
        // The session is wanted until the list is there.
        let _wanted = slot.visit();
        slot.until_started().await;
        let longest = slot.spec.call_timeout.min(MAX_ROUND);
        let reading = self.learn_list(slot, (caller, kind), Demand::Active);
        let outcome = match timeout(longest, reading).await {
            Ok(outcome) => outcome,
            Err(_) => Err(slot.list_timed_out(longest)),
        };
        *listing = Some(outcome.clone());
        slot.shelf(kind).rounds.fetch_add(1, Ordering::Release);
        outcome
    }

    async fn learn_list(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        demand: Demand,
    ) -> Result<Arc<Known>, CallError> {
        let (epoch, changes) = (slot.epoch(), slot.shelf(kind).changes.load(Ordering::Acquire));
        let known = Arc::new(self.read_pages(slot, (caller, kind), demand).await?.seen_after(changes));
        // Once it is learnt, whoever needs it judged would have to judge it.
        self.judge_list(&slot.key.server, kind, &known).await;
        // A change that was announced meanwhile found the list before this one.
        if slot.epoch() != epoch {
            known.outdate();
        }
        if slot.learn(kind, Arc::clone(&known)) {
            slot.log_invalid(kind, &known);
            self.keep_lists(slot);
        }
        // Whoever was shown what is pinned was shown more than there is.
        if self.look_over(slot, kind, &known) {
            slot.tell_repinned(kind);
        }
        Ok(known)
    }

    async fn read_pages(
        &self,
        slot: &Arc<Slot>,
        (caller, kind): (&Caller, Kind),
        demand: Demand,
    ) -> Result<Known, CallError> {
        let server = slot.key.server.clone();
        // Before the list is learnt: what was kept is what it is compared with.
        self.recall_lists(slot).await;
        if slot.surely_lacks(kind) {
            let generation = slot.desk().supervisor.generation();
            return Ok(Known::fresh(Vec::new(), Duration::ZERO, generation, true));
        }
        let mut pages = Pages::new(kind, kind.cap(&slot.spec));
        loop {
            let params = Params::list(pages.cursor());
            let mut request = Request::new(caller, kind.method(), params).at(server.clone());
            request.is_passive = demand == Demand::Passive;
            let answer = match self.perform(slot, &request).await {
                Ok(answer) => answer,
                // A server without any says that it has no such method.
                Err(CallError::Rpc(error))
                    if error.code == ostler_wire::METHOD_NOT_FOUND && pages.is_first() =>
                {
                    let generation = slot.desk().supervisor.generation();
                    return Ok(Known::fresh(Vec::new(), Duration::ZERO, generation, true));
                }
                Err(error) => return Err(error),
            };
            let is_last;
            let size = answer.body.len();
            let add = move || {
                let is_last = pages.add(&answer);
                (pages, is_last)
            };
            (pages, is_last) = off_thread(size, add).await;
            if is_last? {
                let known = pages.finish(slot.is_announced(kind));
                let is_private = slot.is_private(&known);
                return Ok(if is_private { known.owned_by(&*list_owner(caller)) } else { known });
            }
        }
    }
}
