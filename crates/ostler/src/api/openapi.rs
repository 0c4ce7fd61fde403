//! Generator of `openapi.json`: from the types of the API and the table of its operations below.
//!
//! `OSTLER_UPDATE_OPENAPI=1 cargo nextest run -p ostler openapi` writes the file again.

use ostler_core::card::CardReport;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::*;
use crate::daemon_info::DaemonInfo;
use crate::daemon_proof::DaemonProof;

const UPDATE: &str = "OSTLER_UPDATE_OPENAPI";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
const SCHEMAS: &str = "/components/schemas";

type SchemaOf = fn(&mut SchemaGenerator) -> schemars::Schema;

/// Content of a response.
enum ResponseContent {
    /// One JSON value.
    Json(SchemaOf),
    /// One JSON value a line.
    Lines(SchemaOf),
    Text,
    Nothing,
}

/// One method of one path.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    queries: Vec<Value>,
    responses: Vec<(u16, &'static str, ResponseContent)>,
    /// True if the operation needs no token.
    is_open: bool,
}

fn get(path: &'static str, summary: &'static str) -> Operation {
    Operation { method: "get", path, summary, queries: vec![], responses: vec![], is_open: false }
}

fn post(path: &'static str, summary: &'static str) -> Operation {
    Operation { method: "post", ..get(path, summary) }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

impl Operation {
    fn query(mut self, name: &str, description: &str, schema: Value) -> Self {
        let is_required = schema.get("pattern").is_some();
        let mut query = json!({ "name": name, "in": "query", "description": description, "schema": schema });
        if is_required {
            query["required"] = true.into();
        }
        self.queries.push(query);
        self
    }

    fn answers<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.with(status, description, ResponseContent::Json(schema_of::<T>))
    }

    fn lines<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.with(status, description, ResponseContent::Lines(schema_of::<T>))
    }

    fn text(self, status: u16, description: &'static str) -> Self {
        self.with(status, description, ResponseContent::Text)
    }

    fn refuses(self, status: u16, description: &'static str) -> Self {
        self.answers::<ErrorResponse>(status, description)
    }

    fn switches(self, description: &'static str) -> Self {
        self.with(101, description, ResponseContent::Nothing)
    }

    fn without_token(self) -> Self {
        Self { is_open: true, ..self }
    }

    fn with(mut self, status: u16, description: &'static str, content: ResponseContent) -> Self {
        self.responses.push((status, description, content));
        self
    }

    /// Adds the responses of the checks that come before every handler.
    fn with_check_responses(self) -> Self {
        let asks_for_token = !self.is_open;
        let is_api = self.path.starts_with("/api/");
        let checked = match asks_for_token {
            true => self.refuses(401, "The admin token is missing or wrong."),
            false => self,
        };
        match is_api {
            true => checked.refuses(403, "The Host or Origin header names another machine."),
            false => checked,
        }
    }

    fn describe(self, answers: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        for (status, description, content) in self.responses {
            let mut response = json!({ "description": description });
            let content = match content {
                ResponseContent::Json(schema) => json!({ "application/json": { "schema": schema(answers) } }),
                ResponseContent::Lines(schema) => {
                    json!({ "application/x-ndjson": { "schema": schema(answers) } })
                }
                ResponseContent::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
                ResponseContent::Nothing => Value::Null,
            };
            if !content.is_null() {
                response["content"] = content;
            }
            responses.insert(status.to_string(), response);
        }
        let mut parameters = self.queries;
        if self.path.contains("{name}") {
            let schema = json!({ "type": "string" });
            let name = json!({ "name": "name", "in": "path", "required": true, "schema": schema, "description": "The server." });
            parameters.insert(0, name);
        }
        let mut described = json!({ "summary": self.summary, "responses": responses });
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        if self.is_open {
            described["security"] = json!([]);
        }
        described
    }
}

fn operations() -> Vec<Operation> {
    let text = || json!({ "type": "string" });
    let switch = || json!({ "type": "boolean", "default": false });
    vec![
        get("/healthz", "Whether the process is up.")
            .answers::<Confirmation>(200, "It is.")
            .without_token(),
        get("/readyz", "Whether every server that should be up has come up or failed.")
            .answers::<ReadinessResponse>(200, "They have.")
            .answers::<ReadinessResponse>(503, "Some have not; `waiting` says how many.")
            .without_token(),
        get("/api/v1/version", "Which daemon this is.")
            .answers::<VersionResponse>(200, "Its version and process."),
        get("/api/v1/daemon", "The daemon itself.")
            .answers::<DaemonInfo>(200, "Its address, process, version, config and clients."),
        post("/api/v1/shutdown", "Ends the daemon in order, as SIGTERM does.")
            .query("calls_ms", "How long calls in flight have to finish; 3000 if absent.", json!({"type": "integer", "minimum": 0, "maximum": 600000}))
            .answers::<DaemonInfo>(202, "It ends. Clients of `ostler stdio` go on with the next daemon.")
            .refuses(400, "`calls_ms` is no number of milliseconds."),
        get("/api/v1/openapi.json", "This description.")
            .answers::<Map<String, Value>>(200, "This description."),
        get("/api/v1/servers", "All servers, in the order of the config.")
            .answers::<ServersResponse>(200, "How they are."),
        get("/api/v1/servers/{name}", "One server.")
            .answers::<ServerResponse>(200, "How the server is now.")
            .refuses(404, "There is no such server, or no such tool."),
        get("/api/v1/servers/{name}/card", "The card that the server publishes of itself. The server is not started for it.")
            .answers::<CardReport>(200, "The card, and where the running server says something else.")
            .refuses(400, "The host does not take the server.")
            .refuses(404, "There is no such server.")
            .refuses(502, "The card can't be read.")
            .refuses(503, "The server is disabled."),
        post("/api/v1/servers/{name}/start", "Brings a stopped or sleeping server up, and waits for it.")
            .answers::<ServerResponse>(200, "How the server is now.")
            .refuses(400, "The host does not take the server.")
            .refuses(404, "There is no such server, or no such tool.")
            .refuses(503, "The server can't be used now; `state` says what keeps it."),
        post("/api/v1/servers/{name}/stop", "Drains a server, ends it, and waits until nothing of it is left.")
            .answers::<ServerResponse>(200, "How the server is now.")
            .refuses(404, "There is no such server, or no such tool."),
        post("/api/v1/servers/{name}/reload", "Gives a server a fresh process and a clean record.")
            .answers::<ServerResponse>(200, "How the server is now.")
            .refuses(400, "The host does not take the server.")
            .refuses(404, "There is no such server, or no such tool.")
            .refuses(503, "The server can't be used now; `state` says what keeps it."),
        get("/api/v1/servers/{name}/logs", "What the server has said on stderr: the last 64 KiB, one line each, control characters escaped.")
            .query("follow", "Go on with what it says from now on.", switch())
            .query("since", "Only lines from this time on: how long ago, such as `10m`, or RFC 3339.", text())
            .query("lines", "Only the last lines, this many.", json!({"type": "integer", "minimum": 0}))
            .text(200, "The lines. With `follow` the answer does not end while the server is there.")
            .refuses(400, "The host does not take the server.")
            .refuses(404, "There is no such server, or no such tool."),
        get("/api/v1/logs", "The stderr output of several servers, or of all: the last 64 KiB of each process, ordered by time, one JSON object a line.")
            .query("servers", "Only these servers, separated by commas.", text())
            .query("follow", "Go on with what it says from now on.", switch())
            .query("since", "Only lines from this time on: how long ago, such as `10m`, or RFC 3339.", text())
            .query("lines", "Only the last lines, this many.", json!({"type": "integer", "minimum": 0}))
            .lines::<ServerLogLine>(200, "The lines, each with its server and the time at which it began. With `follow` the answer does not end.")
            .refuses(400, "The host does not take the server.")
            .refuses(404, "There is no such server, or no such tool."),
        get("/api/v1/definitions", "Every tool as its server defines it, asked for now. Neither roles nor pins leave any out.")
            .query("server", "Only this server.", text())
            .answers::<DefinitionsResponse>(200, "The definitions, and the servers that could not tell.")
            .refuses(404, "There is no such server."),
        get("/api/v1/pins", "What differs from what was approved, as far as it is known. Nobody is asked.")
            .answers::<PinsResponse>(200, "The lock file and the differences."),
        post("/api/v1/pins/reload", "Takes up the lock file on disk; with sha256 only if it is that one.")
            .query("sha256", "The hash of the lock that was written.", text())
            .answers::<Confirmation>(200, "It is in force.")
            .refuses(422, "It can't be used, so the one before stays in force.")
            .refuses(409, "The lock file is another one."),
        get("/api/v1/budgets", "How much of each budget is used.")
            .answers::<BudgetsResponse>(200, "The budgets of roles, and of tokens that have made calls lately."),
        get("/api/v1/explain", "Which rule lets a role use something, or forbids it, by what is in force.")
            .query("role", "The role.", text())
            .query("what", "`SERVER__TOOL`, `SERVER/prompt:NAME`, `SERVER/resource:URI`, `SERVER/method:METHOD`, or `SERVER` alone.", text())
            .answers::<ExplainResponse>(200, "The rule, and where it stands.")
            .refuses(400, "`role` or `what` is missing."),
        get("/api/v1/relay", "How workers elsewhere are served.")
            .answers::<RelayResponse>(200, "The relay; null where the config has none."),
        get("/api/v1/config", "The config as it is applied.")
            .answers::<AppliedConfig>(200, "What it says, and what became of its last change."),
        post("/api/v1/config/reload", "Reads the config again and applies what has changed.")
            .query("keep_lock", "Leaves the lock that is in force, whatever the file on disk says.", switch())
            .answers::<Reload>(200, "It was applied, except for what is in `failed`.")
            .answers::<Reload>(422, "It can't be used, so nothing was changed."),
        get("/api/v1/tokens", "When the tokens of callers were last used.")
            .answers::<TokensResponse>(200, "The tokens, by name."),
        post("/api/v1/tokens/reload", "Reads the tokens of callers again, and ends what was begun with those that are gone.")
            .answers::<TokenCount>(200, "How many are good now.")
            .refuses(422, "They can't be read, so those from before stay."),
        get("/api/v1/attach", "Where `ostler stdio` and commands attach: after the upgrade to `ostler-stdio` the connection carries MCP, one message per line.")
            .switches("The connection carries MCP from here on.")
            .refuses(426, "No upgrade was asked for.")
            .refuses(503, "The daemon is ending."),
        get("/api/v1/audit", "Who called what, and what came of it: the newest rows that fit, oldest first. Rows of the kind `gap` always fit.")
            .query("since", "Not before. A time ago such as `1h`, or a moment such as `2026-07-28T12:00Z`.", text())
            .query("until", "Before. A time ago such as `1h`, or a moment such as `2026-07-28T12:00Z`.", text())
            .query("role", "Only callers in this role.", text())
            .query("caller", "Only this principal.", text())
            .query("server", "Only this server.", text())
            .query("tool", "Only this tool, prompt or resource, in its server's words or as `SERVER__TOOL`.", text())
            .query("outcome", "Only what came to this.", text())
            .query("denied", "Only what was refused by a rule or at the door.", switch())
            .query("after", "Only rows with a larger `id`.", json!({"type": "integer"}))
            .query("limit", "How many rows.", json!({"type": "integer", "default": 100, "minimum": 1, "maximum": 1000}))
            .answers::<AuditPage>(200, "The rows, and how writing goes.")
            .refuses(400, "The query makes no sense.")
            .refuses(503, "The file can't be read now."),
        get("/api/v1/proof", "Proves that this is the daemon: it knows the admin token. Commands ask before they send the token, on the same connection.")
            .query("nonce", "64 hexadecimal digits, never used before.", json!({"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}))
            .answers::<DaemonProof>(200, "HMAC-SHA256, keyed with the admin token, of `ostler daemon proof 1`, a zero byte and the bytes of the nonce.")
            .refuses(400, "The nonce is missing or has another form.")
            .without_token(),
    ]
}

fn description() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.contract = Contract::Serialize;
        settings.meta_schema = None;
    });
    let mut answers = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations() {
        let (path, method) = (operation.path, operation.method);
        let described = operation.with_check_responses().describe(&mut answers);
        paths.entry(path).or_insert_with(|| json!({}))[method] = described;
    }
    let schemas = answers.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ostler admin API",
            "version": "1",
            "description": "For the operator of a daemon. The address and the token stand in files that only the daemon's user may read: `ostler serve` prints the address, and the token is the `.token` file in `$XDG_STATE_HOME/ostler`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:7777" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

#[test]
fn openapi_json_is_what_the_types_say() {
    let made = serde_json::to_string_pretty(&description()).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap();
    assert!(
        made == kept,
        "openapi.json is not what the types say; {UPDATE}=1 with this test writes it again"
    );
}

#[test]
fn every_reference_in_openapi_json_leads_somewhere() {
    fn each<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| each(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| each(item, found)),
            _ => {}
        }
    }
    let description: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut references = Vec::new();
    each(&description, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
}
