//! Asking a server for one of its lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_wire::Params;

use super::Kind;
use super::pages::Pages;
use crate::host::Host;
use crate::request::Request;
use crate::server::known::Known;
use crate::server::slot::Slot;

impl Host {
    /// The list, asked for again unless it is known to be good.
    pub(crate) async fn current_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<Known>, CallError> {
        match slot.fresh_list(kind) {
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
        // Whom the server would refuse need not wait for the round of somebody
        // who was let in before.
        slot.check_open()?;
        let shelf = slot.shelf(kind);
        let before = shelf.rounds.load(Ordering::Acquire);
        let mut listing = shelf.listing.lock().await;
        if shelf.rounds.load(Ordering::Acquire) != before
            && let Some(outcome) = &*listing
            && !outcome.as_ref().is_ok_and(|known| known.is_outdated())
        {
            return outcome.clone();
        }
        let outcome = self.learn_list(slot, caller, kind).await;
        *listing = Some(outcome.clone());
        shelf.rounds.fetch_add(1, Ordering::Release);
        outcome
    }

    async fn learn_list(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<Known>, CallError> {
        let epoch = slot.epoch();
        let known = Arc::new(self.read_pages(slot, caller, kind).await?);
        // A change that was announced meanwhile found the list before this one.
        if slot.epoch() != epoch {
            known.outdate();
        }
        if slot.learn(kind, Arc::clone(&known)) {
            self.keep_lists(slot);
        }
        Ok(known)
    }

    async fn read_pages(&self, slot: &Arc<Slot>, caller: &Caller, kind: Kind) -> Result<Known, CallError> {
        let server = slot.key.server.clone();
        // Before the list is learnt: what was kept is what it is compared with.
        self.recall_lists(slot).await;
        if slot.surely_lacks(kind) {
            let generation = slot.desk().supervisor.generation();
            return Ok(Known::fresh(Vec::new(), Duration::ZERO, generation, true));
        }
        let mut pages = Pages::new(kind);
        loop {
            let params = Params::list(pages.cursor());
            let request = Request::new(caller, server.as_str(), kind.method(), params);
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
            if pages.add(&answer)? {
                let is_announced = slot.is_announced(kind);
                return Ok(pages.finish(answer.generation.unwrap_or_default(), is_announced));
            }
        }
    }
}
