//! `--tasks`: the tool `task`, which answers with a task, and the methods `tasks/*` of both eras.
//! Every client of the process may use every task: ids are counted.

use crate::call_tool::AdmittedCall;
use crate::era::RequestEra;
use crate::message::FakeParams;
use crate::response::{self, ErrorReply, quote};

/// A task; `text` is its result.
#[derive(Debug)]
struct FakeTask {
    text: String,
    status: &'static str,
}

/// The tasks of this process; the id of a task is its position, counted from 1.
#[derive(Debug, Default)]
pub(crate) struct FakeTasks(Vec<FakeTask>);

impl FakeTasks {
    /// Makes a task and returns the line that answers the call.
    pub(crate) fn make(&mut self, call: &AdmittedCall<'_>, text: String) -> Vec<u8> {
        self.0.push(FakeTask { text, status: "working" });
        let task = self.to_json(self.0.len());
        match call.era {
            RequestEra::Modern => response::result(call.id, &format!(r#"{{"resultType":"task",{task}}}"#)),
            RequestEra::Legacy => response::result(call.id, &format!(r#"{{"task":{{{task}}}}}"#)),
        }
    }

    /// Returns the members of a result, after `resultType`; None for another method.
    pub(crate) fn answer(
        &mut self,
        method: &str,
        params: &FakeParams<'_>,
    ) -> Option<Result<String, ErrorReply>> {
        let method = method.strip_prefix("tasks/")?;
        if method == "list" {
            let tasks = (1..=self.0.len()).map(|id| format!("{{{}}}", self.to_json(id)));
            return Some(Ok(format!(r#""tasks":[{}]"#, tasks.collect::<Vec<_>>().join(","))));
        }
        let id = params.task_id.as_ref().and_then(|id| id.0.strip_prefix("task-")?.parse::<usize>().ok());
        let Some((id, task)) = id.and_then(|id| Some((id, self.0.get_mut(id.checked_sub(1)?)?))) else {
            return Some(Err(ErrorReply::bad_params("no such task")));
        };
        match method {
            "cancel" => task.status = "cancelled",
            "update" => task.status = "updated",
            "result" => {
                let text = quote(&task.text);
                return Some(Ok(format!(
                    r#""content":[{{"type":"text","text":{text}}}],"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"task-{id}"}}}}"#
                )));
            }
            "get" => {}
            _ => return None,
        }
        Some(Ok(self.to_json(id)))
    }

    fn to_json(&self, id: usize) -> String {
        format!(r#""taskId":"task-{id}","status":"{}""#, self.0[id - 1].status)
    }
}
