//! What a server's process is given: arguments, environment, directory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::config::{Reference, Template};
use ostler_core::spec::Process;

use crate::guard::order::{Order, Pace};
use crate::secrets::Veil;

/// Variables of the host that every server gets; names ending in `*` are prefixes.
const PASSED_ON: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_*",
    "TMPDIR",
    "TERM",
    "SHELL",
    "TZ",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ALL_PROXY",
];

/// A file that a value refers to holds a secret, not a library.
const MAX_FILE: u64 = 1 << 20;

/// Makes the order for one start. References are resolved here and nowhere else.
pub(crate) async fn order(process: &Process, pace: Pace, veil: &Arc<Veil>) -> Result<Order, String> {
    let mut argv = vec![resolve(&process.command, veil).await?];
    for argument in &process.args {
        argv.push(resolve(argument, veil).await?);
    }
    let mut env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| is_passed_on(key) && !process.env.contains_key(key))
        .collect();
    for (key, value) in &process.env {
        if key.is_empty() || key.contains(['=', '\0']) {
            return Err(format!("`{}` can't be the name of a variable", key.escape_debug()));
        }
        env.push((key.clone(), resolve(value, veil).await?));
    }
    let has_nul = argv.iter().chain(env.iter().map(|(_, value)| value)).any(|text| text.contains('\0'));
    if has_nul {
        return Err("an argument or variable contains a NUL character".into());
    }
    Ok(Order { argv, env, cwd: process.cwd.clone(), pace })
}

fn is_passed_on(key: &str) -> bool {
    PASSED_ON.iter().any(|name| match name.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == *name,
    })
}

/// Replaces the references in a value, and hides what they stand for from
/// everybody who reads. An error names the reference and never a value.
pub(crate) async fn resolve(text: &str, veil: &Arc<Veil>) -> Result<String, String> {
    let template = Template::parse(text).map_err(|error| error.to_string())?;
    if !template.has_references() {
        return template.resolve(&|_| Err(String::new())).map_err(|error| error.to_string());
    }
    // Files are read off the runtime; there are seldom more than one.
    let veil = Arc::clone(veil);
    let look_up = move |reference: &Reference| {
        let value = look_up(reference)?;
        match reference {
            // What every server is given anyway is no secret.
            Reference::Env(name) if is_passed_on(name) => {}
            Reference::Env(name) => veil.learn(&format!("env:{name}"), &value),
            Reference::File(path) => veil.learn(&format!("file:{}", path.display()), &value),
        }
        Ok(value)
    };
    tokio::task::spawn_blocking(move || template.resolve(&look_up).map_err(|error| error.to_string()))
        .await
        .map_err(|error| error.to_string())?
}

fn look_up(reference: &Reference) -> Result<String, String> {
    match reference {
        Reference::Env(name) => {
            std::env::var(name).map_err(|_| "it is not set in Ostler's environment".into())
        }
        Reference::File(path) => read(&expand(path)).map_err(|error| error.to_string()),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
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

/// Config files have their paths made absolute; specs made in code may not.
fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}
