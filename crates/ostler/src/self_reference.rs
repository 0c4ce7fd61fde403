//! Detection of servers of a config that are Ostler itself, by what they run or contact, never by their names.
//!
//! A client's file that Ostler reads holds the entry by which the client starts Ostler. Hosting it would make the
//! daemon attach to itself, or start one daemon after the other. An `ostler stdio` for another config is a chain of two
//! daemons and stays; [`ostler_host::LoopDetector`] finds the chains that come back.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::http::Uri;
use ostler_core::config::{Config, Problem};
use ostler_core::loopback::{is_loopback, is_loopback_host};
use ostler_core::spec::{ProcessSpec, ServerSpec, ServerTransport};

use crate::{config_file, environment, instance};

/// Programs that run another one, which their first plain argument names.
const WRAPPERS: [&str; 8] = ["env", "npx", "bunx", "uvx", "pipx", "exec", "nohup", "nice"];
/// Subcommands of wrappers that come before the program.
const WRAPPER_WORDS: [&str; 2] = ["run", "exec"];
/// Programs that read a command line behind `-c`.
const SHELLS: [&str; 5] = ["sh", "bash", "zsh", "dash", "fish"];
/// Limit of nested wrappers that are resolved.
const MAX_DEPTH: usize = 4;

/// Disables servers that are Ostler itself; returns a warning for each. `listens` is the address of this config's
/// daemon, if it differs from the config.
pub(crate) fn disable_own_servers(
    config: &mut Config,
    file: &Path,
    listens: Option<SocketAddr>,
) -> Vec<Problem> {
    let files = files_of(config, file);
    let own = OwnConfig { files: &files, config, listens };
    let found: Vec<_> = config
        .servers
        .iter()
        .filter_map(|spec| own.own_server_reason(spec).map(|why| (spec.name.clone(), why)))
        .collect();
    let mut problems = Vec::new();
    for (name, why) in found {
        let message = format!("`servers.{name}` {why}, which would be Ostler in itself; it is left out");
        let hint = "the entry is for your MCP client; take it out here, or name another config in it";
        problems.push(Problem::warning(
            config.origin(name.as_str()),
            format!("servers.{name}"),
            message,
            hint,
        ));
        let place = config.origin(name.as_str()).map(|(file, line)| format!("{}:{line}: ", file.display()));
        let cause = format!("{}it {why}, which would be Ostler in itself", place.unwrap_or_default());
        config.disable(&name, cause, hint);
    }
    problems
}

/// Returns whether a client's file names Ostler and nothing else, so that it has no servers for Ostler to run.
pub(crate) fn has_only_own_servers(config: &Config, problems: &[Problem]) -> bool {
    config.servers.is_empty() && !problems.is_empty() && config.disabled.len() == problems.len()
}

/// Returns the main file and those that name servers of it.
fn files_of(config: &Config, main: &Path) -> BTreeSet<PathBuf> {
    let origins = config.servers.iter().filter_map(|spec| config.origin(spec.name.as_str()));
    let files = origins.map(|(file, _)| file).chain([main]);
    files.map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned())).collect()
}

/// Config and address that servers are compared with.
struct OwnConfig<'a> {
    files: &'a BTreeSet<PathBuf>,
    config: &'a Config,
    listens: Option<SocketAddr>,
}

impl OwnConfig<'_> {
    /// Returns the reason why a server is Ostler itself, as the end of a sentence about it.
    fn own_server_reason(&self, spec: &ServerSpec) -> Option<String> {
        match &spec.transport {
            ServerTransport::Http(endpoint) => {
                let url = environment::resolve(&endpoint.url).ok()?;
                self.is_own_address(&url).then(|| "is the address of this daemon".into())
            }
            ServerTransport::Stdio(process) => {
                let words = resolve_command_line(process)?;
                let args = arguments_of_ostler(&words, process, MAX_DEPTH)?;
                self.serves_this_config(&args, process).then(|| match args.first() {
                    Some(command) => format!("runs `ostler {command}` for this config"),
                    None => "runs `ostler`".into(),
                })
            }
        }
    }

    /// Returns whether `ostler` with these arguments serves this config.
    fn serves_this_config(&self, args: &[String], process: &ProcessSpec) -> bool {
        let plain = positional_args(args);
        let Some(command) = plain.first() else { return false };
        let url = option(args, "--url").or_else(|| option(args, "--daemon"));
        match command.as_str() {
            "stdio" | "serve" => match url {
                Some(url) => self.is_own_address(&url),
                None => self.is_own_config(option(args, "--config"), process),
            },
            "worker" => match (url, option(args, "--nats")) {
                (Some(url), _) => self.is_own_address(&url),
                (None, Some(nats)) => {
                    let relay = self.config.relay.as_ref();
                    relay.is_some_and(|relay| {
                        nats.split(',').any(|url| relay.nats.iter().any(|own| own == url))
                    })
                }
                (None, None) => false,
            },
            _ => false,
        }
    }

    /// Returns whether the named config, or the one found from the server's directory, is this one.
    fn is_own_config(&self, named: Option<String>, process: &ProcessSpec) -> bool {
        let folder = process.cwd.as_deref().unwrap_or(Path::new("."));
        let target = match named {
            Some(named) => Some(folder.join(named)),
            None => config_file::first_candidate(folder),
        };
        // Without any config it would serve `demo`, for which this config is no reason.
        target.is_some_and(|file| self.files.contains(&file.canonicalize().unwrap_or(file)))
    }

    /// Returns whether this daemon listens at an address, or would.
    fn is_own_address(&self, url: &str) -> bool {
        let Ok(uri) = url.parse::<Uri>() else { return false };
        let Some(host) = uri.host() else { return false };
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let listens = self.listens.unwrap_or(self.config.listen);
        if port != listens.port() || !self.is_own_host(host, listens) {
            return false;
        }
        // A daemon of another config at the address is another server.
        let holder = instance::daemon_at(listens).and_then(|note| note.config);
        holder.is_none_or(|file| self.files.contains(&file.canonicalize().unwrap_or(file)))
    }

    fn is_own_host(&self, host: &str, listens: SocketAddr) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let is_near = is_loopback(listens.ip()) || listens.ip().is_unspecified();
        match host.parse::<std::net::IpAddr>() {
            Ok(ip) if ip.to_canonical() == listens.ip().to_canonical() => true,
            Ok(ip) => is_near && (is_loopback(ip) || ip.is_unspecified()),
            Err(_) if is_loopback_host(host) => is_near,
            Err(_) => {
                let names =
                    |own: &String| own.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(host));
                self.config.gateway.allowed_hosts.iter().any(names)
            }
        }
    }
}

/// Returns command and arguments with their references resolved.
fn resolve_command_line(process: &ProcessSpec) -> Option<Vec<String>> {
    std::iter::once(&process.command)
        .chain(&process.args)
        .map(|word| environment::resolve(word).ok())
        .collect()
}

/// Returns the arguments of `ostler` in a command line; `None` if it runs something else.
fn arguments_of_ostler(words: &[String], process: &ProcessSpec, depth: usize) -> Option<Vec<String>> {
    let (program, args) = words.split_first()?;
    if is_ostler(program, process) {
        return Some(args.to_vec());
    }
    let depth = depth.checked_sub(1)?;
    let name = Path::new(program).file_name().and_then(OsStr::to_str)?;
    if SHELLS.contains(&name) {
        let script = args.iter().skip_while(|arg| !is_script_flag(arg)).nth(1)?;
        // Shell syntax is not interpreted.
        let is_plain = !script.contains(['|', '&', ';', '<', '>', '(', '`', '$', '\\', '\n']);
        let line: Vec<String> =
            script.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned()).collect();
        return is_plain.then(|| arguments_of_ostler(&line, process, depth)).flatten();
    }
    if !WRAPPERS.contains(&name) {
        return None;
    }
    let is_before = |word: &&String| {
        word.starts_with('-')
            || (name == "env" && word.contains('='))
            || WRAPPER_WORDS.contains(&word.as_str())
    };
    let rest: Vec<String> = args.iter().skip_while(is_before).cloned().collect();
    let named = rest.first()?.split('@').next()?;
    match name != "env" && named == "ostler" {
        true => Some(rest[1..].to_vec()),
        false => arguments_of_ostler(&rest, process, depth),
    }
}

fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

/// Returns whether a program is this one, or has its name.
fn is_ostler(program: &str, process: &ProcessSpec) -> bool {
    let Some(file) = environment::find_program(program, process) else {
        return Path::new(program).file_name() == Some(OsStr::new("ostler"));
    };
    let end = file.canonicalize().unwrap_or(file);
    let identity = |file: &Path| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let is_this =
        std::env::current_exe().is_ok_and(|own| identity(&own).is_some() && identity(&own) == identity(&end));
    is_this || end.file_name() == Some(OsStr::new("ostler"))
}

/// Returns arguments that are no options. Only options that all commands share may have their values as arguments of
/// their own.
fn positional_args(args: &[String]) -> Vec<String> {
    let mut plain = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--config" | "--daemon" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => plain.push(word.clone()),
        }
    }
    plain
}

/// Returns the value of an option, written in either way.
fn option(args: &[String], name: &str) -> Option<String> {
    args.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(name)? {
        "" => args.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use ostler_core::config::{ConfigFormat, NoSource};

    use super::*;

    fn left_out(folder: &Path, text: &str) -> Vec<String> {
        let file = folder.join("ostler.toml");
        std::fs::write(&file, text).unwrap();
        let mut config = Config::parse(&file, text, ConfigFormat::Toml, &NoSource).unwrap();
        disable_own_servers(&mut config, &file, None);
        config.disabled.iter().map(|server| server.spec.name.to_string()).collect()
    }

    #[test]
    fn ostler_is_known_behind_wrappers_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(&own, folder.path().join("other-name")).unwrap();
        let loops = [
            r#"command = "ostler"
               args = ["stdio"]"#,
            r#"command = "./other-name"
               args = ["stdio"]"#,
            r#"command = "ostler"
               args = ["--config", "ostler.toml", "stdio"]"#,
            r#"command = "ostler"
               args = ["stdio", "--config=./ostler.toml"]"#,
            r#"command = "env"
               args = ["A=1", "ostler", "serve"]"#,
            r#"command = "npx"
               args = ["-y", "ostler@latest", "stdio"]"#,
            r#"command = "sh"
               args = ["-c", "exec ostler stdio"]"#,
            r#"command = "/bin/bash"
               args = ["-lc", "ostler stdio"]"#,
            r#"command = "ostler"
               args = ["worker", "--url", "http://localhost:7777/mcp"]"#,
            r#"url = "http://localhost:7777/mcp""#,
            r#"url = "http://[::1]:7777/servers/a/mcp""#,
            r#"url = "http://0.0.0.0:7777/mcp""#,
        ];
        for server in loops {
            let text = format!("[servers.x]\n{server}\n[servers.y]\ncommand = \"true\"\n");
            assert_eq!(left_out(folder.path(), &text), ["x"], "{server}");
        }
    }

    #[test]
    fn other_servers_of_ostler_stay() {
        let folder = tempfile::tempdir().unwrap();
        let others = [
            r#"command = "ostler"
               args = ["demo"]"#,
            r#"command = "ostler"
               args = ["stdio", "--config", "other.toml"]"#,
            r#"command = "ostler"
               args = ["stdio", "--daemon", "http://127.0.0.1:7999"]"#,
            r#"command = "ostler"
               args = ["worker", "--url", "https://tools.example/mcp"]"#,
            r#"command = "echo"
               args = ["ostler", "stdio"]"#,
            r#"command = "sh"
               args = ["-c", "echo ostler stdio"]"#,
            r#"url = "http://127.0.0.1:7778/mcp""#,
            r#"url = "https://ostler.example:7777/mcp""#,
        ];
        for server in others {
            let text = format!("[servers.ostler]\n{server}\n");
            assert!(left_out(folder.path(), &text).is_empty(), "{server}");
        }
    }

    #[test]
    fn a_config_of_ostler_alone_is_told_from_one_with_something_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".mcp.json");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let mut config = Config::parse(&file, text, ConfigFormat::Json, &NoSource).unwrap();
            let problems = disable_own_servers(&mut config, &file, None);
            has_only_own_servers(&config, &problems)
        };
        assert!(read(r#"{"mcpServers": {"x": {"command": "ostler", "args": ["stdio"]}}}"#));
        assert!(!read(
            r#"{"mcpServers": {"x": {"command": "ostler", "args": ["stdio"]}, "y": {"command": "z"}}}"#
        ));
        assert!(!read(r#"{"mcpServers": {}}"#));
    }
}
