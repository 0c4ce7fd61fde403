//! Scripts: everything a scripted server does, set before the test begins.

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

/// The behaviour of a server in memory: its tools, its answers, and how it starts.
///
/// The rule of the tool answers a request, else the rule of the method, else a default that follows
/// the protocol.
#[derive(Clone)]
pub struct Script {
    tools: Vec<Value>,
    rules: BTreeMap<String, ReplyRule>,
    pub(crate) start_after: Duration,
    pub(crate) close_after: Duration,
    /// Returns whether the nth start, counted from 1, fails.
    pub(crate) fails_to_start: Arc<dyn Fn(u64) -> bool + Send + Sync>,
    pub(crate) containment: Containment,
    pub(crate) server_info: ServerInfo,
}

impl Script {
    /// Makes a server without tools.
    pub fn new() -> Self {
        let server_info = ServerInfo {
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
            server_info,
        }
    }

    /// Makes a server with one tool, `echo`, which answers with its arguments.
    pub fn echo() -> Self {
        Self::new().tool("echo")
    }

    /// Adds a tool; until a rule says otherwise it answers with its arguments.
    #[must_use]
    pub fn tool(self, name: &str) -> Self {
        self.definition(json!({"name": name, "inputSchema": {"type": "object"}}))
    }

    /// Adds an entry to the tool list; any value will do.
    #[must_use]
    pub fn definition(mut self, definition: Value) -> Self {
        self.tools.push(definition);
        self
    }

    /// Sets the rule for requests for one tool, or of one method.
    #[must_use]
    pub fn on(
        mut self,
        what: &str,
        rule: impl Fn(&ReceivedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        self.rules.insert(what.into(), Arc::new(rule));
        self
    }

    /// Adds a tool that always gives the same reply.
    #[must_use]
    pub fn tool_replying(self, name: &str, reply: ScriptedReply) -> Self {
        self.tool(name).on(name, move |_| reply.clone())
    }

    /// Delays every start.
    #[must_use]
    pub fn start_after(mut self, delay: Duration) -> Self {
        self.start_after = delay;
        self
    }

    /// Delays every close.
    #[must_use]
    pub fn close_after(mut self, delay: Duration) -> Self {
        self.close_after = delay;
        self
    }

    /// Fails the starts for which `fails` is true; starts are counted from 1.
    #[must_use]
    pub fn failing_starts(mut self, fails: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.fails_to_start = Arc::new(fails);
        self
    }

    /// Makes sessions count as processes, which take room in the pool.
    #[must_use]
    pub fn as_process(mut self) -> Self {
        self.containment = Containment::Guard;
        self
    }

    /// Declares no `listChanged`.
    #[must_use]
    pub fn without_list_changed(mut self) -> Self {
        self.server_info.capabilities = r#"{"tools":{}}"#.into();
        self
    }

    /// Declares capabilities, the text of a JSON object.
    #[must_use]
    pub fn capabilities(mut self, json: &str) -> Self {
        self.server_info.capabilities = json.to_owned().into();
        self
    }

    /// Sets the instructions, in the handshake and in `server/discover`.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.server_info.instructions = Some(ostler_wire::Instructions::from_text(text));
        let discovered = json!({"instructions": text}).to_string();
        self.on("server/discover", move |_| ScriptedReply::result(discovered.clone()))
    }

    /// Sets the instructions as the text of a JSON string.
    #[must_use]
    pub fn raw_instructions(mut self, raw: &str) -> Self {
        self.server_info.instructions = ostler_wire::Instructions::from_json(raw);
        let discovered = format!(r#"{{"instructions":{raw}}}"#);
        self.on("server/discover", move |_| ScriptedReply::result(discovered.clone()))
    }

    /// Makes the server speak the modern revision.
    #[must_use]
    pub fn modern(mut self) -> Self {
        self.server_info.era = Era::Modern;
        self.server_info.version = MODERN_VERSION.into();
        self
    }

    pub(crate) fn reply_to(&self, request: &ReceivedRequest) -> ScriptedReply {
        let rule = request.name.as_deref().and_then(|name| self.rules.get(name));
        match (rule.or_else(|| self.rules.get(&request.method)), request.method.as_str()) {
            (Some(rule), _) => rule(request),
            (None, "tools/call") => ScriptedReply::text(request.arguments.as_deref().unwrap_or("{}")),
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
