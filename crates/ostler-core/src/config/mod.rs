//! Config: from text to a checked [`Config`], or to a list of all its problems.
//!
//! ```text
//! text ── read/toml.rs, read/json.rs ──▶ ConfigNode: one tree, values that know their location
//!            │                              read/client_formats.rs translates other clients' servers
//!            ▼
//! sections/*.rs: one line per key, from which keys/section.rs makes
//!            │                                       │
//!            ▼                                       ▼
//! keys/key_spec.rs: a table of keys    a struct, its defaults and its reader
//!            │                            (read/section_reader.rs)
//!            ▼                                       ▼
//! keys/json_schema.rs: the schema      Config, or a ConfigError with all Problems
//! ```
//!
//! The tree hides whether the file was TOML or JSON, so both mean the same. One line gives a key its name,
//! its values, its default and whether a running daemon reloads it. A problem is reported and reading
//! continues: the error holds all of them.
//!
//! This module reads no file and no environment: the caller gives the text, and a [`ConfigSource`] for
//! included files. References such as `${env:TOKEN}` are checked here and resolved when the server is started
//! ([`Template`]).
//!
//! ```
//! use ostler_core::config::{Config, ConfigFormat, NoSource};
//!
//! let text = "[servers.time]\ncommand = \"mcp-server-time\"\n";
//! let config = Config::parse("/etc/ostler.toml".as_ref(), text, ConfigFormat::Toml, &NoSource).unwrap();
//! assert_eq!(config.servers[0].name.as_str(), "time");
//! assert_eq!(config.origin("time"), Some(("/etc/ostler.toml".as_ref(), 1)));
//!
//! let text = "[servers.time]\ncomand = \"mcp-server-time\"\n";
//! let error = Config::parse("/etc/ostler.toml".as_ref(), text, ConfigFormat::Toml, &NoSource).unwrap_err();
//! assert_eq!(error.problems[0].hint.as_deref(), Some("did you mean `command`?"));
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::server_name::ServerName;
use crate::spec::ServerTransport;
use crate::stateful_servers::StatefulServer;
use keys::section::{rows, section};
use sections::{pins, role};

mod keys;
mod loader;
mod plan;
mod problem;
mod read;
mod sections;
mod values;

pub use keys::schema;
pub use loader::MAX_FILE_BYTES;
pub use plan::Plan;
pub use problem::{ConfigError, Excerpt, Problem, Severity};
pub use sections::audit::{AuditConfig, AuditedArguments, WhenFull};
pub use sections::auth::{Algorithm, AuthConfig, JwksLocation, JwtConfig};
pub use sections::defaults::DefaultsConfig;
pub use sections::gateway::GatewayConfig;
pub use sections::limits::{CacheConfig, PoolConfig};
pub use sections::listen;
pub use sections::pins::PinMode;
pub use sections::relay::{RelayConfig, RelayCredentials, RelayJournal, RelayTls, check_nats_address};
pub use sections::restart::{BreakerSettings, RestartSettings};
pub use sections::role::{Role, RoleBudget};
pub use sections::server::{CacheScopeRule, DisabledServer, Isolation, ListLimits, ServerSpec};
pub use sections::tools::{CacheRule, RetryRule, ToolFilter, ToolRules};
pub use values::reference::{ResolveError, Template, TemplateError, TemplateReference, WORKSPACE};
pub use values::secret_literals::{is_secret_key, redact_args, redact_tokens, redact_url};
pub use values::{duration, glob, size};

/// Format of a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFormat {
    /// `.toml`: always Ostler's own.
    Toml,
    /// `.json` and `.jsonc`: Ostler's own, or another client's; comments are allowed.
    Json,
}

impl ConfigFormat {
    /// Returns the format of a file, by its extension.
    pub fn from_path(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "json" | "jsonc" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Source of included files.
pub trait ConfigSource {
    /// Reads a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Returns the directory that `~` stands for.
    fn home(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the directory of Ostler's user-wide config.
    fn config_dir(&self) -> Option<PathBuf> {
        None
    }
}

/// A source without files, for configs that include none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSource;

impl ConfigSource for NoSource {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no files here"))
    }
}

rows! {
    /// Keys that list the servers.
    const SERVERS {
        /// The version of this format.
        version = count(1..=1, 1);
        /// Files whose servers are hosted too, relative to this file; mcpServers files work unchanged.
        include = texts([]);
        /// The servers, by name.
        servers = named(ServerSpec);
    }
}

section! {
    /// Ostler's config: ostler.toml, or the same as JSON.
    ///
    /// Every value is final, every name unique.
    #[derive(Debug, Clone)]
    pub struct Config("config", plan) rows SERVERS given {
        /// In the order of the files; names are unique.
        pub servers: Vec<ServerSpec>,
        /// Servers that are listed and not run; their names are unique among all.
        pub disabled: Vec<DisabledServer>,
        /// Warnings about a config that can be used.
        pub notices: Vec<Problem>,
        origins: ConfigOrigins,
    } {
        /// The address to listen on: an IP address and a port, or a port of this machine.
        listen: SocketAddr = text("127.0.0.1:7777", listen::DEFAULT) => listen::read, at_start;
        /// True if edits of the file apply at once.
        watch: bool = flag(true);
        /// Settings of all servers.
        defaults: DefaultsConfig = section;
        /// Authentication of callers.
        auth: AuthConfig = section, at_start;
        /// Limits on running processes.
        pool: PoolConfig = section, at_start;
        /// Limits on cached answers.
        cache: CacheConfig = section, at_start;
        /// The broker through which workers elsewhere reach this host.
        relay: Option<RelayConfig> = section(RelayConfig), at_start;
        /// Limits of MCP clients at the endpoints.
        gateway: GatewayConfig = section, at_start;
        /// The audit log of calls.
        audit: AuditConfig = section, at_start;
        /// The effect of a change of a tool's definition.
        pins: PinMode = section(pins::PinsConfig) => pins::mode;
        /// Items that callers may use, by role.
        roles: BTreeMap<String, Role> = named(Role) => role::read;
    }
}

/// Locations of keys and servers in the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigOrigins {
    /// Keys that later problems may point at, and the rules of roles.
    keys: read::KeyLocations,
    /// The first line of each server.
    servers: BTreeMap<ServerName, read::SourceLocation>,
    /// Servers whose working directory is the folder of their file because none is given.
    default_cwd_servers: BTreeSet<ServerName>,
}

impl Config {
    /// Creates a config of these servers, with the documented defaults.
    pub fn new(servers: Vec<ServerSpec>) -> Self {
        Self::preset(servers, Vec::new(), Vec::new(), ConfigOrigins::default())
    }

    /// Creates the config that is used without a file: the server `demo`, which is the program itself with
    /// the argument `demo`.
    pub fn demo(command_of_self: impl Into<String>) -> Self {
        #[expect(clippy::expect_used, reason = "the name is a constant that fits the grammar")]
        let name = ServerName::new("demo").expect("`demo` is a server name");
        Self::new(vec![ServerSpec::stdio(name, command_of_self).args(["demo"]).lazy()])
    }

    /// Parses a config.
    ///
    /// `file` should be absolute: relative paths in the text are resolved against its directory. The file is
    /// not read; `source` reads the included ones.
    pub fn parse(
        file: &Path,
        text: &str,
        format: ConfigFormat,
        source: &dyn ConfigSource,
    ) -> Result<Self, ConfigError> {
        let log = problem::ProblemLog::default();
        let mut loader = loader::ConfigLoader::new(source, &log);
        loader.load(file, text, format);
        let config = loader.finish();
        let has_error = log.has_error();
        let problems = log.finish(file);
        if has_error { Err(ConfigError { problems }) } else { Ok(Self { notices: problems, ..config }) }
    }

    /// Returns the server of that name.
    pub fn server(&self, name: &str) -> Option<&ServerSpec> {
        self.servers.iter().find(|spec| spec.name.as_str() == name)
    }

    /// Moves a server from those that are run to the disabled ones.
    pub fn disable(&mut self, name: &ServerName, cause: impl Into<String>, remedy: impl Into<String>) {
        if let Some(at) = self.servers.iter().position(|spec| spec.name == *name) {
            let spec = self.servers.remove(at);
            self.disabled.push(DisabledServer { spec, cause: cause.into(), remedy: remedy.into() });
        }
    }

    /// Returns whether a server's working directory is the folder of its file because none is given.
    pub fn has_default_cwd(&self, server: &str) -> bool {
        self.origins.default_cwd_servers.contains(server)
    }

    /// Returns the file and the line, from 1, where a server begins; `None` for one that did not come from a
    /// file.
    pub fn origin(&self, server: &str) -> Option<(&Path, u32)> {
        self.origins.servers.get(server).map(|location| (location.file.as_path(), location.line))
    }

    /// Returns the file and the line, from 1, of a rule of a role: an entry of its `allow` or `deny` list, by
    /// index.
    pub fn origin_of_rule(&self, role: &str, list: &str, index: usize) -> Option<(&Path, u32)> {
        let location = self.origins.keys.get(&format!("roles.{role}.{list}.{index}"));
        location.map(|location| (location.file.as_path(), location.line))
    }

    /// Returns the file and the line, from 1, of a key that later problems may point at, such as `listen`;
    /// `None` if it is not set.
    pub fn origin_of_key(&self, path: &str) -> Option<(&Path, u32)> {
        self.origins.keys.get(path).map(|location| (location.file.as_path(), location.line))
    }

    /// Returns the file and the line, from 1, of the mode of pins; `None` if it is not set.
    pub fn origin_of_pins(&self) -> Option<(&Path, u32)> {
        self.origin_of_key("pins.mode")
    }

    /// Returns warnings about servers that are known to keep state and are shared without an explicit
    /// setting.
    pub fn shared_state_warnings(&self) -> Vec<Problem> {
        self.servers.iter().filter_map(|spec| self.shared_state_warning(spec)).collect()
    }

    fn shared_state_warning(&self, spec: &ServerSpec) -> Option<Problem> {
        let (name, ServerTransport::Stdio(process)) = (&spec.name, &spec.transport) else { return None };
        let is_explicit = self.origin_of_key(&format!("servers.{name}.isolation")).is_some();
        let server = StatefulServer::from_process(process)
            .filter(|_| spec.isolation == Isolation::Shared && !is_explicit)?;
        let origin = self.origin(name.as_str());
        let is_toml =
            origin.is_none_or(|(file, _)| ConfigFormat::from_path(file) == Some(ConfigFormat::Toml));
        let line = |word: &str| match is_toml {
            true => format!("isolation = \"{word}\""),
            false => format!("\"isolation\": \"{word}\""),
        };
        let word = if server.isolation == Isolation::Workspace { "workspace" } else { "session" };
        let addition = server
            .missing_requirement(process)
            .map(|requirement| format!(" and {requirement}"))
            .unwrap_or_default();
        let message = format!("all clients share the process of `{name}`, which keeps {}", server.state);
        let hint = format!(
            "add {}{addition} to keep them apart, or {} if that is meant",
            line(word),
            line("shared")
        );
        Some(Problem::warning(origin, format!("servers.{name}"), message, hint))
    }
}
