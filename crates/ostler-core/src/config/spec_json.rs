//! One server as JSON: what a config file holds under `servers.NAME`, read and written.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::document::{Document, Span as At};
use super::log::Log;
use super::problem::Report;
use super::scope::{Dialect, Scope};
use super::{duration, json as parser, server};
use crate::fault::Span;
use crate::name::ServerName;
use crate::spec::{
    BreakerSettings, CacheRule, CacheScopeRule, Isolation, RestartSettings, RetryRule, ServerSpec, ToolRules,
    Transport,
};

impl ServerSpec {
    /// Reads a server from JSON, with the keys and the defaults of a config file: it is lazy unless the text says
    /// otherwise. References such as `${env:TOKEN}` stay references until the server is started. Relative paths stay
    /// relative, and `~` has no meaning.
    ///
    /// ```
    /// use ostler_core::name::ServerName;
    /// use ostler_core::spec::ServerSpec;
    ///
    /// let text = r#"{"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${env:TOKEN}"}, "keep_alive": "1m"}"#;
    /// let spec = ServerSpec::from_json(ServerName::new("some")?, text)?;
    /// assert_eq!(spec.keep_alive.as_secs(), 60);
    /// assert_eq!(ServerSpec::from_json(ServerName::new("some")?, &spec.to_json().to_string())?, spec);
    ///
    /// let report = ServerSpec::from_json(ServerName::new("some")?, r#"{"comand": "npx"}"#).unwrap_err();
    /// assert_eq!(report.problems[0].hint.as_deref(), Some("did you mean `command`?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_json(name: ServerName, text: &str) -> Result<Self, Report> {
        let (log, file) = (Log::default(), Path::new(""));
        let (document, places) = (Document::new(file, text), RefCell::default());
        let scope = Scope {
            document: &document,
            dialect: Dialect::Own,
            base: PathBuf::new(),
            home: None,
            log: &log,
            places: &places,
            inputs: Default::default(),
            has_workspaces: Cell::default(),
            is_workspace_told: Cell::default(),
            settings: None,
            unresolved: RefCell::default(),
        };
        let path = format!("servers.{name}");
        let spec = match parser::parse(text) {
            Err(error) => {
                scope.error(error.at, &path, error.message, None);
                None
            }
            Ok(root) => match root.as_table() {
                Some(table) => server::read(&scope, name, root.at, table),
                None => {
                    scope.error(At::default(), &path, "a server is a JSON object", None);
                    None
                }
            },
        };
        match spec.filter(|_| !log.has_error()) {
            Some(spec) => Ok(spec),
            None => Err(Report { problems: log.finish(file) }),
        }
    }

    /// Writes the server as [`from_json`](Self::from_json) reads it, without what a config file leaves to defaults.
    /// Secrets that are references stay references; others are written as they are. Times are written in whole
    /// milliseconds, up to a year.
    pub fn to_json(&self) -> Value {
        let mut out = Object::default();
        let default = Self::with_transport(self.name.clone(), self.transport.clone()).lazy();
        match &self.transport {
            Transport::Stdio(process) => {
                out.put("command", json!(process.command));
                out.put_unless(process.args.is_empty(), "args", || json!(process.args));
                out.put_unless(process.env.is_empty(), "env", || json!(process.env));
                out.put_unless(process.env_pass.is_empty(), "env_pass", || json!(process.env_pass));
                out.put_unless(process.cwd.is_none(), "cwd", || json!(process.cwd));
            }
            Transport::Http(endpoint) => {
                out.put("url", json!(endpoint.url));
                out.put_unless(endpoint.headers.is_empty(), "headers", || json!(endpoint.headers));
            }
        }
        out.put_unless(self.lazy == default.lazy, "lazy", || json!(self.lazy));
        for (key, own, preset) in [
            ("keep_alive", self.keep_alive, default.keep_alive),
            ("start_timeout", self.start_timeout, default.start_timeout),
            ("fetch_timeout", self.fetch_timeout, default.fetch_timeout),
            ("call_timeout", self.call_timeout, default.call_timeout),
            ("max_call_time", self.max_call_time, default.max_call_time),
            ("drain", self.drain, default.drain),
        ] {
            out.put_unless(own == preset, key, || time(own));
        }
        for (key, own, preset) in [
            ("max_in_flight", self.max_in_flight, default.max_in_flight),
            ("max_queued", self.max_queued, default.max_queued),
            ("max_tools", self.lists.tools, default.lists.tools),
            ("max_prompts", self.lists.prompts, default.lists.prompts),
            ("max_resources", self.lists.resources, default.lists.resources),
            ("max_templates", self.lists.templates, default.lists.templates),
        ] {
            out.put_unless(own == preset, key, || json!(own));
        }
        out.put_unless(self.max_line == default.max_line, "max_line", || {
            json!(format!("{}B", self.max_line))
        });
        out.put_unless(self.isolation == Isolation::Shared, "isolation", || json!(self.isolation));
        out.put_unless(self.workspace.is_none(), "workspace", || json!(self.workspace));
        out.put_unless(self.restart == default.restart, "restart", || restart(&self.restart));
        out.put_unless(self.breaker == default.breaker, "breaker", || breaker(&self.breaker));
        out.put_unless(self.trust == default.trust, "trust", || json!(self.trust));
        out.put_unless(self.cache_scope == CacheScopeRule::Server, "cache_scope", || json!(self.cache_scope));
        out.put_unless(self.validate == default.validate, "validate", || json!(self.validate));
        out.put_unless(self.tools == default.tools, "tools", || json!(self.tools));
        out.put_unless(self.tool.is_empty(), "tool", || {
            self.tool.iter().map(|(name, rules)| (name.clone(), tool(rules))).collect::<Map<_, _>>().into()
        });
        out.put_unless(self.is_pinned, "pins", || json!("off"));
        out.put_unless(self.card.is_none(), "card", || json!(self.card));
        Value::Object(out.0)
    }
}

/// An object in the making.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    fn put_unless(&mut self, is_default: bool, key: &str, value: impl FnOnce() -> Value) {
        if !is_default {
            self.put(key, value());
        }
    }
}

/// A time as people write it, or in milliseconds where that would lose some.
fn time(time: Duration) -> Value {
    let text = Span(time).to_string();
    match duration::parse(&text) {
        Ok(read) if read == time => json!(text),
        _ => json!(format!("{}ms", time.min(duration::LONGEST).as_millis())),
    }
}

fn restart(settings: &RestartSettings) -> Value {
    let default = RestartSettings::default();
    let mut out = Object::default();
    out.put_unless(settings.max == default.max, "max", || json!(settings.max));
    for (key, own, preset) in [
        ("window", settings.window, default.window),
        ("first_delay", settings.first_delay, default.first_delay),
        ("max_delay", settings.max_delay, default.max_delay),
    ] {
        out.put_unless(own == preset, key, || time(own));
    }
    out.put_unless(settings.readmit_after == default.readmit_after, "readmit_after", || {
        settings.readmit_after.map_or_else(|| json!("never"), time)
    });
    Value::Object(out.0)
}

fn breaker(settings: &BreakerSettings) -> Value {
    json!({ "failures": settings.failures, "reset": time(settings.reset) })
}

fn tool(rules: &ToolRules) -> Value {
    let mut out = Object::default();
    match rules.cache {
        CacheRule::Hint => {}
        CacheRule::Never => out.put("cache", json!(false)),
        CacheRule::For(span) => out.put("cache", time(span)),
    }
    out.put_unless(rules.retry == RetryRule::Never, "retry", || json!(rules.retry));
    Value::Object(out.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn read(text: &Value) -> ServerSpec {
        ServerSpec::from_json(ServerName::new("s").unwrap(), &text.to_string()).unwrap()
    }

    /// Every key of a server with a process, none of them as it is by default.
    fn all() -> Value {
        json!({
            "command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${env:TOKEN}"}, "env_pass": ["AWS_*"],
            "cwd": "/srv", "lazy": false, "keep_alive": "1m1s", "isolation": "workspace", "workspace": "/home/ann", "start_timeout": "1500ms",
            "fetch_timeout": "10m", "call_timeout": "59999ms", "max_call_time": "2h", "max_in_flight": 3,
            "max_queued": 4, "max_line": "1025B", "max_tools": 5, "max_prompts": 6, "max_resources": 7,
            "max_templates": 8, "drain": "0ms",
            "restart": {"max": 1, "window": "1m", "first_delay": "50ms", "max_delay": "6s", "readmit_after": "1m30s"},
            "breaker": {"failures": 2, "reset": "3s"}, "trust": true, "cache_scope": "private", "validate": false,
            "tools": {"allow": ["a*"], "deny": ["ab"]},
            "tool": {"a": {"cache": "5s", "retry": "safe"}, "b": {"cache": false}, "c": {}}, "pins": "off",
            "card": "https://example.com/card.json",
        })
    }

    #[test]
    fn every_key_is_written_as_it_was_read() {
        let spec = read(&all());
        assert_eq!(spec.to_json(), all());
        let remote =
            json!({"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}});
        assert_eq!(read(&remote).to_json(), remote);
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        // A spec is of a server that is run.
        let fields = server::SECTION.fields.iter().filter(|field| field.key != "disabled");
        let known = fields.map(|field| field.key.to_owned()).collect();
        assert_eq!(&keys(&all()) | &keys(&remote), known, "a key of the config is written by nobody");
    }

    #[test]
    fn a_spec_of_defaults_says_how_the_server_is_reached_and_nothing_else() {
        let spec = ServerSpec::stdio(ServerName::new("s").unwrap(), "server");
        assert_eq!(spec.clone().lazy().to_json(), json!({"command": "server"}));
        assert_eq!(spec.to_json(), json!({"command": "server", "lazy": false}));
        assert_eq!(read(&spec.to_json()), spec);
    }

    #[test]
    fn a_built_spec_is_read_back_as_it_was() {
        let name = ServerName::new("s").unwrap();
        let local = ServerSpec::stdio(name.clone(), "uvx")
            .args(["some-server"])
            .env("TOKEN", "${file:/run/token}")
            .env_pass(["AWS_*"])
            .cwd("/srv")
            .keep_alive(Duration::from_millis(61_001))
            .isolation(Isolation::Session)
            .restart(RestartSettings { max: 2, ..RestartSettings::default() })
            .start_timeout(Duration::from_secs(5))
            .fetch_timeout(Duration::from_secs(6))
            .call_timeout(Duration::from_secs(3_600))
            .validate(false)
            .lazy();
        assert_eq!(read(&local.to_json()), local);
        let remote = ServerSpec::http(name, "https://example.com/mcp").header("X-Key", "${env:KEY}");
        assert_eq!(read(&remote.to_json()), remote);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let told = |text: &str| {
            let report = ServerSpec::from_json(ServerName::new("s").unwrap(), text).unwrap_err();
            report.problems.iter().map(|problem| (problem.line, problem.path.clone())).collect::<Vec<_>>()
        };
        assert_eq!(told("{\n  \"command\": 7,\n  \"keep_alive\": \"soon\"\n}").len(), 2);
        assert_eq!(
            told("{\n  \"command\": \"x\",\n  \"keep_alive\": \"soon\"\n}"),
            [(3, "servers.s.keep_alive".to_owned())]
        );
        assert_eq!(told("[]"), [(1, "servers.s".to_owned())]);
        assert_eq!(told("{").len(), 1);
        assert_eq!(told("{}").len(), 1);
    }
}
