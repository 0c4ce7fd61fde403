//! Ids of tasks on their way to clients. A server that many callers share gives
//! ids that any of them could use, so each caller gets its own sealed form.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use ostler_core::name::ServerName;
use ostler_wire::Change;

use super::state;
use crate::exchange::Exchange;
use crate::gateway::Gateway;

/// Under which key of `_meta` the result of a task names it.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// An object with its `taskId` sealed.
pub(crate) fn sealed(gateway: &Gateway, exchange: &Exchange, server: &ServerName, body: &Bytes) -> Bytes {
    seal(gateway, exchange, server, body).map_or_else(|| body.clone(), Bytes::from)
}

/// A result for a legacy client: the id stands in it, in the task that was
/// made, in every task of a list, or in what the result belongs to.
pub(crate) fn sealed_for_legacy(
    gateway: &Gateway,
    exchange: &Exchange,
    server: &ServerName,
    body: Bytes,
) -> Bytes {
    static ID: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"taskId\""));
    let method = exchange.method.as_str();
    let may_have = method == "tools/call" || method.starts_with("tasks/");
    if !may_have || ID.find(&body).is_none() {
        return body;
    }
    let one = |object: &[u8]| seal(gateway, exchange, server, object);
    let changed = match method {
        "tools/call" => within(&body, "task", one),
        "tasks/list" => within(&body, "tasks", |tasks| each(tasks, one)),
        "tasks/result" => within(&body, "_meta", |meta| within(meta, RELATED, one)),
        _ => one(&body),
    };
    changed.map_or(body, Bytes::from)
}

/// Capabilities of a legacy server without the list of tasks.
pub(crate) fn without_list(capabilities: Bytes) -> Bytes {
    let changed =
        within(&capabilities, "tasks", |tasks| ostler_wire::edit(tasks, &[("list", Change::Remove)]));
    changed.map_or(capabilities, Bytes::from)
}

fn seal(gateway: &Gateway, exchange: &Exchange, server: &ServerName, object: &[u8]) -> Option<Vec<u8>> {
    let id = ostler_wire::text_member(object, "taskId")?;
    let mut text = Vec::new();
    ostler_wire::push_text(&mut text, &state::seal_task(gateway, exchange, server, &id));
    ostler_wire::edit(object, &[("taskId", Change::Set(&text))])
}

/// The object with one member changed; `None` if it has none, or nothing to change in it.
fn within(object: &[u8], key: &str, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let value = change(ostler_wire::member(object, key)?)?;
    ostler_wire::edit(object, &[(key, Change::Set(&value))])
}

/// The array with every member changed; what can't be is left out.
fn each(array: &[u8], change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let members: Vec<&serde_json::value::RawValue> = serde_json::from_slice(array).ok()?;
    let changed: Vec<_> = members.iter().filter_map(|member| change(member.get().as_bytes())).collect();
    let mut out = b"[".to_vec();
    out.extend_from_slice(&changed.join(&b','));
    out.push(b']');
    Some(out)
}
