//! Start environment of a server's process: arguments, variables and directory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::config::{Template, TemplateReference};
use ostler_core::fault::PermanentCause;
use ostler_core::inherited_env::{find_names, is_in_env_pass, is_inherited};
use ostler_core::spec::ProcessSpec;

use crate::process::protocol::{SpawnRequest, StopTimeouts};
use crate::redact::Redactor;

/// Proxies, whose addresses may hold a password.
const PROXIES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];

/// Upper bound on the variables that an error names.
const MOST_NAMED: usize = 3;

/// A file that a value refers to holds a secret, not a library.
const MAX_FILE: u64 = 1 << 20;

/// Inputs of a process's start environment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartEnvironment<'a> {
    /// Replaces the host's own `PATH`, if set.
    pub(crate) path: Option<&'a str>,
    /// The working directory of the callers, if they have one.
    pub(crate) workspace: Option<&'a str>,
}

/// Makes the spawn request of one start. References are resolved here and nowhere else.
pub(crate) async fn spawn_request(
    process: &ProcessSpec,
    StartEnvironment { path, workspace }: StartEnvironment<'_>,
    pace: StopTimeouts,
    veil: &Arc<Redactor>,
) -> Result<SpawnRequest, PermanentCause> {
    let mut argv = vec![resolve(&process.command, workspace, veil).await?];
    for argument in &process.args {
        argv.push(resolve(argument, workspace, veil).await?);
    }
    let mut env = inherited(process, veil);
    if let Some(path) = path.filter(|_| !process.env.contains_key("PATH")) {
        env.retain(|(key, _)| key != "PATH");
        env.push(("PATH".into(), path.into()));
    }
    for (key, value) in &process.env {
        if key.is_empty() || key.contains(['=', '\0']) {
            let why = format!("`{}` can't be the name of a variable", key.escape_debug());
            return Err(PermanentCause::Config(why));
        }
        env.push((key.clone(), resolve(value, workspace, veil).await?));
    }
    let has_nul = argv.iter().chain(env.iter().map(|(_, value)| value)).any(|text| text.contains('\0'));
    if has_nul {
        return Err(PermanentCause::Config("an argument or variable contains a NUL character".into()));
    }
    Ok(SpawnRequest { argv, env, cwd: process.cwd_in(workspace), pace })
}

/// Returns the host's variables that a server is given. Values that it asked for by name, and passwords of proxies,
/// are redacted from all output.
fn inherited(process: &ProcessSpec, veil: &Redactor) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (key, value) in variables_of_host() {
        let is_named = is_in_env_pass(&process.env_pass, &key);
        if process.env.contains_key(&key) || !(is_named || is_inherited(&key)) {
            continue;
        }
        if !is_inherited(&key) {
            veil.add_secret(&format!("env:{key}"), &value);
        } else if PROXIES.contains(&key.to_lowercase().as_str())
            && let Some(login) = login_of(&value)
        {
            veil.add_secret(&format!("env:{key}"), login);
            veil.add_secret(
                &format!("env:{key}"),
                login.split_once(':').map_or(login, |(_, password)| password),
            );
        }
        env.push((key, value));
    }
    env
}

/// Returns the variables of the host's environment that are text.
fn variables_of_host() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
}

/// Returns `user:password` of an address.
fn login_of(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    host.rsplit_once('@').map(|(login, _)| login)
}

/// Returns the variables that a failed server mentions, that are set here and that were not passed to it.
pub(crate) fn withheld(process: &ProcessSpec, stderr: &[String]) -> Vec<String> {
    let text = stderr.join("\n");
    let is_withheld = |name: &&str| {
        std::env::var_os(name).is_some_and(|value| !value.is_empty())
            && !process.env.contains_key(*name)
            && !is_inherited(name)
            && !is_in_env_pass(&process.env_pass, name)
    };
    find_names(&text).into_iter().filter(is_withheld).take(MOST_NAMED).map(str::to_owned).collect()
}

/// Resolves the references in a value and redacts the results from all output. An error names the reference and never
/// a value.
pub(crate) async fn resolve(
    text: &str,
    workspace: Option<&str>,
    veil: &Arc<Redactor>,
) -> Result<String, PermanentCause> {
    let template = Template::parse(text).map_err(|error| PermanentCause::Config(error.to_string()))?;
    if !template.has_references() {
        return template.resolve(&|_| Err(String::new())).map_err(PermanentCause::Unresolved);
    }
    // Files are read off the runtime; there are seldom more than one.
    let (veil, workspace) = (Arc::clone(veil), workspace.map(str::to_owned));
    let look_up = move |reference: &TemplateReference| {
        let value = look_up(reference, workspace.as_deref())?;
        match reference {
            TemplateReference::Workspace => {}
            // What every server is given anyway is no secret.
            TemplateReference::Env(name) if is_inherited(name) => {}
            TemplateReference::Env(name) => veil.add_secret(&format!("env:{name}"), &value),
            TemplateReference::File(path) => veil.add_secret(&format!("file:{}", path.display()), &value),
        }
        Ok(value)
    };
    tokio::task::spawn_blocking(move || template.resolve(&look_up).map_err(PermanentCause::Unresolved))
        .await
        .map_err(|error| PermanentCause::Config(error.to_string()))?
}

fn look_up(reference: &TemplateReference, workspace: Option<&str>) -> Result<String, String> {
    match reference {
        TemplateReference::Workspace => {
            workspace.map(str::to_owned).ok_or_else(|| "is not known: the caller names none".into())
        }
        TemplateReference::Env(name) => {
            std::env::var(name).map_err(|_| "is not set where Ostler was started".into())
        }
        TemplateReference::File(path) => read_file(&expand(path)).map_err(|error| unreadable(&error)),
    }
}

/// Returns the end of an error message that begins with the file.
fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".into(),
        _ => format!("can't be read: {error}"),
    }
}

/// Reads a regular file of at most 1 MiB, without its last newline.
pub(crate) fn read_file(path: &Path) -> std::io::Result<String> {
    // A pipe would hold up the start, and a device may have no end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    // Editors end files with a newline that is not part of a secret.
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Expands a leading `~`. Paths in config files are absolute already; those of specs made in code may not be.
fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}
