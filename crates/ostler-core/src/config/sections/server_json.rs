//! One server as JSON: the object under `servers.NAME` of a config file, read and written.

use std::cell::RefCell;
use std::path::Path;

use serde_json::{Value, json};

use super::server;
use crate::config::keys::WriteSection as _;
use crate::config::problem::{ConfigError, ProblemLog};
use crate::config::read::{FileContext, SourceSpan as At, SourceText, json as parser};
use crate::server_name::ServerName;
use crate::spec::{ServerSpec, ServerTransport};

impl ServerSpec {
    /// Reads a server from JSON, with the keys and the defaults of a config file: it is lazy by default.
    /// References such as `${env:TOKEN}` stay references until the server is started. Relative paths stay
    /// relative, and `~` has no meaning.
    ///
    /// ```
    /// use ostler_core::server_name::ServerName;
    /// use ostler_core::spec::ServerSpec;
    ///
    /// let text = r#"{"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${env:TOKEN}"}, "keep_alive": "1m"}"#;
    /// let spec = ServerSpec::from_json(ServerName::new("some")?, text)?;
    /// assert_eq!(spec.keep_alive.as_secs(), 60);
    /// assert_eq!(ServerSpec::from_json(ServerName::new("some")?, &spec.to_json().to_string())?, spec);
    ///
    /// let error = ServerSpec::from_json(ServerName::new("some")?, r#"{"comand": "npx"}"#).unwrap_err();
    /// assert_eq!(error.problems[0].hint.as_deref(), Some("did you mean `command`?"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_json(name: ServerName, text: &str) -> Result<Self, ConfigError> {
        let (log, file) = (ProblemLog::default(), Path::new(""));
        let (document, places) = (SourceText::new(file, text), RefCell::default());
        let context = FileContext::new(&document, &log, &places);
        let path = format!("servers.{name}");
        let spec = match parser::parse(text) {
            Err(error) => {
                context.error(error.span, &path, error.message, None);
                None
            }
            Ok(root) => match root.as_table() {
                Some(table) => server::read(&context, name, root.span, table),
                None => {
                    context.error(At::default(), &path, "a server is a JSON object", None);
                    None
                }
            },
        };
        match spec.filter(|_| !log.has_error()) {
            Some(spec) => Ok(spec),
            None => Err(ConfigError { problems: log.finish(file) }),
        }
    }

    /// Writes the server in the form that [`from_json`](Self::from_json) reads, without values that a config
    /// file has by default. Secrets that are references stay references; others are written as they are.
    /// Times are written in whole milliseconds, up to a year.
    pub fn to_json(&self) -> Value {
        let default = Self::with_transport(self.name.clone(), self.transport.clone()).lazy();
        let mut written = self.write_changed(&default);
        let mut put = |key: &str, is_empty: bool, value: Value| {
            if !is_empty {
                written.insert(key.to_owned(), value);
            }
        };
        match &self.transport {
            ServerTransport::Stdio(process) => {
                put("command", false, json!(process.command));
                put("args", process.args.is_empty(), json!(process.args));
                put("env", process.env.is_empty(), json!(process.env));
                put("env_pass", process.env_pass.is_empty(), json!(process.env_pass));
                put("cwd", process.cwd.is_none(), json!(process.cwd));
            }
            ServerTransport::Http(endpoint) => {
                put("url", false, json!(endpoint.url));
                put("headers", endpoint.headers.is_empty(), json!(endpoint.headers));
            }
        }
        Value::Object(written)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::config::keys::Settings as _;
    use crate::spec::{Isolation, RestartSettings};

    fn read(text: &Value) -> ServerSpec {
        ServerSpec::from_json(ServerName::new("s").unwrap(), &text.to_string()).unwrap()
    }

    /// Returns every key of a server with a process, none with its default value.
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
        // A spec exists only for servers that are run.
        let fields = ServerSpec::SECTION.fields().filter(|field| field.key != "disabled");
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
        let reported = |text: &str| {
            let report = ServerSpec::from_json(ServerName::new("s").unwrap(), text).unwrap_err();
            report.problems.iter().map(|problem| (problem.line, problem.path.clone())).collect::<Vec<_>>()
        };
        assert_eq!(reported("{\n  \"command\": 7,\n  \"keep_alive\": \"soon\"\n}").len(), 2);
        assert_eq!(
            reported("{\n  \"command\": \"x\",\n  \"keep_alive\": \"soon\"\n}"),
            [(3, "servers.s.keep_alive".to_owned())]
        );
        assert_eq!(reported("[]"), [(1, "servers.s".to_owned())]);
        assert_eq!(reported("{").len(), 1);
        assert_eq!(reported("{}").len(), 1);
    }
}
