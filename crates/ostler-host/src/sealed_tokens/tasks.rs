//! Task ids in results. Any caller of a shared server could use the server's ids, so each caller gets its own sealed
//! form.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use ostler_wire::{MemberEdit, ResultHead, ResultKind};

/// Key of `_meta` under which messages name the task they belong to.
pub(super) const RELATED_TASK_KEY: &str = "io.modelcontextprotocol/related-task";

/// Returns whether a result may hold the id of a task. A key in another spelling is not found; its id stays unsealed,
/// and no unsealed id is taken back.
pub(super) fn may_contain_task_id(method: &str, body: &[u8]) -> bool {
    static ID: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"taskId\""));
    (method == "tools/call" || method.starts_with("tasks/")) && ID.find(body).is_some()
}

/// Returns whether a result of `tools/call` is a task in the form of the legacy era, which does not say so in
/// `resultType`.
pub(crate) fn is_legacy_task(body: &[u8]) -> bool {
    let id = |task: &[u8]| ostler_wire::member(task, "taskId").is_some();
    may_contain_task_id("tools/call", body) && ostler_wire::member(body, "task").is_some_and(id)
}

/// Seals every task id of a result with `seal`: in a task itself, in the created task, in each task of a list, and in
/// the related task.
pub(super) fn seal_ids(method: &str, body: Bytes, seal: impl Fn(&str) -> String) -> Bytes {
    let one = |object: &[u8]| seal_id(object, &seal);
    let changed = match method {
        "tools/call" => match ResultHead::parse(&body).map(|head| head.kind) {
            Ok(ResultKind::Task) => one(&body),
            // Another result may have a `taskId` with a meaning of its own.
            _ => edit_member(&body, "task", one),
        },
        "tasks/list" => edit_member(&body, "tasks", |tasks| edit_elements(tasks, one)),
        _ => one(&body),
    };
    let body = changed.map_or(body, Bytes::from);
    edit_member(&body, "_meta", |meta| edit_member(meta, RELATED_TASK_KEY, one)).map_or(body, Bytes::from)
}

/// Seals the `taskId` of an object; `None` if it has none.
fn seal_id(object: &[u8], seal: impl Fn(&str) -> String) -> Option<Vec<u8>> {
    let id = ostler_wire::text_member(object, "taskId")?;
    let mut text = Vec::new();
    ostler_wire::push_json_string(&mut text, &seal(&id));
    ostler_wire::edit(object, &[("taskId", MemberEdit::Set(&text))])
}

/// Edits one member of an object; `None` if the object lacks it, or nothing changes in it.
pub(super) fn edit_member(
    object: &[u8],
    key: &str,
    change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let value = change(ostler_wire::member(object, key)?)?;
    ostler_wire::edit(object, &[(key, MemberEdit::Set(&value))])
}

/// Edits every member of an array; members that can't be edited are left out.
fn edit_elements(array: &[u8], change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let members: Vec<&serde_json::value::RawValue> = serde_json::from_slice(array).ok()?;
    let changed: Vec<_> = members.iter().filter_map(|member| change(member.get().as_bytes())).collect();
    let mut out = b"[".to_vec();
    out.extend_from_slice(&changed.join(&b','));
    out.push(b']');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(method: &str, body: &str) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        String::from_utf8(seal_ids(method, body, |id| format!("sealed {id}")).to_vec()).unwrap()
    }

    #[test]
    fn ids_are_sealed_wherever_a_result_may_have_them() {
        for (method, body, expected) in [
            (
                "tools/call",
                r#"{"resultType":"task","taskId":"1"}"#,
                r#"{"resultType":"task","taskId":"sealed 1"}"#,
            ),
            ("tools/call", r#"{"task":{"taskId":"1","x":1e2}}"#, r#"{"task":{"taskId":"sealed 1","x":1e2}}"#),
            (
                "tasks/get",
                r#"{"taskId":"1","status":"working"}"#,
                r#"{"taskId":"sealed 1","status":"working"}"#,
            ),
            (
                "tasks/list",
                r#"{"tasks":[{"taskId":"1"},{"x":"no id"},{"taskId":2}]}"#,
                r#"{"tasks":[{"taskId":"sealed 1"}]}"#,
            ),
            (
                "tasks/result",
                r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}"#,
                r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"sealed 1"}}}"#,
            ),
        ] {
            assert_eq!(sealed(method, body), expected);
        }
    }

    #[test]
    fn other_members_stay_as_they_are() {
        for body in [
            r#"{"content":[{"type":"text","text":"\"taskId\":\"1\""}],"structuredContent":{"taskId":"1"}}"#,
            r#"{"content":[],"taskId":"1"}"#,
        ] {
            assert_eq!(sealed("tools/call", body), body);
            assert!(!is_legacy_task(body.as_bytes()));
        }
    }

    #[test]
    fn a_task_of_the_legacy_era_is_told_by_its_form() {
        assert!(is_legacy_task(br#"{"task":{"taskId":"1"}}"#));
        assert!(!is_legacy_task(br#"{"task":{}}"#));
    }
}
