//! Remedies: advice to a person about the cause of a failure. Causes become advice only here, so that every
//! command, the daemon and MCP clients give the same. Advice to MCP clients holds no word chosen by a server,
//! because models read it. Advice to operators includes names of variables.

use std::path::Path;

use crate::catalog::nearest;
use crate::config::{ResolveError, TemplateReference};
use crate::fault::{CertificateFault, ConnectFault, ExecFault, Exit, FaultKind, PermanentCause};
use crate::shell::quote;
use crate::stderr_cause::KnownCause;
use crate::supervisor::{FailureHint, ServerFailure};

/// Longest name of a variable that an operator sees: real ones are shorter, and sentences are longer.
const MAX_NAME_LEN: usize = 40;

/// Reader of a remedy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RemedyAudience {
    /// The person who runs Ostler, on the command line.
    Operator,
    /// An MCP client, and therefore its model.
    Client,
}

/// Returns the advice to the operator about a failure of a server. `None` if its output has to be read first,
/// or if only time helps.
pub fn for_operator(server: &str, failure: &ServerFailure) -> Option<String> {
    for_audience(RemedyAudience::Operator, server, failure)
}

/// Returns the same advice to MCP clients, without any word that the server chose.
pub fn for_clients(server: &str, failure: &ServerFailure) -> Option<String> {
    for_audience(RemedyAudience::Client, server, failure)
}

fn for_audience(reader: RemedyAudience, server: &str, failure: &ServerFailure) -> Option<String> {
    // A hint from the place of the failure is closer to its cause than any form of output.
    let known = match failure.hint.as_deref() {
        Some(FailureHint::Text(text)) => Some(text.clone()),
        Some(FailureHint::Withheld(names)) if reader == RemedyAudience::Operator => {
            for_withheld_variables(names)
        }
        Some(FailureHint::Withheld(_)) | None => None,
    };
    if known.is_some() {
        return known;
    }
    match &failure.kind {
        FaultKind::Permanent(cause) => Some(for_permanent_cause(server, cause)),
        FaultKind::Start(_) => {
            Some("see whether the machine has memory and processes left (`ulimit -u`)".into())
        }
        FaultKind::StartTimeout(_) => Some(for_start_timeout(reader, server, failure)),
        FaultKind::Handshake(_)
        | FaultKind::Exited(_)
        | FaultKind::EndedAtProbe(_)
        | FaultKind::Closed
        | FaultKind::Write(_) => for_early_end(reader, server, failure),
        FaultKind::Connect(unreached) => Some(for_connect_fault(server, &unreached.why)),
        FaultKind::Status { code: 500.., .. } => {
            Some("the fault is at the server: see its log, or try again later".into())
        }
        FaultKind::Status { .. } => Some(format!("correct `url` and `headers` of `{server}`")),
        FaultKind::NeedsAuth { code, .. } => Some(for_auth_refusal(server, *code)),
        FaultKind::Transfer(_) => Some("see whether a proxy or VPN cuts connections to it".into()),
        FaultKind::Hung(_) => Some("it stopped answering: see what it wrote to stderr".into()),
        FaultKind::Malformed(_)
        | FaultKind::ContentType(_)
        | FaultKind::Oversize(_)
        | FaultKind::TimedOut(_)
        | FaultKind::Retired
        | FaultKind::StaleSession
        | FaultKind::Congested
        | FaultKind::RetryAfter { .. }
        | FaultKind::Unreachable(_)
        | FaultKind::Denied(_) => None,
    }
}

/// Returns the advice about a failure in a daemon that an MCP client has started: the daemon has that
/// client's environment and outlives it.
pub fn for_operator_of_daemon(server: &str, failure: &ServerFailure, pid: u32) -> Option<String> {
    if let FaultKind::Permanent(cause) = &failure.kind
        && let PermanentCause::Unresolved(ResolveError { reference: TemplateReference::Env(name), .. }) =
            &**cause
    {
        return Some(format!(
            "the daemon (pid {pid}) does not have it: set it (`export {name}=…`), end the daemon with `ostler down`, then \
             run this again; or put it in the `env` of the client's entry"
        ));
    }
    for_operator(server, failure)
}

/// Returns whether the remedy needs another environment of Ostler, which a reload of the server does not
/// provide.
pub fn needs_ostler_restart(failure: &ServerFailure) -> bool {
    let FaultKind::Permanent(cause) = &failure.kind else { return false };
    matches!(
        &**cause,
        PermanentCause::Unresolved(ResolveError { reference: TemplateReference::Env(_), .. })
            | PermanentCause::Certificate(CertificateFault::UnknownIssuer | CertificateFault::Other(_))
    )
}

/// Returns the change that removes a permanent cause.
pub fn for_permanent_cause(server: &str, cause: &PermanentCause) -> String {
    match cause {
        PermanentCause::ProgramMissing { program, path } => {
            for_missing_program(server, program, path.is_some())
        }
        PermanentCause::NotExecutable { program, why } => for_exec_fault(program, *why),
        PermanentCause::Unresolved(error) => for_unresolved_reference(error),
        PermanentCause::NoFolder(folder) => {
            format!("create it with `mkdir -p {}`, or correct `cwd` of `{server}`", quote(folder))
        }
        PermanentCause::Config(_) => format!("correct it in the config of `{server}`"),
        PermanentCause::Loop => format!("take `{server}` out of one of the two configs"),
        PermanentCause::Usage(_) => {
            format!("correct `args` of `{server}`: some are missing or wrong, and the usage text says which")
        }
        PermanentCause::ServesHttp(port) => for_http_server(server, *port),
        PermanentCause::Certificate(fault) => for_certificate(server, fault),
        PermanentCause::NoTls => {
            format!("begin `url` of `{server}` with http://, or use the port that speaks TLS")
        }
        PermanentCause::NoEndpoint { code: 404 | 405 | 410, .. } => format!(
            "correct the path of `url` of `{server}`: most servers answer at /mcp, older ones at /sse"
        ),
        PermanentCause::NoEndpoint { code: 300..400, .. } => {
            format!("write the address that it leads to as `url` of `{server}`")
        }
        PermanentCause::NoEndpoint { .. } => format!("correct `url` and `headers` of `{server}`"),
        PermanentCause::ContentType(kind) if kind.starts_with("text/html") => format!(
            "that is a web page for people: write the address of its MCP endpoint as `url` of `{server}`, often the same \
             host with /mcp"
        ),
        PermanentCause::ContentType(_) | PermanentCause::NotMcp(_) => {
            format!(
                "write the address of its MCP endpoint as `url` of `{server}`, often the same host with /mcp"
            )
        }
    }
}

/// Programs that run MCP servers, and the packages that install them.
const RUNTIMES: [(&str, &str); 21] = [
    ("node", "Node.js (https://nodejs.org)"),
    ("npx", "Node.js, which brings `npx` (https://nodejs.org)"),
    ("npm", "Node.js, which brings `npm` (https://nodejs.org)"),
    ("pnpm", "pnpm (https://pnpm.io)"),
    ("yarn", "Yarn (https://yarnpkg.com)"),
    ("uv", "uv (https://docs.astral.sh/uv)"),
    ("uvx", "uv, which brings `uvx` (https://docs.astral.sh/uv)"),
    ("python", "Python (https://www.python.org), or write `python3` as `command` if you have that"),
    ("python3", "Python (https://www.python.org)"),
    ("pipx", "pipx (https://pipx.pypa.io)"),
    ("poetry", "Poetry (https://python-poetry.org)"),
    ("docker", "Docker (https://docs.docker.com/get-docker)"),
    ("podman", "Podman (https://podman.io)"),
    ("bun", "Bun (https://bun.sh)"),
    ("bunx", "Bun, which brings `bunx` (https://bun.sh)"),
    ("deno", "Deno (https://deno.com)"),
    ("dotnet", ".NET (https://dotnet.microsoft.com)"),
    ("dnx", ".NET 10, which brings `dnx` (https://dotnet.microsoft.com)"),
    ("java", "Java (https://adoptium.net)"),
    ("go", "Go (https://go.dev)"),
    ("ruby", "Ruby (https://www.ruby-lang.org)"),
];

fn for_missing_program(server: &str, program: &str, is_searched: bool) -> String {
    if !is_searched {
        return format!("correct `command` of `{server}`; a relative path begins at the config's folder");
    }
    let runtime = RUNTIMES.iter().find(|(name, _)| *name == program);
    if let Some((_, package)) = runtime {
        return format!(
            "install {package}; if you have it, write its whole path (`which {program}`) as `command`"
        );
    }
    match nearest(program, RUNTIMES.iter().map(|(name, _)| *name)) {
        Some(near) => format!("did you mean `{near}`? correct `command` of `{server}`"),
        None => format!("install `{program}`, or write its whole path as `command` of `{server}`"),
    }
}

/// Returns the program that runs a script of this name.
fn interpreter(program: &str) -> Option<&'static str> {
    match Path::new(program).extension()?.to_str()? {
        "py" => Some("python3"),
        "js" | "mjs" | "cjs" => Some("node"),
        "sh" => Some("sh"),
        "rb" => Some("ruby"),
        _ => None,
    }
}

fn for_exec_fault(program: &str, why: ExecFault) -> String {
    let by_interpreter = |name: &str| format!("command = \"{name}\", args = [\"{program}\"]");
    match (why, interpreter(program)) {
        (ExecFault::Permission, None) => format!("make it executable: `chmod +x {}`", quote(program)),
        (ExecFault::Permission, Some(name)) => {
            format!("run it by its interpreter: {}; or `chmod +x {}`", by_interpreter(name), quote(program))
        }
        (ExecFault::NotAFile, _) => "name the program itself in `command`".into(),
        (ExecFault::NoInterpreter | ExecFault::Format, Some(name)) => {
            format!("run it by its interpreter: {}", by_interpreter(name))
        }
        (ExecFault::NoInterpreter, None) => {
            "correct its first line (`#!…`), or install what that names".into()
        }
        (ExecFault::Format, None) => {
            "a script needs a first line such as `#!/bin/sh`; a program must be built for this machine".into()
        }
    }
}

fn for_unresolved_reference(error: &ResolveError) -> String {
    match &error.reference {
        TemplateReference::Workspace => {
            "start the client in its project's directory, or name one with `workspace` in the config".into()
        }
        TemplateReference::Env(name) => format!(
            "set it (`export {name}=…`) and start Ostler again, or write `${{env:{name}:-default}}` or `${{file:PATH}}` in the \
             config"
        ),
        TemplateReference::File(_) => {
            "write that file, readable for you alone (`chmod 600`), or correct the path".into()
        }
    }
}

fn for_certificate(server: &str, fault: &CertificateFault) -> String {
    match fault {
        CertificateFault::UnknownIssuer | CertificateFault::Other(_) => {
            "if you trust it, name the file of its CA (`export SSL_CERT_FILE=/path/to/ca.pem`) and start Ostler again".into()
        }
        CertificateFault::Expired => {
            "its operator has to renew it; see also whether the clock of this machine is right".into()
        }
        CertificateFault::WrongHost => format!("write the host name that it is for in `url` of `{server}`"),
    }
}

fn for_connect_fault(server: &str, why: &ConnectFault) -> String {
    match why {
        ConnectFault::UnknownHost => {
            format!("correct the host in `url` of `{server}`; a name of a private network needs its VPN")
        }
        ConnectFault::Refused => format!("start that server, or correct the port in `url` of `{server}`"),
        ConnectFault::NoResponse | ConnectFault::Other(_) => {
            format!(
                "see whether that host is up and reached from here (VPN, proxy), or correct `url` of `{server}`"
            )
        }
    }
}

fn for_auth_refusal(server: &str, code: u16) -> String {
    let header = format!("headers = {{ Authorization = \"Bearer ${{file:~/.secrets/{server}}}\" }}");
    match code {
        403 => format!("its credentials may not use it; give `{server}` others: {header}"),
        _ => format!("give `{server}` valid credentials in the config: {header}"),
    }
}

/// Returns the advice about a start that timed out.
fn for_start_timeout(reader: RemedyAudience, server: &str, failure: &ServerFailure) -> String {
    match known_cause(failure) {
        Some(KnownCause::ServesHttp) => for_known_cause(reader, server, &KnownCause::ServesHttp),
        _ => format!(
            "run its command in a terminal to see what it waits for; if it is only slow, raise `start_timeout` of `{server}`"
        ),
    }
}

/// Returns the advice about a server that ended, or spoke another protocol than MCP. `None` if its output has
/// to be read.
fn for_early_end(reader: RemedyAudience, server: &str, failure: &ServerFailure) -> Option<String> {
    match (known_cause(failure), failure.exit) {
        (Some(cause), _) => Some(for_known_cause(reader, server, &cause)),
        (None, Some(Exit::Code(0))) => Some(format!(
            "is it an MCP server on stdio? some want an argument for that, such as `stdio`, in `args` of `{server}`"
        )),
        (None, Some(Exit::Signal(9))) => {
            Some("something killed it: see whether the machine ran out of memory".into())
        }
        (None, _) => None,
    }
}

fn known_cause(failure: &ServerFailure) -> Option<KnownCause> {
    failure.cause.as_deref().and_then(KnownCause::parse)
}

/// Returns the advice about a program that listens for HTTP instead of using stdio, at a port that may be
/// known.
pub fn for_http_server(server: &str, port: Option<u16>) -> String {
    let port = port.map_or_else(|| "PORT".into(), |port| port.to_string());
    format!(
        "it seems to be an HTTP server: run it yourself and write url = \"http://127.0.0.1:{port}/mcp\" in place of \
         `command` of `{server}`, or drop the argument that makes it one (such as `streamableHttp`, `sse` or `--http`)"
    )
}

/// Names variables that are set here and were not passed, never their values.
fn for_withheld_variables(names: &[String]) -> Option<String> {
    let names: Vec<&String> = names.iter().filter(|name| is_plausible_name(name)).collect();
    let list =
        |quote: char| names.iter().map(|name| format!("{quote}{name}{quote}")).collect::<Vec<_>>().join(", ");
    let verb = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty()).then(|| {
        format!(
            "{} {verb} set here and not passed to the server; add env_pass = [{}] to it if it needs that",
            list('`'),
            list('"')
        )
    })
}

/// Returns whether the name of a variable that a server chose may be shown to the operator.
fn is_plausible_name(name: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= MAX_NAME_LEN && name.bytes().all(is_of_names)
}

fn for_known_cause(reader: RemedyAudience, server: &str, cause: &KnownCause) -> String {
    match cause {
        KnownCause::NoPackage => {
            format!("correct the name and version of the package in `args` of `{server}`")
        }
        KnownCause::NoProgram => {
            "name the program of the package too: `npx -p PACKAGE PROGRAM`, `uvx --from PACKAGE PROGRAM`"
                .into()
        }
        KnownCause::NoRegistry => {
            "see whether this machine reaches the package registry: network, VPN, `HTTPS_PROXY`".into()
        }
        KnownCause::UntrustedCertificate => {
            "if you trust it, such as a proxy of your company, name the file of its CA (`export SSL_CERT_FILE=/path/to/ca.pem`) and \
             start Ostler again: its servers get that variable"
                .into()
        }
        KnownCause::NoModule => format!(
            "install that module for the interpreter that `command` of `{server}` runs, or write the whole path of another"
        ),
        KnownCause::NoScript => format!(
            "correct the path in `args` of `{server}`; a relative one begins at its `cwd`, which is the config's folder"
        ),
        KnownCause::NoCommand(command) => {
            let package = RUNTIMES.iter().find(|(name, _)| name == command);
            let package = package.map_or("that program", |(_, package)| package);
            format!(
                "install {package}, or add its folder to PATH: env = {{ PATH = \"/FOLDER:${{env:PATH}}\" }}"
            )
        }
        // No complete `${env:…}`: the server may ask for a secret that is not its own.
        KnownCause::NoVariable(name) if reader == RemedyAudience::Operator && is_plausible_name(name) => format!(
            "if it should have `{name}`, set that in `env` of `{server}`: env = {{ {name} = \"…\" }}, or \"${{file:PATH}}\""
        ),
        KnownCause::NoVariable(_) => {
            format!("set the variable that it names in `env` of `{server}` in the config")
        }
        KnownCause::NoDocker => "start Docker, and see that you may use it (`docker ps`)".into(),
        KnownCause::ServesHttp => for_http_server(server, None),
    }
}

#[cfg(test)]
mod tests;
