//! `[relay]`: the broker through which remote workers reach this host.

use std::fmt;
use std::path::PathBuf;

use crate::config::keys::section::{rows, section, words};
use crate::config::read::SectionReader;
use crate::config::values::secret_literals::{quote, redact_url};

section! {
    /// The NATS broker through which remote workers reach this host.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RelayConfig("relay", optional) {
        /// The address of the NATS server, such as nats://127.0.0.1:4222, or a list of several of one
        /// cluster.
        nats: Vec<String> = text_or_texts(required "write nats = \"nats://127.0.0.1:4222\"") => addresses;
        /// Separates hosts that share a broker; part of every subject.
        tenant: String = text("default") => read_subject_token;
        /// The name of this host in its tenant; by default the machine's.
        host: Option<String> = text => read_optional_subject_token;
        /// Credentials for the broker.
        credentials: RelayCredentials = several(CREDENTIALS) => credentials;
        /// TLS settings of the connection.
        tls: RelayTls = several(TLS) => tls;
        /// Calls of workers in flight at once; more are refused before they are sent.
        max_in_flight: usize = count(1..=65_536, 1_024);
        /// Store of the calls that were begun: local, in the state directory; shared, in the broker's key-value
        /// store, for several hosts.
        journal: RelayJournal = choice;
        /// True if a broker on another machine that accepts anonymous clients is used all the same.
        allow_open_broker: bool = flag(false);
    }
}

rows! {
    const CREDENTIALS {
        /// A NATS credentials file, relative to the config file.
        creds = text;
        /// A file with the seed of an nkey, relative to the config file.
        nkey = text;
        /// The user to be at the broker; goes with password.
        user = text;
        /// Its password, by reference: ${env:NAME} or ${file:path}.
        password = text;
    }
}

rows! {
    const TLS {
        /// A PEM file with the authorities that may sign the broker's certificate, in place of the machine's;
        /// requires TLS.
        ca = text;
        /// A PEM file with the client certificate for the broker; goes with key, and requires TLS.
        cert = text;
        /// A PEM file with the key of that certificate.
        key = text;
    }
}

/// Credentials for the broker.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum RelayCredentials {
    /// No credentials.
    #[default]
    None,
    /// A credentials file, absolute.
    Creds(PathBuf),
    /// A file with the seed of an nkey, absolute.
    Nkey(PathBuf),
    /// A user, and a password that may hold references.
    Password {
        /// The user.
        user: String,
        /// A [`Template`](crate::config::Template).
        password: String,
    },
}

impl fmt::Debug for RelayCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Creds(file) => f.debug_tuple("Creds").field(file).finish(),
            Self::Nkey(file) => f.debug_tuple("Nkey").field(file).finish(),
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

/// TLS settings of the connection, beside the address's scheme. Every path is absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayTls {
    /// Authorities that may sign the broker's certificate, in place of the machine's.
    pub ca: Option<PathBuf>,
    /// The client certificate for the broker, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

words! {
    /// Store of the calls that were begun.
    pub enum RelayJournal {
        /// In the state directory: only this host runs its servers.
        Local = "local",
        /// In the broker's key-value store: several hosts run the same servers.
        Shared = "shared",
    }
}

/// Reads a name that becomes part of a subject, where some characters are special.
fn read_subject_token(reader: &SectionReader<'_>, key: &'static str) -> Option<String> {
    let (text, node) = reader.text(key)?;
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if text.len() > 64 || !text.bytes().all(is_fit) {
        let path = reader.key_path(key);
        let message =
            format!("`{path}` is made of at most 64 letters, digits, `-` and `_`, found {}", quote(text));
        reader.context.error(node.span, &path, message, None);
        return None;
    }
    Some(text.to_owned())
}

fn read_optional_subject_token(reader: &SectionReader<'_>, key: &'static str) -> Option<Option<String>> {
    read_subject_token(reader, key).map(Some)
}

fn addresses(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    let path = reader.key_path(key);
    let texts = reader.text_or_texts(key)?;
    if texts.is_empty() {
        let message = format!("`{path}` names no server");
        reader.context.error(reader.key_span(key), &path, message, "write nats = \"nats://127.0.0.1:4222\"");
        return None;
    }
    for (text, node) in &texts {
        if let Err((why, hint)) = check_nats_address(text) {
            reader.context.error(
                node.span,
                &path,
                format!("`{path}` wants {why}, found {}", quote(&redact_url(text))),
                hint,
            );
        }
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// Checks the address of a NATS server: `Err` has what is wanted, and what to write instead.
pub fn check_nats_address(text: &str) -> Result<(), (&'static str, &'static str)> {
    let rest = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://"));
    let Some(rest) =
        rest.filter(|rest| !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c == ','))
    else {
        return Err(("a nats:// or tls:// address", "write it like \"nats://127.0.0.1:4222\""));
    };
    if rest.contains('@') {
        return Err(("an address without credentials", "keep them in `user` and `password`"));
    }
    if rest.starts_with(':') || rest.trim_end_matches('/').contains(['/', '?', '#']) {
        return Err(("a host and a port", "write it like \"nats://127.0.0.1:4222\""));
    }
    Ok(())
}

fn credentials(reader: &SectionReader<'_>, _: &'static str) -> Option<RelayCredentials> {
    let given: Vec<&str> = ["creds", "nkey", "user"].into_iter().filter(|key| reader.has(key)).collect();
    if let [first, second, ..] = given[..] {
        let path = reader.key_path(second);
        let message = format!("`{path}` and `{}` contradict each other", reader.key_path(first));
        reader.context.error(
            reader.key_span(second),
            &path,
            message,
            "keep one of them: a broker is shown one credential",
        );
    }
    check_paired(reader, "user", "password");
    let creds = reader.path("creds");
    let nkey = reader.path("nkey");
    let user = reader.text("user").map(|(text, _)| text.to_owned());
    let password = read_password(reader);
    Some(match (creds, nkey, user, password) {
        (Some(creds), ..) => RelayCredentials::Creds(creds),
        (_, Some(nkey), ..) => RelayCredentials::Nkey(nkey),
        (.., Some(user), Some(password)) => RelayCredentials::Password { user, password },
        _ => RelayCredentials::None,
    })
}

fn tls(reader: &SectionReader<'_>, _: &'static str) -> Option<RelayTls> {
    check_paired(reader, "cert", "key");
    let ca = reader.path("ca");
    let identity = (reader.path("cert"), reader.path("key"));
    Some(RelayTls { ca, identity: identity.0.zip(identity.1) })
}

/// Reports one of two keys that only work together.
fn check_paired(reader: &SectionReader<'_>, one: &'static str, other: &'static str) {
    let (has, lacks) = match (reader.has(one), reader.has(other)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return,
    };
    if reader.has_misspelled(lacks) {
        return;
    }
    let path = reader.key_path(has);
    let message = format!("`{path}` goes with `{}`, which is not there", reader.key_path(lacks));
    reader.context.error(
        reader.key_span(has),
        &path,
        message,
        format!("write `{lacks}` too, or leave out `{has}`"),
    );
}

fn read_password(reader: &SectionReader<'_>) -> Option<String> {
    let (text, node) = reader.text("password")?;
    let path = reader.key_path("password");
    let template = reader.context.template(node, &path, text)?;
    if !template.has_references() {
        let hint = "keep it out of the file: password = \"${env:NAME}\" or \"${file:path}\"";
        reader.context.warn(node.span, &path, format!("`{path}` is a secret written into the file"), hint);
    }
    Some(template.to_string())
}
