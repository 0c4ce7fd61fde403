//! What a scripted server does, told before the test begins.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::status::Containment;
use ostler_wire::{Era, MODERN_VERSION, ServerInfo};
use serde_json::{Value, json};

use crate::scripted_reply::ScriptedReply;
use crate::scripted_server::ReceivedRequest;

type ReplyRule = Arc<dyn Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync>;

/// What a server in memory does: its tools, its answers, and how it starts.
///
/// A request is answered by the rule of its tool, else by the rule of its
/// method, else as an honest server would.
#[derive(Clone)]
pub struct Script {
    tools: Vec<Value>,
    rules: BTreeMap<String, ReplyRule>,
    pub(crate) start_after: Duration,
    pub(crate) close_after: Duration,
    /// Whether the nth start, counted from 1, fails.
    pub(crate) fails_to_start: Arc<dyn Fn(u64) -> bool + Send + Sync>,
    pub(crate) containment: Containment,
    pub(crate) hello: ServerInfo,
}

impl Script {
    /// A server without tools.
    pub fn new() -> Self {
        let hello = ServerInfo {
            era: Era::Legacy,
            version: "2025-11-25".into(),
            capabilities: r#"{"tools":{"listChanged":true}}"#.into(),
            implementation: None,
            instructions: None,
            session_meta: None,
        };
        Self {
            tools: Vec::new(),
            rules: BTreeMap::new(),
            start_after: Duration::ZERO,
            close_after: Duration::ZERO,
            fails_to_start: Arc::new(|_| false),
            containment: Containment::None,
            hello,
        }
    }

    /// A server with one tool, `echo`, which answers with its arguments.
    pub fn echo() -> Self {
        Self::new().tool("echo")
    }

    /// One more tool; until a rule says otherwise it answers with its arguments.
    #[must_use]
    pub fn tool(self, name: &str) -> Self {
        self.definition(json!({"name": name, "inputSchema": {"type": "object"}}))
    }

    /// One more entry of the tool list, whatever it is.
    #[must_use]
    pub fn definition(mut self, definition: Value) -> Self {
        self.tools.push(definition);
        self
    }

    /// Decides about the requests for one tool, or of one method.
    #[must_use]
    pub fn on(
        mut self,
        what: &str,
        rule: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        self.rules.insert(what.into(), Arc::new(rule));
        self
    }

    /// One more tool that always does the same.
    #[must_use]
    pub fn tool_replying(self, name: &str, reply: ScriptedReply) -> Self {
        self.tool(name).on(name, move |_| reply.clone())
    }

    /// Starting takes this long.
    #[must_use]
    pub fn start_after(mut self, delay: Duration) -> Self {
        self.start_after = delay;
        self
    }

    /// Closing takes this long.
    #[must_use]
    pub fn close_after(mut self, delay: Duration) -> Self {
        self.close_after = delay;
        self
    }

    /// The starts of which this says so fail; they are counted from 1.
    #[must_use]
    pub fn failing_starts(mut self, fails: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.fails_to_start = Arc::new(fails);
        self
    }

    /// Sessions count as processes, which take room in the pool.
    #[must_use]
    pub fn as_process(mut self) -> Self {
        self.containment = Containment::Guard;
        self
    }

    /// The server does not promise to say when its lists change.
    #[must_use]
    pub fn without_list_changed(mut self) -> Self {
        self.hello.capabilities = r#"{"tools":{}}"#.into();
        self
    }

    /// The server declares these capabilities, the text of a JSON object.
    #[must_use]
    pub fn capabilities(mut self, json: &str) -> Self {
        self.hello.capabilities = json.to_owned().into();
        self
    }

    /// The server tells clients this about its use, also when it is discovered.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.hello.instructions = Some(ostler_wire::Instructions::from_text(text));
        let said = json!({"instructions": text}).to_string();
        self.on("server/discover", move |_| ScriptedReply::result(said.clone()))
    }

    /// The same, as the text of a JSON string.
    #[must_use]
    pub fn raw_instructions(mut self, raw: &str) -> Self {
        self.hello.instructions = ostler_wire::Instructions::from_json(raw);
        let said = format!(r#"{{"instructions":{raw}}}"#);
        self.on("server/discover", move |_| ScriptedReply::result(said.clone()))
    }

    /// The server speaks the modern revision.
    #[must_use]
    pub fn modern(mut self) -> Self {
        self.hello.era = Era::Modern;
        self.hello.version = MODERN_VERSION.into();
        self
    }

    pub(crate) fn reply_to(&self, asked: &ReceivedRequest) -> ScriptedReply {
        let rule = asked.name.as_deref().and_then(|name| self.rules.get(name));
        match (rule.or_else(|| self.rules.get(&asked.method)), asked.method.as_str()) {
            (Some(rule), _) => rule(asked),
            (None, "tools/call") => ScriptedReply::text(asked.arguments.as_deref().unwrap_or("{}")),
            (None, "tools/list") => ScriptedReply::result(json!({"tools": self.tools}).to_string()),
            (None, "ping" | "server/discover") => ScriptedReply::result("{}"),
            (None, method) => ScriptedReply::error(-32601, &format!("no method {method}")),
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("rules", &self.rules.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
