//! What the broker is shown, and how the connection to it is made safe.

use std::fmt;
use std::path::PathBuf;

use super::read_file;
use crate::config::reader::Reader;

/// What the broker is shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum RelayCredentials {
    /// Nothing.
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

/// How the connection is made safe, beside what the address says. Every path is absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayTls {
    /// Authorities that the broker's certificate may be of, in place of the machine's.
    pub ca: Option<PathBuf>,
    /// The certificate that the broker is shown, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

pub(super) fn read(reader: &Reader<'_>) -> RelayCredentials {
    let ways: Vec<&str> = ["creds", "nkey", "user"].into_iter().filter(|key| reader.has(key)).collect();
    if let [first, second, ..] = ways[..] {
        let path = reader.path_of(second);
        let message = format!("`{path}` and `{}` contradict each other", reader.path_of(first));
        reader.scope.error(
            reader.at_of(second),
            &path,
            message,
            "keep one of them: a broker is shown one credential",
        );
    }
    pair(reader, "user", "password");
    let creds = read_file(reader, "creds");
    let nkey = read_file(reader, "nkey");
    let user = reader.text("user").map(|(text, _)| text.to_owned());
    let password = read_password(reader);
    match (creds, nkey, user, password) {
        (Some(creds), ..) => RelayCredentials::Creds(creds),
        (_, Some(nkey), ..) => RelayCredentials::Nkey(nkey),
        (.., Some(user), Some(password)) => RelayCredentials::Password { user, password },
        _ => RelayCredentials::None,
    }
}

pub(super) fn read_tls(reader: &Reader<'_>) -> RelayTls {
    pair(reader, "cert", "key");
    let ca = read_file(reader, "ca");
    let identity = (read_file(reader, "cert"), read_file(reader, "key"));
    RelayTls { ca, identity: identity.0.zip(identity.1) }
}

/// Reports one of two keys that mean nothing without each other.
fn pair(reader: &Reader<'_>, one: &'static str, other: &'static str) {
    let (has, lacks) = match (reader.has(one), reader.has(other)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return,
    };
    if reader.has_misspelled(lacks) {
        return;
    }
    let path = reader.path_of(has);
    let message = format!("`{path}` goes with `{}`, which is not there", reader.path_of(lacks));
    reader.scope.error(
        reader.at_of(has),
        &path,
        message,
        format!("write `{lacks}` too, or leave out `{has}`"),
    );
}

fn read_password(reader: &Reader<'_>) -> Option<String> {
    let (text, node) = reader.text("password")?;
    let path = reader.path_of("password");
    let template = reader.scope.template(node, &path, text)?;
    if !template.has_references() {
        let hint = "keep it out of the file: password = \"${env:NAME}\" or \"${file:path}\"";
        reader.scope.warn(node.at, &path, format!("`{path}` is a secret written into the file"), hint);
    }
    Some(template.to_string())
}
