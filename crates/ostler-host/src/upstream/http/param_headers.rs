//! Parameter headers: tools whose arguments are repeated in headers.
//!
//! The definitions come from the host's list of the server's tools. Each definition is parsed once; the cache key is
//! the address of its text in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use memchr::memmem;
use ostler_wire::headers::{ParamHeader, param_headers};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::upstream::DefinitionLookup;

/// Upper bound on cached tools; beyond it, all are parsed anew.
const MAX_TOOLS: usize = 4_096;

type ToolHeaders = Arc<[ParamHeader]>;

pub(crate) struct ParamHeaderCache {
    definitions: DefinitionLookup,
    cache: Mutex<HashMap<String, (Bytes, ToolHeaders)>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeaderDefinition<'a> {
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolListResult<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

impl ParamHeaderCache {
    pub(crate) fn new(definitions: DefinitionLookup) -> Self {
        Self { definitions, cache: Mutex::default() }
    }

    /// Returns the headers that calls of a tool need. An unknown tool has none.
    pub(crate) fn headers_of(&self, tool: &str) -> ToolHeaders {
        let Some(definition) = (self.definitions)(tool) else { return self.cached(tool) };
        if let Some((known, headers)) = self.lock().get(tool)
            && known.as_ptr() == definition.as_ptr()
        {
            return Arc::clone(headers);
        }
        self.parse_and_store(tool, definition)
    }

    /// Stores a definition that the server has just returned. It replaces the one in the host's list until that list
    /// changes.
    pub(crate) fn replace(&self, tool: &str, definition: &[u8]) -> ToolHeaders {
        let headers = read(definition).unwrap_or_default().into();
        let listed = (self.definitions)(tool).unwrap_or_default();
        self.store(tool, listed, headers)
    }

    fn parse_and_store(&self, tool: &str, definition: Bytes) -> ToolHeaders {
        let headers = read(&definition).unwrap_or_default().into();
        self.store(tool, definition, headers)
    }

    fn store(&self, tool: &str, definition: Bytes, headers: ToolHeaders) -> ToolHeaders {
        let mut known = self.lock();
        if known.len() >= MAX_TOOLS {
            known.clear();
        }
        known.insert(tool.to_owned(), (definition, Arc::clone(&headers)));
        headers
    }

    fn cached(&self, tool: &str) -> ToolHeaders {
        self.lock().get(tool).map_or_else(|| Arc::from([]), |(_, headers)| Arc::clone(headers))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Bytes, ToolHeaders)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the headers of a definition; `None` if its marks are invalid.
fn read(definition: &[u8]) -> Option<Vec<ParamHeader>> {
    let definition: HeaderDefinition<'_> = serde_json::from_slice(definition).ok()?;
    param_headers(definition.input_schema.map_or(b"{}", |schema| schema.get().as_bytes())).ok()
}

/// Returns whether a tool has marks that make its definition invalid.
fn is_invalid(tool: &str) -> bool {
    memmem::find(tool.as_bytes(), b"x-mcp-header").is_some()
        && serde_json::from_str::<HeaderDefinition<'_>>(tool).is_ok()
        && read(tool.as_bytes()).is_none()
}

/// Removes the tools with invalid marks from a list: they must not be called over HTTP, so no caller may see them.
/// Every other byte stays.
pub(crate) fn without_invalid(list: Bytes) -> Bytes {
    if memmem::find(&list, b"x-mcp-header").is_none() {
        return list;
    }
    let Ok(listed) = serde_json::from_slice::<ToolListResult<'_>>(&list) else { return list };
    let mut kept = BytesMut::with_capacity(list.len());
    let mut from = 0;
    for tool in listed.tools.iter().map(|tool| tool.get()).filter(|tool| is_invalid(tool)) {
        tracing::warn!("a tool was left out: its `x-mcp-header` marks are invalid");
        let start = tool.as_ptr() as usize - list.as_ptr() as usize;
        kept.extend_from_slice(&list[from..start]);
        from = start + tool.len();
        // One comma is removed too: the one behind, or for the last tool the one before.
        let blanks = list[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        match list.get(from + blanks) {
            Some(b',') => from += blanks + 1,
            _ => {
                let length = kept.trim_ascii_end().len();
                kept.truncate(length);
                if kept.last() == Some(&b',') {
                    kept.truncate(length - 1);
                }
            }
        }
    }
    kept.extend_from_slice(&list[from..]);
    kept.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, header: &str) -> String {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"v":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
        )
    }

    #[test]
    fn tools_with_invalid_marks_leave_no_trace() {
        let (good, bad) = (tool("good", "Region"), tool("bad", "no token"));
        let table = [
            (format!("[{good}]"), format!("[{good}]")),
            (format!("[{bad}]"), "[]".to_owned()),
            (format!("[{bad} , {good}]"), format!("[ {good}]")),
            (format!("[{good} , {bad} ]"), format!("[{good}  ]")),
            (format!("[{bad},{good},{bad},{bad}]"), format!("[{good}]")),
        ];
        for (before, after) in table {
            let list = |tools: &str| format!(r#"{{"ttlMs":5,"tools":{tools},"nextCursor":"x"}}"#);
            let found = without_invalid(list(&before).into());
            assert_eq!(found, list(&after).trim(), "{before}");
        }
    }

    #[test]
    fn a_definition_is_read_once_and_a_newer_one_counts() {
        let first = Bytes::from(tool("t", "Region"));
        let shown = Arc::new(Mutex::new(first));
        let source = Arc::clone(&shown);
        let marks = ParamHeaderCache::new(Arc::new(move |_| Some(source.lock().unwrap().clone())));
        assert_eq!(marks.headers_of("t")[0].name, "Mcp-Param-Region");
        assert!(Arc::ptr_eq(&marks.headers_of("t"), &marks.headers_of("t")));
        *shown.lock().unwrap() = tool("t", "Zone").into();
        assert_eq!(marks.headers_of("t")[0].name, "Mcp-Param-Zone");
    }
}
