//! Argument validation: a call is sent only with arguments that fit the schema of its tool.
//!
//! A call is refused only by a definition that the server is known to have now; whatever is in doubt is sent, and the
//! server decides. Schemas are compiled when their tool is first called, and kept for all servers together, by the
//! hash of the definition, bounded in number and bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;
use ostler_core::error::CallError;
use ostler_core::pins::Section;
use ostler_core::schema::{ArgumentSchema, Bounded, Mistake};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use crate::host::Host;
use crate::lists::Kind;
use crate::off_thread::{LONG, off_thread};
use crate::request::Request;
use crate::server::judgement::is_unapproved;
use crate::server::known::{DefinitionHash, Known};
use crate::server::slot::Slot;
use crate::tools::within;

/// The most compiled schemas that are kept.
const MOST_KEPT: usize = 256;
/// The most bytes of schema text whose compiled forms are kept. A compiled form takes about 25 times its text;
/// compiling it again takes 40 µs per KiB.
const MOST_TEXT: usize = 256 << 10;
/// Text of a schema that judges nothing; keeping that costs little.
const LEAST_TEXT: usize = 64;
/// Compiling a byte takes as long as reading so many.
const COMPILING: usize = 32;
/// Arguments above this are read and checked on a thread of their own.
const LARGE_ARGUMENTS: usize = 32 << 10;
/// The same for a check of more steps than this, which take some 50 ns each.
const MANY_STEPS: u64 = 10_000;

/// Long checks at once.
const MOST_CHECKS: usize = 2;

/// A compiled schema; `None` where a definition has none that judges anything.
type Compiled = Option<Arc<ArgumentSchema>>;

/// Compiled schemas of the tools that were called last.
pub(crate) struct Schemas {
    kept: Mutex<Kept>,
    /// Held while a large one is compiled, so that only one is at a time.
    compiling: AsyncMutex<()>,
    /// Threads for long checks. A call that finds none is sent unchecked: callers must not wait for each other's checks.
    checking: Arc<Semaphore>,
}

struct Kept {
    schemas: LruCache<DefinitionHash, Compiled>,
    text: usize,
}

impl Default for Schemas {
    fn default() -> Self {
        let kept = Kept { schemas: LruCache::new_unbounded(), text: 0 };
        let checking = Arc::new(Semaphore::new(MOST_CHECKS));
        Self { kept: Mutex::new(kept), compiling: AsyncMutex::default(), checking }
    }
}

impl Schemas {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, hash: &DefinitionHash) -> Option<Compiled> {
        self.kept().schemas.get(hash).cloned()
    }

    fn keep(&self, hash: DefinitionHash, compiled: Compiled) {
        let mut kept = self.kept();
        kept.text += text_of(&compiled);
        if let Some(before) = kept.schemas.insert(hash, compiled) {
            kept.text -= text_of(&before);
        }
        while kept.schemas.len() > MOST_KEPT || kept.text > MOST_TEXT {
            let Some((_, oldest)) = kept.schemas.remove_lru() else { break };
            kept.text -= text_of(&oldest);
        }
    }
}

fn text_of(compiled: &Compiled) -> usize {
    compiled.as_ref().map_or(LEAST_TEXT, |schema| schema.size().max(LEAST_TEXT))
}

/// One tool as one list defines it.
struct Defined<'a> {
    slot: &'a Slot,
    tool: &'a str,
    known: &'a Known,
}

impl Host {
    /// Refuses a call whose arguments do not fit the schema of its tool. Only for callers who may use the tool.
    pub(crate) async fn check_arguments(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<(), CallError> {
        // The first part of a continued call was checked, and its server waits for the rest.
        if !slot.spec.validate || request.params.is_continuation() {
            return Ok(());
        }
        let Some(tool) = request.tool_name() else { return Ok(()) };
        let Some(known) = slot.known_to(request.caller(), Kind::Tools) else { return Ok(()) };
        let mistakes = self.mistakes(Defined { slot, tool: &tool, known: &known }, request).await;
        if mistakes.is_empty() {
            return Ok(());
        }
        let generation = slot.desk().supervisor.generation();
        let mistakes = match known.is_definite(generation) {
            true => mistakes,
            false => Box::pin(self.mistakes_by_now(slot, &tool, request)).await?,
        };
        match mistakes.is_empty() {
            true => Ok(()),
            false => Err(CallError::InvalidArguments {
                server: slot.key.server.clone(),
                tool: tool.into_owned(),
                mistakes,
            }),
        }
    }

    /// Asks the server for its list, which may be another one by now, and judges by that. A server that can't be
    /// asked refuses nothing: the call itself finds out why.
    async fn mistakes_by_now(
        &self,
        slot: &Arc<Slot>,
        tool: &str,
        request: &Request<'_>,
    ) -> Result<Vec<Mistake>, CallError> {
        slot.check_calls()?;
        let fetch = self.fetch_list(slot, request.caller(), Kind::Tools);
        match within(request, slot, fetch).await {
            Ok(known) => Ok(self.mistakes(Defined { slot, tool, known: &known }, request).await),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// What is wrong with the arguments of a call by one definition of its tool.
    async fn mistakes(&self, defined: Defined<'_>, request: &Request<'_>) -> Vec<Mistake> {
        let Defined { known, tool, .. } = defined;
        let Some(hash) = known.definition_hash(tool) else { return Vec::new() };
        if !self.may_judge(&defined) {
            return Vec::new();
        }
        let compiled = match self.schemas().get(&hash) {
            Some(compiled) => compiled,
            None => Box::pin(self.compile(&defined, hash)).await,
        };
        let Some(schema) = compiled else { return Vec::new() };
        let arguments = request.params.arguments();
        if arguments.is_none_or(|arguments| arguments.len() <= LARGE_ARGUMENTS) {
            match schema.bound(arguments) {
                None => return Vec::new(),
                Some(bounded) if is_quick(&bounded) => return schema.check(&bounded),
                Some(_) => {}
            }
        }
        let Ok(permit) = Arc::clone(&self.schemas().checking).try_acquire_owned() else { return Vec::new() };
        let (params, check) = (request.params.clone(), move |arguments: Option<&[u8]>| {
            // Held until the check is over, also when its caller has left.
            let _permit = permit;
            schema.bound(arguments).map_or_else(Vec::new, |bounded| schema.check(&bounded))
        });
        // How long it takes does not follow from its bytes.
        off_thread(usize::MAX, move || check(params.arguments())).await
    }

    /// Returns whether a definition may judge calls, and be quoted to callers: nothing says that it is not approved,
    /// and the server has no other one of that name.
    fn may_judge(&self, defined: &Defined<'_>) -> bool {
        let Defined { slot, tool, known } = defined;
        if known.is_repeated(tool) {
            return false;
        }
        let current = self.current();
        let Some(pins) = current.enforced() else { return true };
        let (server, section) = (&slot.key.server, Section::Tools);
        !pins.covers(server.as_str(), section)
            || !known.standing(pins, (server, section), tool).is_some_and(is_unapproved)
    }

    async fn compile(&self, defined: &Defined<'_>, hash: DefinitionHash) -> Compiled {
        let definition = defined.known.definition(defined.tool)?;
        let size = definition.len() * COMPILING;
        let _turn = if size > LONG { Some(self.schemas().compiling.lock().await) } else { None };
        if let Some(compiled) = self.schemas().get(&hash) {
            return compiled;
        }
        let result = off_thread(size, move || ArgumentSchema::compile(&definition)).await;
        let compiled = match result {
            Ok(schema) => Some(Arc::new(schema)),
            Err(why) => {
                let Defined { slot, tool, .. } = defined;
                let server = &slot.key.server;
                tracing::warn!(%server, tool, %why, "arguments are not checked: the tool's inputSchema is unusable");
                None
            }
        };
        self.schemas().keep(hash, compiled.clone());
        compiled
    }
}

/// Returns whether a check may be made on a thread of the runtime.
fn is_quick(bounded: &Bounded) -> bool {
    bounded.steps <= MANY_STEPS
}
