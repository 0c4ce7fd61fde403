//! Config: text to a checked [`Config`], or everything that is wrong with it.
//!
//! ```text
//! text ── toml.rs, json.rs ──▶ Node: one tree, values that know their place
//!            │                        clients.rs translates other clients' servers
//!            ▼
//! server.rs, role.rs, …: one line per key, of which section.rs makes
//!            │                                       │
//!            ▼                                       ▼
//! field.rs: a table of keys ──▶ schema.rs    a struct, its defaults and what reads it (reader.rs)
//!                                                    │
//!                                                    ▼
//!                                     Config, or a Report of Problems
//! ```
//!
//! Behind the tree nothing tells whether the file was TOML or JSON, so both
//! mean the same. One line says what a key is called, what it may hold, what
//! holds without it and whether a running daemon takes it up. A problem is
//! reported and reading goes on: the report holds all of them.
//!
//! This module reads no file and no environment: the caller gives the text,
//! and a [`Source`] for included files. References such as `${env:TOKEN}` are
//! checked here and resolved by whoever starts the server ([`Template`]).
//!
//! ```
//! use ostler_core::config::{Config, Format, NoSource};
//!
//! let text = "[servers.time]\ncommand = \"mcp-server-time\"\n";
//! let config = Config::parse("/etc/ostler.toml".as_ref(), text, Format::Toml, &NoSource).unwrap();
//! assert_eq!(config.servers[0].name.as_str(), "time");
//! assert_eq!(config.origin("time"), Some(("/etc/ostler.toml".as_ref(), 1)));
//!
//! let text = "[servers.time]\ncomand = \"mcp-server-time\"\n";
//! let report = Config::parse("/etc/ostler.toml".as_ref(), text, Format::Toml, &NoSource).unwrap_err();
//! assert_eq!(report.problems[0].hint.as_deref(), Some("did you mean `command`?"));
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

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFormat {
    /// `.toml`: always Ostler's own.
    Toml,
    /// `.json` and `.jsonc`: Ostler's own, or another client's; comments are welcome.
    Json,
}

impl ConfigFormat {
    /// The format of a file, by how its name ends.
    pub fn from_path(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "json" | "jsonc" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Where included files come from.
pub trait ConfigSource {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// What `~` stands for.
    fn home(&self) -> Option<PathBuf> {
        None
    }

    /// The folder of Ostler's own user-wide config.
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
    /// Keys that say which servers there are.
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
        /// Servers that are named and not run; their names are unique among all.
        pub disabled: Vec<DisabledServer>,
        /// What somebody should know although the config can be used; none is an error.
        pub notices: Vec<Problem>,
        origins: ConfigOrigins,
    } {
        /// The address to listen on: an IP address and a port, or a port of this machine.
        listen: SocketAddr = text("127.0.0.1:7777", listen::DEFAULT) => listen::read, at_start;
        /// Whether an edit of the file applies by itself.
        watch: bool = flag(true);
        /// Settings of all servers.
        defaults: DefaultsConfig = section;
        /// How callers prove who they are.
        auth: AuthConfig = section, at_start;
        /// Limits on what runs at once.
        pool: PoolConfig = section, at_start;
        /// Limits on what is remembered.
        cache: CacheConfig = section, at_start;
        /// The broker through which workers elsewhere reach this host.
        relay: Option<RelayConfig> = section(RelayConfig), at_start;
        /// What MCP clients may do at the endpoints.
        gateway: GatewayConfig = section, at_start;
        /// What is written down about calls.
        audit: AuditConfig = section, at_start;
        /// What happens when a tool's definition changes.
        pins: PinMode = section(pins::PinsConfig) => pins::mode;
        /// What callers may use, by role.
        roles: BTreeMap<String, Role> = named(Role) => role::read;
    }
}

/// Where things stand in the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigOrigins {
    /// Keys that may be complained about later, and the rules of roles.
    keys: read::KeyLocations,
    /// The first line of each server.
    servers: BTreeMap<ServerName, read::SourceLocation>,
    /// Servers whose working directory is the folder of their file because none is given.
    default_cwd_servers: BTreeSet<ServerName>,
}

impl Config {
    /// These servers, and every default of the documentation.
    pub fn new(servers: Vec<ServerSpec>) -> Self {
        Self::preset(servers, Vec::new(), Vec::new(), ConfigOrigins::default())
    }

    /// The config for when there is none: the server `demo`, which is the
    /// program itself, started with the argument `demo`.
    pub fn demo(command_of_self: impl Into<String>) -> Self {
        #[expect(clippy::expect_used, reason = "the name is a constant that fits the grammar")]
        let name = ServerName::new("demo").expect("`demo` is a server name");
        Self::new(vec![ServerSpec::stdio(name, command_of_self).args(["demo"]).lazy()])
    }

    /// Reads a config.
    ///
    /// `file` should be absolute: relative paths in the text are taken relative
    /// to its directory. It is not read; `source` gives what it includes.
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

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<&ServerSpec> {
        self.servers.iter().find(|spec| spec.name.as_str() == name)
    }

    /// Takes a server out of those that are run.
    pub fn disable(&mut self, name: &ServerName, cause: impl Into<String>, remedy: impl Into<String>) {
        if let Some(at) = self.servers.iter().position(|spec| spec.name == *name) {
            let spec = self.servers.remove(at);
            self.disabled.push(DisabledServer { spec, cause: cause.into(), remedy: remedy.into() });
        }
    }

    /// Whether a server's working directory is the folder of its file because none is given.
    pub fn has_default_cwd(&self, server: &str) -> bool {
        self.origins.default_cwd_servers.contains(server)
    }

    /// The file and the line, from 1, where a server begins; `None` for one
    /// that did not come from a file.
    pub fn origin(&self, server: &str) -> Option<(&Path, u32)> {
        self.origins.servers.get(server).map(|place| (place.file.as_path(), place.line))
    }

    /// The file and the line, from 1, where a rule of a role stands: one of its
    /// `allow` or `deny` list, by its place in the list.
    pub fn origin_of_rule(&self, role: &str, list: &str, index: usize) -> Option<(&Path, u32)> {
        let place = self.origins.keys.get(&format!("roles.{role}.{list}.{index}"));
        place.map(|place| (place.file.as_path(), place.line))
    }

    /// The file and the line, from 1, where one of the keys is set that may be
    /// complained about later, such as `listen`; `None` if it is not.
    pub fn origin_of_key(&self, path: &str) -> Option<(&Path, u32)> {
        self.origins.keys.get(path).map(|place| (place.file.as_path(), place.line))
    }

    /// The file and the line, from 1, where the mode of pins is set; `None` if it is not.
    pub fn origin_of_pins(&self) -> Option<(&Path, u32)> {
        self.origin_of_key("pins.mode")
    }

    /// Servers that are known to keep state and are shared although nothing says that this is meant.
    pub fn shared_state_warnings(&self) -> Vec<Problem> {
        self.servers.iter().filter_map(|spec| self.shared_state_warning(spec)).collect()
    }

    fn shared_state_warning(&self, spec: &ServerSpec) -> Option<Problem> {
        let (name, ServerTransport::Stdio(process)) = (&spec.name, &spec.transport) else { return None };
        let is_said = self.origin_of_key(&format!("servers.{name}.isolation")).is_some();
        let server = StatefulServer::from_process(process)
            .filter(|_| spec.isolation == Isolation::Shared && !is_said)?;
        let origin = self.origin(name.as_str());
        let is_toml =
            origin.is_none_or(|(file, _)| ConfigFormat::from_path(file) == Some(ConfigFormat::Toml));
        let line = |word: &str| match is_toml {
            true => format!("isolation = \"{word}\""),
            false => format!("\"isolation\": \"{word}\""),
        };
        let word = if server.isolation == Isolation::Workspace { "workspace" } else { "session" };
        let besides =
            server.missing_requirement(process).map(|lacks| format!(" and {lacks}")).unwrap_or_default();
        let message = format!("all clients share the process of `{name}`, which keeps {}", server.state);
        let hint =
            format!("add {}{besides} to keep them apart, or {} if that is meant", line(word), line("shared"));
        Some(Problem::warning(origin, format!("servers.{name}"), message, hint))
    }
}
