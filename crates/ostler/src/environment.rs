//! What a config needs from the machine: programs, variables and files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ostler_core::config::{Config, Problem, Reference, RelayCredentials, Template};
use ostler_core::spec::{Process, ServerSpec, Transport};

use crate::config_file::read_at_most;

/// The largest file behind a reference, as the host has it.
const LARGEST_VALUE: u64 = 1 << 20;

/// A warning for everything that would keep a server from starting.
pub(crate) fn check(config: &Config) -> Vec<Problem> {
    let servers = config.servers.iter().flat_map(|spec| check_server(config, spec));
    servers.chain(check_relay(config)).collect()
}

/// A warning for everything that would keep workers away.
fn check_relay(config: &Config) -> Vec<Problem> {
    let Some(relay) = &config.relay else { return Vec::new() };
    let warn = |key: &str, message: String, hint: &str| {
        Problem::warning(config.origin_of_key(key), key.to_owned(), message, hint)
    };
    let (cert, key) = relay.tls.identity.clone().unzip();
    let mut files = vec![("relay.ca", relay.tls.ca.clone()), ("relay.cert", cert), ("relay.key", key)];
    let mut problems = Vec::new();
    match &relay.credentials {
        RelayCredentials::None => {}
        RelayCredentials::Creds(file) => files.push(("relay.creds", Some(file.clone()))),
        RelayCredentials::Nkey(file) => files.push(("relay.nkey", Some(file.clone()))),
        RelayCredentials::Password { password, .. } => {
            if let Err(why) = resolve(password) {
                let message = format!("`relay.password`: {why}");
                problems.push(warn("relay.password", message, "it is needed when the daemon is started"));
            }
        }
    }
    for (key, file) in files {
        if let Some(Err(why)) = file.as_ref().map(std::fs::File::open) {
            let shown = file.unwrap_or_default().display().to_string();
            let message = format!("the file {shown} of `{key}` can't be read: {why}");
            problems.push(warn(key, message, "write it, or correct the path"));
        }
    }
    problems
}

fn check_server(config: &Config, spec: &ServerSpec) -> Vec<Problem> {
    let path = format!("servers.{}", spec.name);
    let warn = |key: &str, message: String, hint: &str| {
        Problem::warning(config.origin(spec.name.as_str()), format!("{path}.{key}"), message, hint)
    };
    let mut problems: Vec<Problem> = values(spec)
        .into_iter()
        .filter_map(|(key, text)| resolve(text).err().map(|why| (key, why)))
        .map(|(key, why)| {
            warn(&key, format!("`{path}.{key}`: {why}"), "it is needed when the server is started")
        })
        .collect();
    if let Transport::Stdio(process) = &spec.transport {
        if let Some(folder) = process.cwd.as_deref().filter(|folder| !folder.is_dir()) {
            let message = format!("the directory {} of `{}` does not exist", folder.display(), spec.name);
            problems.push(warn("cwd", message, "create it, or correct `cwd`"));
        }
        if let Ok(command) = resolve(&process.command)
            && program(&command, process).is_none()
        {
            let message =
                format!("the program `{}` of `{}` was not found", command.escape_debug(), spec.name);
            let hint = if command.contains('/') {
                "correct `command`"
            } else {
                "install it, or write its whole path"
            };
            problems.push(warn("command", message, hint));
        }
    }
    problems
}

/// Every value that may hold references, with its key.
fn values(spec: &ServerSpec) -> Vec<(String, &str)> {
    let entries = |key: &str, (name, value)| (format!("{key}.{name}"), value);
    match &spec.transport {
        Transport::Stdio(process) => {
            let args = process.args.iter().map(|arg| ("args".to_owned(), arg.as_str()));
            let env = process.env.iter().map(|(name, value)| entries("env", (name, value.as_str())));
            std::iter::once(("command".to_owned(), process.command.as_str())).chain(args).chain(env).collect()
        }
        Transport::Http(endpoint) => {
            let headers =
                endpoint.headers.iter().map(|(name, value)| entries("headers", (name, value.as_str())));
            std::iter::once(("url".to_owned(), endpoint.url.as_str())).chain(headers).collect()
        }
    }
}

/// A text with its references resolved, as they are now.
pub(crate) fn resolve(text: &str) -> Result<String, String> {
    let template = Template::parse(text).map_err(|error| error.to_string())?;
    template.resolve(&look_up).map_err(|error| error.to_string())
}

fn look_up(reference: &Reference) -> Result<String, String> {
    match reference {
        Reference::Env(name) => std::env::var(name).map_err(|_| "it is not set".into()),
        Reference::File(path) => match read_at_most(Path::new(path), LARGEST_VALUE) {
            Ok(text) if text.len() as u64 > LARGEST_VALUE => Err("it is larger than 1 MiB".into()),
            read => read.map_err(|error| error.to_string()),
        },
    }
}

/// The file that the server's process would execute, by its own `PATH` if it is given one.
pub(crate) fn program(command: &str, process: &Process) -> Option<PathBuf> {
    if command.contains('/') {
        let file = process.cwd.as_deref().unwrap_or(Path::new("")).join(command);
        return Some(file).filter(|file| is_executable(file));
    }
    let own = process.env.get("PATH").and_then(|text| resolve(text).ok()).map(Into::into);
    let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    std::env::split_paths(&path).map(|folder: PathBuf| folder.join(command)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
