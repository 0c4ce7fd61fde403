//! A directory tree that exists only in the test.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ostler_core::config::{Config, ConfigError, ConfigFormat, ConfigSource, Problem};
use ostler_core::spec::{EndpointSpec, ProcessSpec, ServerSpec, ServerTransport};

/// Files by absolute path; `~` is `/home/ann`.
#[derive(Default)]
pub(crate) struct FakeFiles(BTreeMap<PathBuf, String>);

impl FakeFiles {
    pub(crate) fn with(mut self, file: &str, text: &str) -> Self {
        self.0.insert(file.into(), text.into());
        self
    }

    /// Reads one of the files as the main one.
    pub(crate) fn parse(&self, file: &str) -> Result<Config, ConfigError> {
        let file = Path::new(file);
        Config::parse(file, &self.0[file], ConfigFormat::from_path(file).expect("a known format"), self)
    }
}

impl ConfigSource for FakeFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn home(&self) -> Option<PathBuf> {
        Some("/home/ann".into())
    }

    fn config_dir(&self) -> Option<PathBuf> {
        Some("/settings/ostler".into())
    }
}

/// Returns one file in `/proj`.
pub(crate) fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
    let file = format!("/proj/{name}");
    FakeFiles::default().with(&file, text).parse(&file)
}

/// Returns the config of a valid TOML text.
pub(crate) fn parse_valid(text: &str) -> Config {
    parse("ostler.toml", text).unwrap_or_else(|report| panic!("{report}"))
}

/// Returns the messages about an invalid TOML text.
pub(crate) fn parse_invalid(text: &str) -> Vec<String> {
    messages(&parse("ostler.toml", text).expect_err("it is wrong").problems)
}

pub(crate) fn messages(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.message.clone()).collect()
}

pub(crate) fn process(spec: &ServerSpec) -> &ProcessSpec {
    match &spec.transport {
        ServerTransport::Stdio(process) => process,
        ServerTransport::Http(_) => panic!("{} has a url", spec.name),
    }
}

pub(crate) fn endpoint(spec: &ServerSpec) -> &EndpointSpec {
    match &spec.transport {
        ServerTransport::Http(endpoint) => endpoint,
        ServerTransport::Stdio(_) => panic!("{} has a command", spec.name),
    }
}
