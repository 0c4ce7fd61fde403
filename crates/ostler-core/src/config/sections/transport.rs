//! `command` or `url`: the transport of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::keys::section::rows;
use crate::config::read::{ConfigNode, Dialect, SectionReader, TableEntry};
use crate::config::values::reference::TemplateReference;
use crate::config::values::secret_literals::{self, quote};
use crate::inherited_env;
use crate::spec::{EndpointSpec, ProcessSpec, ServerTransport};

rows! {
    /// The keys of both transports.
    pub(crate) const TRANSPORT_KEYS {
        /// The program: a name looked up in PATH, or a path.
        command = text;
        /// The program's arguments, one text each.
        args = texts([]);
        /// Variables added to the program's cleared environment.
        env = text_map;
        /// Variables of Ostler's environment that the program receives too: names, or prefixes such as AWS_*.
        env_pass = texts([]);
        /// The program's working directory, relative to this file.
        cwd = text;
        /// The endpoint of a remote server, instead of a command.
        url = text;
        /// Headers sent to a remote server.
        headers = text_map;
        /// True if the server is listed but never run; its tools are not exposed.
        disabled = flag(false);
    }
}

/// Reads the keys of both transports, so that all problems are reported at once.
pub(crate) fn read(reader: &SectionReader<'_>) -> Option<ServerTransport> {
    let args = read_args(reader);
    let command = match reader.texts_in_place_of("command") {
        Some((words, node)) => refuse_list(reader, (&words, &args), node),
        None => reader.text("command").and_then(|(text, node)| read_command(reader, text, node)),
    };
    let env = read_map(reader, "env", check_variable);
    let env_pass = env_pass(reader, "env_pass").unwrap_or_default();
    let cwd = reader.text("cwd").and_then(|(text, node)| read_cwd(reader, text, node));
    let url = reader.text("url").and_then(|(text, node)| read_url(reader, text, node));
    let headers = read_map(reader, "headers", check_header);
    let (strangers, kind): (&[&'static str], _) = match (reader.has("command"), reader.has("url")) {
        (true, true) => {
            let message = format!("{} has both `command` and `url`", reader.path);
            reader.context.error(
                reader.key_span("url"),
                &reader.key_path("url"),
                message,
                "keep one of them",
            );
            return None;
        }
        (false, false) => {
            // One mistake is reported once: the unknown key has been reported already.
            let is_reported = reader.context.dialect == Dialect::Own
                && ["command", "url"].iter().any(|key| reader.has_misspelled(key));
            if is_reported {
                return None;
            }
            let message = format!("{} has neither `command` nor `url`", reader.path);
            let hint = "`command` names the program to run, `url` a remote endpoint";
            reader.context.error(reader.span, &reader.path, message, hint);
            return None;
        }
        (true, false) => (&["headers"], "a `command`"),
        (false, true) => (&["args", "env", "env_pass", "cwd"], "a `url`"),
    };
    for key in strangers.iter().filter(|key| reader.has(key)) {
        let message = format!("`{key}` has no meaning for a server with {kind}");
        reader.context.error_or_warn(reader.key_span(key), &reader.key_path(key), message, "leave it out");
    }
    match (command, url) {
        (Some(command), _) => Some(ServerTransport::Stdio(ProcessSpec { command, args, env, env_pass, cwd })),
        (_, Some(url)) => Some(ServerTransport::Http(EndpointSpec { url, headers })),
        (None, None) => None,
    }
}

/// Reads a program given by name or by path; a relative path is resolved against the file.
fn read_command(reader: &SectionReader<'_>, text: &str, node: &ConfigNode) -> Option<String> {
    let path = reader.key_path("command");
    if is_shell_line(text) {
        let message = format!("`{path}` is a whole command line, and no shell reads it");
        reader.context.error(node.span, &path, message, split_command_hint(reader.context.dialect, text));
        return None;
    }
    let value = read_value(reader, &path, text, node)?;
    if !text.contains('/') && text != "~" || value.starts_with("${") {
        return Some(value);
    }
    reader.absolute("command", &value, node).map(|path| path.to_string_lossy().into_owned())
}

/// Refuses a command with its arguments in one list; the hint shows the separate keys.
fn refuse_list(
    reader: &SectionReader<'_>,
    (words, args): (&[&str], &[String]),
    node: &ConfigNode,
) -> Option<String> {
    let path = reader.key_path("command");
    let words: Vec<&str> = words.iter().copied().chain(args.iter().map(String::as_str)).collect();
    let message = format!("`{path}` wants a text, found a list");
    reader.context.error(node.span, &path, message, separate_args_hint(reader.context.dialect, &words));
    None
}

/// Returns whether a text has spaces where a program's name has none. A path may have some, so it needs more
/// than a space.
fn is_shell_line(text: &str) -> bool {
    let Some((program, rest)) = text.trim().split_once(char::is_whitespace) else { return false };
    !program.contains('/')
        || rest.split_whitespace().any(|word| word.starts_with(['-', '|', '&', ';', '>', '<']))
}

/// Returns the replacement for a shell line.
fn split_command_hint(dialect: Dialect, line: &str) -> String {
    let needs_shell = line.contains(['|', '&', ';', '<', '>', '(', '`', '"', '\'', '\\', '*']);
    let words = match needs_shell {
        true => vec!["sh", "-c", line.trim()],
        false => line.split_whitespace().collect(),
    };
    separate_args_hint(dialect, &words)
}

/// Returns the hint that shows program and arguments apart.
fn separate_args_hint(dialect: Dialect, words: &[&str]) -> String {
    let words: Vec<String> = words.iter().copied().map(quote).collect();
    let (program, args) = (&words[0], words[1..].join(", "));
    match dialect {
        Dialect::Own => format!("write command = {program} and args = [{args}]"),
        Dialect::Client => format!("write \"command\": {program} and \"args\": [{args}]"),
    }
}

fn read_args(reader: &SectionReader<'_>) -> Vec<String> {
    let path = reader.key_path("args");
    let mut secrets = secret_literals::SecretArgScanner::default();
    let mut args = Vec::new();
    for (text, node) in reader.texts("args").unwrap_or_default() {
        if secrets.find_secret(text).is_some() {
            warn_of_secret(reader, &path, node, "an argument");
        }
        let is_for_shell =
            args.last().is_some_and(|last: &String| last.starts_with('-') && last.ends_with('c'));
        if (text == "~" || text.starts_with("~/")) && !is_for_shell {
            let message =
                format!("{} in `{path}` reaches the program as it is: no shell expands `~`", quote(text));
            let hint = format!("write the whole path, or {}", quote(&format!("${{env:HOME}}{}", &text[1..])));
            reader.context.warn(node.span, &path, message, hint);
        }
        args.extend(read_value(reader, &path, text, node));
    }
    args
}

/// Reads `env_pass`; also that of `[defaults]`.
pub(crate) fn env_pass(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    let path = reader.key_path(key);
    let mut patterns = Vec::new();
    for (text, node) in reader.texts(key)? {
        match inherited_env::check_pattern(text) {
            Ok(()) => patterns.push(text.to_owned()),
            Err(why) => {
                let message = format!("{} in `{path}`: {why}", quote(text));
                reader.context.error(node.span, &path, message, "values stand in `env`");
            }
        }
    }
    Some(patterns)
}

fn read_cwd(reader: &SectionReader<'_>, text: &str, node: &ConfigNode) -> Option<PathBuf> {
    let path = reader.key_path("cwd");
    let template = reader.context.template(node, &path, text)?;
    // The value of a reference is known only when the server starts. A directory identifies the server, so it
    // must be known now.
    let is_by_workspace = text.starts_with("${workspace")
        && template.references().all(|it| *it == TemplateReference::Workspace);
    if is_by_workspace && template.references().count() == 1 {
        return Some(template.to_string().into());
    }
    if template.has_references() {
        let message = format!("`{path}` can't hold `${{env:…}}` or `${{file:…}}`");
        reader.context.error(
            node.span,
            &path,
            message,
            "write the directory itself; `~` and relative paths work",
        );
        return None;
    }
    let text = template.resolve(&|_| Err(String::new())).ok()?;
    reader.absolute("cwd", &text, node)
}

fn read_url(reader: &SectionReader<'_>, text: &str, node: &ConfigNode) -> Option<String> {
    let path = reader.key_path("url");
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']));
    if !(has_host || text.starts_with("${")) || text.contains(char::is_whitespace) {
        let message = format!("`{path}` wants an http:// or https:// address, found {}", quote(text));
        reader.context.error(node.span, &path, message, "write it like \"https://mcp.example.com/mcp\"");
        return None;
    }
    if secret_literals::find_secret_in_url(text).is_some() {
        warn_of_secret(reader, &path, node, "an address");
    }
    read_value(reader, &path, text, node)
}

type NameCheck = fn(&str) -> Result<(), &'static str>;

/// Reads the names and values of `env` or `headers`.
fn read_map(reader: &SectionReader<'_>, key: &'static str, check: NameCheck) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for (entry, text) in reader.text_map(key).unwrap_or_default() {
        let path = format!("{}.{}", reader.key_path(key), entry.key);
        if let Err(why) = check(&entry.key) {
            reader.context.error(
                entry.key_span,
                &path,
                format!("{} in `{}`: {why}", quote(&entry.key), reader.key_path(key)),
                None,
            );
            continue;
        }
        if key == "headers" && text.contains(|c: char| c.is_control() && c != '\t') {
            let message = format!("`{path}` holds a control character, and a header can't");
            reader.context.error(entry.node.span, &path, message, None);
            continue;
        }
        if let Some(value) = read_map_value(reader, &path, entry, text) {
            map.insert(entry.key.clone(), value);
        }
    }
    map
}

fn read_map_value(reader: &SectionReader<'_>, path: &str, entry: &TableEntry, text: &str) -> Option<String> {
    let template = check_template(reader, path, text, &entry.node)?;
    let looks_secret = secret_literals::is_secret_key(&entry.key) || secret_literals::has_token(text);
    if looks_secret && !text.is_empty() && !template.has_references() {
        let hint =
            format!("keep it out of the file: {} = \"${{env:NAME}}\" or \"${{file:path}}\"", entry.key);
        reader.context.warn(
            entry.node.span,
            path,
            format!("`{path}` is a secret written into the file"),
            hint,
        );
    }
    Some(template.to_string())
}

/// Reads a text that may hold references, in the spelling that is resolved later.
fn read_value(reader: &SectionReader<'_>, path: &str, text: &str, node: &ConfigNode) -> Option<String> {
    check_template(reader, path, text, node).map(|template| template.to_string())
}

fn check_template(
    reader: &SectionReader<'_>,
    path: &str,
    text: &str,
    node: &ConfigNode,
) -> Option<crate::config::values::reference::Template> {
    if text.contains('\0') {
        reader.context.error(node.span, path, format!("`{path}` holds a zero byte"), None);
        return None;
    }
    reader.context.template(node, path, text)
}

fn warn_of_secret(reader: &SectionReader<'_>, path: &str, node: &ConfigNode, what: &str) {
    let hint = match reader.context.dialect {
        Dialect::Client => "keep it out of the file: write `${NAME}` and set the variable",
        Dialect::Own => "keep it out of the file: write `${env:NAME}` or `${file:path}`",
    };
    reader.context.warn(node.span, path, format!("{what} in `{path}` looks like a secret"), hint);
}

fn check_variable(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("a variable's name can't be empty or contain `=`");
    }
    Ok(())
}

fn check_header(name: &str) -> Result<(), &'static str> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err("a header's name is made of letters, digits and `-`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_lines_are_told_from_paths_with_spaces() {
        for line in ["npx -y server", "python server.py", "/usr/bin/env -S x", "./run && ./stop"] {
            assert!(is_shell_line(line), "{line}");
        }
        for program in ["npx", "/Applications/My App/server", " npx ", "./my server"] {
            assert!(!is_shell_line(program), "{program}");
        }
    }
}
