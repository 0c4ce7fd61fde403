//! Transport fingerprint: identifies how a server is reached. Another command under an old name is another
//! server.

use std::path::Path;

use serde_json::{Value, json};

use super::hash::PinHash;
use crate::spec::{ServerSpec, ServerTransport};

/// Returns the fingerprint of a server's transport: of its command, arguments and directory, or of its
/// address, as they are written. References stay unresolved, and of variables and headers only the names
/// count, so no secret affects it.
pub fn transport_fingerprint(spec: &ServerSpec) -> String {
    portable_transport_fingerprint(spec, &[])
}

/// Returns the fingerprint like [`transport_fingerprint`], with machine-specific directories replaced: each
/// pair is a directory and its replacement, such as the directory of the config and `.`. The first match is
/// used.
pub fn portable_transport_fingerprint(spec: &ServerSpec, folders: &[(&Path, &str)]) -> String {
    let relative = |text: &str| replace_folders(text, folders);
    let parts: Value = match &spec.transport {
        ServerTransport::Stdio(process) => json!({
            "command": relative(&process.command),
            "args": process.args.iter().map(|arg| relative(arg)).collect::<Vec<_>>(),
            "cwd": process.cwd.as_ref().map(|cwd| relative(&cwd.to_string_lossy())),
            "env": process.env.keys().collect::<Vec<_>>(),
        }),
        ServerTransport::Http(endpoint) => json!({
            "url": relative(&endpoint.url),
            "headers": endpoint.headers.keys().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>(),
        }),
    };
    PinHash::digest(parts.to_string().as_bytes()).to_string()
}

/// Replaces a directory at the start of a path: at the start of the text, or after a character that can't be
/// part of a path's name, as in `--root=/folder/x` and `${file:/folder/x}`.
fn replace_folders(text: &str, folders: &[(&Path, &str)]) -> String {
    let mut text = text.to_owned();
    for (folder, sign) in folders {
        let folder = folder.to_string_lossy();
        if folder.len() > 1 {
            text = replace_folder(&text, &folder, sign);
        }
    }
    text
}

fn replace_folder(text: &str, folder: &str, sign: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(folder) {
        let (before, tail) = (&rest[..at], &rest[at + folder.len()..]);
        let begins = before.chars().next_back().is_none_or(|c| matches!(c, '=' | ':' | ',' | ' '));
        let ends = tail.chars().next().is_none_or(|c| matches!(c, '/' | '}' | ',' | ':' | ' '));
        out.push_str(before);
        out.push_str(if begins && ends { sign } else { folder });
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_name::ServerName;
    use crate::spec::{EndpointSpec, ProcessSpec};

    fn server(change: impl FnOnce(&mut ProcessSpec)) -> ServerSpec {
        let mut spec = ServerSpec::stdio(ServerName::new("s").unwrap(), "run").args(["--root", "."]);
        if let ServerTransport::Stdio(process) = &mut spec.transport {
            process.env.insert("TOKEN".into(), "${env:TOKEN}".into());
            change(process);
        }
        spec
    }

    #[test]
    fn what_is_run_counts_and_what_is_secret_does_not() {
        let plain = transport_fingerprint(&server(|_| ()));
        assert!(plain.parse::<PinHash>().is_ok(), "{plain}");
        let changes: [fn(&mut ProcessSpec); 5] = [
            |process| process.command = "walk".into(),
            |process| process.args.push("-v".into()),
            |process| process.args = vec!["--root .".into()],
            |process| process.cwd = Some("/tmp".into()),
            |process| drop(process.env.insert("LD_PRELOAD".into(), "x".into())),
        ];
        for change in changes {
            assert_ne!(transport_fingerprint(&server(change)), plain);
        }
        let other_secret = server(|process| drop(process.env.insert("TOKEN".into(), "hunter2".into())));
        assert_eq!(transport_fingerprint(&other_secret), plain);
    }

    #[test]
    fn an_address_counts_and_header_values_do_not() {
        let remote = |url: &str, value: &str| {
            let headers = [("Authorization".to_owned(), value.to_owned())].into();
            let transport = ServerTransport::Http(EndpointSpec { url: url.into(), headers });
            transport_fingerprint(&ServerSpec::with_transport(ServerName::new("s").unwrap(), transport))
        };
        assert_eq!(remote("https://a.example/mcp", "one"), remote("https://a.example/mcp", "two"));
        assert_ne!(remote("https://a.example/mcp", "one"), remote("https://b.example/mcp", "one"));
    }

    #[test]
    fn two_checkouts_of_one_project_have_one_fingerprint() {
        let seen = |folder: &str| {
            let spec = server(|process| {
                process.command = format!("{folder}/bin/run");
                process.args = vec![format!("--file={folder}/x"), format!("${{file:{folder}/y}}")];
                process.cwd = Some(folder.into());
            });
            portable_transport_fingerprint(&spec, &[(Path::new(folder), ".")])
        };
        assert_eq!(seen("/srv/one"), seen("/srv/two"));
        assert_eq!(
            replace_folders("/srv/one-more/x a/srv/one", &[(Path::new("/srv/one"), ".")]),
            "/srv/one-more/x a/srv/one"
        );
        assert_eq!(replace_folders("/", &[(Path::new("/"), ".")]), "/", "the root is nobody's folder");
    }
}
