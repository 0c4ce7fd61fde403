//! Argument validation: a call is sent only with arguments that fit the schema of its tool.
//!
//! A call is refused only by a definition that the server is known to have now; in doubt the call is sent, and the
//! server decides. Schemas are compiled when their tool is first called, and cached for all servers together, by the
//! hash of the definition, bounded in number and bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;
use ostler_core::argument_schema::{ArgumentSchema, BoundedArguments, Mistake};
use ostler_core::error::CallError;
use ostler_core::pins::LockSection;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use crate::blocking::{MAX_INLINE_BYTES, run_blocking_if_large};
use crate::host::Host;
use crate::lists::Kind;
use crate::request::Request;
use crate::server::pin_verdicts::is_unapproved;
use crate::server::server_list::{DefinitionHash, ServerList};
use crate::server::slot::Slot;
use crate::tools::with_deadline;

/// Bounds the number of cached schemas.
const MAX_SCHEMAS: usize = 256;
/// Bounds the text of cached schemas. A compiled form takes about 25 times its text; compiling it again takes 40 µs per
/// KiB.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Size charged for a schema that restricts nothing, which costs little to cache.
const MIN_SCHEMA_BYTES: usize = 64;
/// Cost of compiling one byte, in bytes read.
const COMPILE_COST: usize = 32;
/// Larger arguments are read and checked on a thread of their own.
const MAX_INLINE_ARGUMENTS: usize = 32 << 10;
/// Longer checks run on a thread of their own; a step takes some 50 ns.
const MAX_INLINE_STEPS: u64 = 10_000;

/// Bounds the concurrent long checks.
const MAX_CONCURRENT_CHECKS: usize = 2;

/// A compiled schema; `None` where a definition has none that restricts anything.
type CompiledSchema = Option<Arc<ArgumentSchema>>;

/// Compiled schemas of the most recently called tools.
pub(crate) struct SchemaCache {
    compiled: Mutex<CompiledSchemas>,
    /// Held while a large schema is compiled, so that only one is compiled at a time, also when the call that wanted it
    /// is given up.
    compile_lock: Arc<AsyncMutex<()>>,
    /// Permits of threads for long checks. A call that gets none is sent unchecked: callers must not wait for each
    /// other's checks.
    check_permits: Arc<Semaphore>,
}

struct CompiledSchemas {
    schemas: LruCache<DefinitionHash, CompiledSchema>,
    text_bytes: usize,
}

impl Default for SchemaCache {
    fn default() -> Self {
        let kept = CompiledSchemas { schemas: LruCache::new_unbounded(), text_bytes: 0 };
        let checking = Arc::new(Semaphore::new(MAX_CONCURRENT_CHECKS));
        Self { compiled: Mutex::new(kept), compile_lock: Arc::default(), check_permits: checking }
    }
}

impl SchemaCache {
    fn compiled(&self) -> MutexGuard<'_, CompiledSchemas> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, hash: &DefinitionHash) -> Option<CompiledSchema> {
        self.compiled().schemas.get(hash).cloned()
    }

    /// Compiles a schema of `size` bytes of work, once for all callers. A compilation that has begun completes and is
    /// cached, even if its callers leave.
    async fn compile(
        self: &Arc<Self>,
        hash: DefinitionHash,
        size: usize,
        compile: impl FnOnce() -> CompiledSchema + Send + 'static,
    ) -> CompiledSchema {
        let turn = match size > MAX_INLINE_BYTES {
            true => Some(Arc::clone(&self.compile_lock).lock_owned().await),
            false => None,
        };
        if let Some(compiled) = self.get(&hash) {
            return compiled;
        }
        let schemas = Arc::clone(self);
        let work = move || {
            let _turn = turn;
            let compiled = compile();
            schemas.insert(hash, compiled.clone());
            compiled
        };
        run_blocking_if_large(size, work).await
    }

    fn insert(&self, hash: DefinitionHash, compiled: CompiledSchema) {
        let mut kept = self.compiled();
        kept.text_bytes += schema_bytes(&compiled);
        if let Some(before) = kept.schemas.insert(hash, compiled) {
            kept.text_bytes -= schema_bytes(&before);
        }
        while kept.schemas.len() > MAX_SCHEMAS || kept.text_bytes > MAX_SCHEMA_BYTES {
            let Some((_, oldest)) = kept.schemas.remove_lru() else { break };
            kept.text_bytes -= schema_bytes(&oldest);
        }
    }
}

fn schema_bytes(compiled: &CompiledSchema) -> usize {
    compiled.as_ref().map_or(MIN_SCHEMA_BYTES, |schema| schema.size().max(MIN_SCHEMA_BYTES))
}

/// One tool as one list defines it.
struct ToolDefinition<'a> {
    slot: &'a Slot,
    tool: &'a str,
    known: &'a ServerList,
}

impl Host {
    /// Refuses a call whose arguments do not fit the schema of its tool. Only for callers that may use the tool.
    pub(crate) async fn validate_arguments(
        &self,
        slot: &Arc<Slot>,
        request: &Request<'_>,
    ) -> Result<(), CallError> {
        // The first part of a continued call was checked, and its server waits for the rest.
        if request.params.is_continuation() || !self.with_spec(slot, request, |spec| spec.validate) {
            return Ok(());
        }
        let Some(tool) = request.tool_name() else { return Ok(()) };
        let Some(known) = slot.cached_list_for(request.caller(), Kind::Tools) else { return Ok(()) };
        let mistakes = self.mistakes(ToolDefinition { slot, tool: &tool, known: &known }, request).await;
        if mistakes.is_empty() {
            return Ok(());
        }
        let generation = slot.state().supervisor.generation();
        let mistakes = match known.is_definite(generation) {
            true => mistakes,
            false => Box::pin(self.mistakes_by_fresh_list(slot, &tool, request)).await?,
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

    /// Fetches the server's list, which may have changed, and validates by that. If the server can't list, nothing is
    /// refused: the call itself meets the error.
    async fn mistakes_by_fresh_list(
        &self,
        slot: &Arc<Slot>,
        tool: &str,
        request: &Request<'_>,
    ) -> Result<Vec<Mistake>, CallError> {
        slot.check_accepts_calls()?;
        let fetch = self.fetch_list(slot, request.caller(), Kind::Tools);
        match with_deadline(request, slot, fetch).await {
            Ok(known) => Ok(self.mistakes(ToolDefinition { slot, tool, known: &known }, request).await),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Returns the mistakes in the arguments of a call by one definition of its tool.
    async fn mistakes(&self, defined: ToolDefinition<'_>, request: &Request<'_>) -> Vec<Mistake> {
        let ToolDefinition { known, tool, .. } = defined;
        let Some(hash) = known.definition_hash(tool) else { return Vec::new() };
        if !self.may_validate_by(&defined) {
            return Vec::new();
        }
        let compiled = match self.schemas().get(&hash) {
            Some(compiled) => compiled,
            None => Box::pin(self.compile(&defined, hash)).await,
        };
        let Some(schema) = compiled else { return Vec::new() };
        let arguments = request.params.arguments();
        if arguments.is_none_or(|arguments| arguments.len() <= MAX_INLINE_ARGUMENTS) {
            match schema.bound(arguments) {
                None => return Vec::new(),
                Some(bounded) if is_inline_check(&bounded) => return schema.check(&bounded),
                Some(_) => {}
            }
        }
        let Ok(permit) = Arc::clone(&self.schemas().check_permits).try_acquire_owned() else {
            return Vec::new();
        };
        let (params, check) = (request.params.clone(), move |arguments: Option<&[u8]>| {
            // Held until the check is over, also when its caller has left.
            let _permit = permit;
            schema.bound(arguments).map_or_else(Vec::new, |bounded| schema.check(&bounded))
        });
        // The duration of a check does not follow from its bytes.
        run_blocking_if_large(usize::MAX, move || check(params.arguments())).await
    }

    /// Returns whether a definition may refuse calls, and be quoted to callers: no pin reports it as unapproved, and
    /// the server has no other definition of that name.
    fn may_validate_by(&self, defined: &ToolDefinition<'_>) -> bool {
        let ToolDefinition { slot, tool, known } = defined;
        if known.is_repeated(tool) {
            return false;
        }
        let current = self.current();
        let Some(pins) = current.enforced_pins() else { return true };
        let (server, section) = (&slot.key.server, LockSection::Tools);
        !pins.is_section_pinned(server.as_str(), section)
            || !known.pin_status(pins, (server, section), tool).is_some_and(is_unapproved)
    }

    async fn compile(&self, defined: &ToolDefinition<'_>, hash: DefinitionHash) -> CompiledSchema {
        let definition = defined.known.definition(defined.tool)?;
        let size = definition.len() * COMPILE_COST;
        let (server, tool) = (defined.slot.key.server.clone(), defined.tool.to_owned());
        let compile = move || match ArgumentSchema::compile(&definition) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(why) => {
                tracing::warn!(%server, tool, %why, "arguments are not checked: the tool's inputSchema is unusable");
                None
            }
        };
        self.schemas().compile(hash, size, compile).await
    }
}

/// Returns whether a check may run on a thread of the runtime.
fn is_inline_check(bounded: &BoundedArguments) -> bool {
    bounded.steps <= MAX_INLINE_STEPS
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_schema_is_compiled_once_although_the_calls_that_want_it_are_given_up() {
        let schemas = Arc::<SchemaCache>::default();
        let compiles = Arc::new(AtomicUsize::new(0));
        let (begin, begun) = mpsc::channel::<()>();
        let begun = Arc::new(Mutex::new(begun));
        let compile = || {
            let (schemas, compiles, begun) =
                (Arc::clone(&schemas), Arc::clone(&compiles), Arc::clone(&begun));
            tokio::spawn(async move {
                let work = move || {
                    compiles.fetch_add(1, Ordering::Relaxed);
                    // Blocks until the test drops the other end.
                    let _ = begun.lock().unwrap().recv();
                    None
                };
                schemas.compile([7; 32], MAX_INLINE_BYTES + 1, work).await
            })
        };
        for _ in 0..8 {
            let call = compile();
            tokio::task::yield_now().await;
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        }
        let last = compile();
        tokio::task::yield_now().await;
        drop(begin);
        assert!(last.await.unwrap().is_none());
        assert_eq!(compiles.load(Ordering::Relaxed), 1);
    }
}
