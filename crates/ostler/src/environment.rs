//! Requirements of a config on the machine: programs, variables and files.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ostler_core::card;
use ostler_core::config::{
    Config, Problem, RelayCredentials, ResolveError, Severity, Template, TemplateReference,
};
use ostler_core::fault::{ExecFault, PermanentCause};
use ostler_core::remedy;
use ostler_core::spec::{ProcessSpec, ServerSpec, ServerTransport};

use crate::config_file::read_at_most;

/// Upper bound on the file of a reference, as in the host.
const MAX_VALUE_BYTES: u64 = 1 << 20;

/// Returns an error for everything that keeps a server from starting here, and a warning for everything that keeps
/// workers away.
pub(crate) fn check(config: &Config) -> Vec<Problem> {
    let servers = config.servers.iter().flat_map(|spec| check_server(config, spec));
    let cards = config.servers.iter().filter_map(|spec| check_card(config, spec));
    servers.chain(cards).chain(check_relay(config)).collect()
}

/// Returns a warning for a card file that can't be read. The server starts without it.
fn check_card(config: &Config, spec: &ServerSpec) -> Option<Problem> {
    let file = spec.card.as_deref().filter(|card| !card::is_url(card))?;
    let name = spec.name.as_str();
    let why = match std::fs::File::open(file) {
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(Problem::warning(
        config.origin(name),
        format!("servers.{name}.card"),
        format!("the card {file} of `{name}` can't be read: {why} (`card`)"),
        "write it, or correct the path; the server starts without it",
    ))
}

/// Returns a warning for everything that would keep workers away.
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

/// Returns an error for everything that keeps a server from starting here, with the remedy that its start would name.
fn check_server(config: &Config, spec: &ServerSpec) -> Vec<Problem> {
    let name = spec.name.as_str();
    let problem = |(key, cause): (String, PermanentCause)| Problem {
        severity: severity(&cause),
        ..Problem::warning(
            config.origin(name),
            format!("servers.{name}.{key}"),
            format!("`{name}` can't start: {cause} (`{key}`)"),
            remedy::for_permanent_cause(name, &cause),
        )
    };
    let workspace = spec.workspace.as_deref().and_then(Path::to_str);
    let unresolved = values(spec).into_iter().filter_map(|(key, text)| {
        resolve_in(text, workspace).err().map(|error| (key, PermanentCause::Unresolved(error)))
    });
    let process = if let ServerTransport::Stdio(process) = &spec.transport { Some(process) } else { None };
    let process = process.into_iter().flat_map(|process| {
        let folder = process.cwd_in(workspace).filter(|folder| !folder.is_dir());
        let folder = folder.map(|it| ("cwd".to_owned(), PermanentCause::NoFolder(it.display().to_string())));
        // Without its directory a relative program can't be found either.
        let is_there = folder.is_none();
        let command = resolve_in(&process.command, workspace).ok().filter(|_| is_there);
        let program = command.and_then(|command| execution_problem(&command, process));
        folder.into_iter().chain(program.map(|cause| ("command".to_owned(), cause)))
    });
    unresolved.chain(process).map(problem).collect()
}

/// Returns an error if the server can't start at all, and a warning if it starts only for clients that name their
/// workspace.
fn severity(cause: &PermanentCause) -> Severity {
    match cause {
        PermanentCause::Unresolved(ResolveError { reference: TemplateReference::Workspace, .. }) => {
            Severity::Warning
        }
        _ => Severity::Error,
    }
}

/// Returns the reason why a program can't be executed, as far as its file tells.
fn execution_problem(command: &str, process: &ProcessSpec) -> Option<PermanentCause> {
    if find_program(command, process).is_some() {
        return None;
    }
    let program = command.escape_debug().to_string();
    if !command.contains('/') {
        return Some(PermanentCause::ProgramMissing {
            program,
            path: search_path(process).into_string().ok(),
        });
    }
    let file = process.cwd.as_deref().unwrap_or(Path::new("")).join(command);
    Some(match file.metadata() {
        Ok(meta) if meta.is_file() => PermanentCause::NotExecutable { program, why: ExecFault::Permission },
        Ok(_) => PermanentCause::NotExecutable { program, why: ExecFault::NotAFile },
        Err(_) => PermanentCause::ProgramMissing { program, path: None },
    })
}

/// Returns every value that may hold references, with its key.
fn values(spec: &ServerSpec) -> Vec<(String, &str)> {
    let entries = |key: &str, (name, value)| (format!("{key}.{name}"), value);
    match &spec.transport {
        ServerTransport::Stdio(process) => {
            let args = process.args.iter().map(|arg| ("args".to_owned(), arg.as_str()));
            let env = process.env.iter().map(|(name, value)| entries("env", (name, value.as_str())));
            std::iter::once(("command".to_owned(), process.command.as_str())).chain(args).chain(env).collect()
        }
        ServerTransport::Http(endpoint) => {
            let headers =
                endpoint.headers.iter().map(|(name, value)| entries("headers", (name, value.as_str())));
            std::iter::once(("url".to_owned(), endpoint.url.as_str())).chain(headers).collect()
        }
    }
}

/// Resolves the references of a text, with their current values.
pub(crate) fn resolve(text: &str) -> Result<String, String> {
    resolve_in(text, None).map_err(|error| error.to_string())
}

/// Resolves the references of a text for a server of a workspace. Fails with the reference that can't be resolved.
/// Texts of a parsed config are templates.
fn resolve_in(text: &str, workspace: Option<&str>) -> Result<String, ResolveError> {
    match Template::parse(text) {
        Ok(template) => template.resolve(&|reference| resolve_reference(reference, workspace)),
        Err(_) => Ok(text.to_owned()),
    }
}

fn resolve_reference(reference: &TemplateReference, workspace: Option<&str>) -> Result<String, String> {
    match reference {
        TemplateReference::Workspace => {
            workspace.map(str::to_owned).ok_or_else(|| "is not known here".into())
        }
        TemplateReference::Env(name) => std::env::var(name).map_err(|_| "is not set".into()),
        TemplateReference::File(path) => match read_at_most(Path::new(path), MAX_VALUE_BYTES) {
            Ok(text) if text.len() as u64 > MAX_VALUE_BYTES => Err("is larger than 1 MiB".into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err("does not exist".into()),
            read => read.map_err(|error| format!("can't be read: {error}")),
        },
    }
}

/// Returns the file that the server's process would execute, by its own `PATH` if it sets one.
pub(crate) fn find_program(command: &str, process: &ProcessSpec) -> Option<PathBuf> {
    if command.contains('/') {
        let file = process.cwd.as_deref().unwrap_or(Path::new("")).join(command);
        return Some(file).filter(|file| is_executable(file));
    }
    let path = search_path(process);
    std::env::split_paths(&path).map(|folder: PathBuf| folder.join(command)).find(|file| is_executable(file))
}

fn search_path(process: &ProcessSpec) -> OsString {
    let own = process.env.get("PATH").and_then(|text| resolve(text).ok()).map(Into::into);
    own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
