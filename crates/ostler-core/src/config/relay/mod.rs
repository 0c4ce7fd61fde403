//! `[relay]`: the broker through which workers elsewhere reach this host.

mod credentials;

use std::path::PathBuf;

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;
use super::secret::{hide_in_address, quote};

pub use credentials::{RelayCredentials, RelayTls};

/// Calls of workers that are under way at once, unless the config says otherwise.
const MAX_IN_FLIGHT: usize = 1_024;

/// The broker through which workers elsewhere reach this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// `nats://` or `tls://`, without credentials; never empty. Any of them will do.
    pub nats: Vec<String>,
    /// The first word of every subject after Ostler's own: letters, digits, `-` and `_`.
    pub tenant: String,
    /// What this host is called, likewise; none for a name made of the machine's.
    pub host: Option<String>,
    /// What the broker is shown.
    pub credentials: RelayCredentials,
    /// How the connection is made safe.
    pub tls: RelayTls,
    /// Calls of workers that are under way at once; others are refused.
    pub max_in_flight: usize,
    /// Where it is kept which calls were begun.
    pub journal: RelayJournal,
    /// Whether a broker elsewhere may let in anybody.
    pub allow_open_broker: bool,
}

/// Where it is kept which calls were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RelayJournal {
    /// In the state directory: this host alone has its servers.
    #[default]
    Local,
    /// In the broker's key-value store: several hosts have the same servers.
    Shared,
}

pub(crate) static SECTION: Section = Section {
    name: "relay",
    doc: "The NATS broker through which workers elsewhere reach this host.",
    fields: &[
        Field {
            key: "nats",
            kind: Kind::TextOrTexts,
            preset: Preset::Nothing,
            doc: "The address of the NATS server, such as nats://127.0.0.1:4222, or a list of several of one cluster.",
        },
        Field {
            key: "tenant",
            kind: Kind::Text,
            preset: Preset::Text("default"),
            doc: "Separates hosts that share a broker; part of every subject.",
        },
        Field {
            key: "host",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "What this host is called among those of a tenant; by default as the machine is.",
        },
        Field {
            key: "creds",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A NATS credentials file, relative to the config file.",
        },
        Field {
            key: "nkey",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A file with the seed of an nkey, relative to the config file.",
        },
        Field {
            key: "user",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "The user to be at the broker; goes with password.",
        },
        Field {
            key: "password",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "Its password, by reference: ${env:NAME} or ${file:path}.",
        },
        Field {
            key: "ca",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A PEM file with the authorities that the broker's certificate may be of, in place of the machine's; makes TLS necessary.",
        },
        Field {
            key: "cert",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A PEM file with the certificate that the broker is shown; goes with key, and makes TLS necessary.",
        },
        Field {
            key: "key",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A PEM file with the key of that certificate.",
        },
        Field {
            key: "max_in_flight",
            kind: Kind::Count(1, 65_536),
            preset: Preset::Count(MAX_IN_FLIGHT as u64),
            doc: "Calls of workers that are under way at once; more are refused before anything happens.",
        },
        Field {
            key: "journal",
            kind: Kind::Choice(&["local", "shared"]),
            preset: Preset::Text("local"),
            doc: "Where it is kept which calls were begun: local, in the state directory; shared, in the broker's key-value store, for several hosts.",
        },
        Field {
            key: "allow_open_broker",
            kind: Kind::Flag,
            preset: Preset::Flag(false),
            doc: "Whether a broker on another machine that asks nobody for credentials is used all the same.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> Option<Relay> {
    let nats = read_nats(&reader);
    let tenant = read_name(&reader, "tenant");
    let host = read_name(&reader, "host");
    let credentials = credentials::read(&reader);
    let tls = credentials::read_tls(&reader);
    let max_in_flight = reader.size_count("max_in_flight").unwrap_or(MAX_IN_FLIGHT);
    let journal = match reader.choice("journal") {
        Some("shared") => RelayJournal::Shared,
        _ => RelayJournal::Local,
    };
    let allow_open_broker = reader.flag("allow_open_broker").unwrap_or(false);
    reader.finish();
    Some(Relay {
        nats: nats?,
        tenant: tenant.unwrap_or_else(|| "default".into()),
        host,
        credentials,
        tls,
        max_in_flight,
        journal,
        allow_open_broker,
    })
}

/// Names stand in subjects, where other characters mean something.
fn read_name(reader: &Reader<'_>, key: &'static str) -> Option<String> {
    let (text, node) = reader.text(key)?;
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if text.len() > 64 || !text.bytes().all(is_fit) {
        let path = reader.path_of(key);
        let message =
            format!("`{path}` is made of at most 64 letters, digits, `-` and `_`, found {}", quote(text));
        reader.scope.error(node.at, &path, message, None);
        return None;
    }
    Some(text.to_owned())
}

fn read_nats(reader: &Reader<'_>) -> Option<Vec<String>> {
    let path = reader.path_of("nats");
    if !reader.has("nats") {
        let message = format!("`{}` has no `nats`", reader.path);
        reader.scope.error(reader.at, &reader.path, message, "write nats = \"nats://127.0.0.1:4222\"");
    }
    let texts = reader.text_or_texts("nats")?;
    if texts.is_empty() {
        let message = format!("`{path}` names no server");
        reader.scope.error(reader.at_of("nats"), &path, message, "write nats = \"nats://127.0.0.1:4222\"");
        return None;
    }
    for (text, node) in &texts {
        if let Err((why, hint)) = check_address(text) {
            reader.scope.error(
                node.at,
                &path,
                format!("`{path}` wants {why}, found {}", quote(&hide_in_address(text))),
                hint,
            );
        }
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// Whether a text is the address of a NATS server: `Err` has what is wanted,
/// and what to write instead.
pub fn check_address(text: &str) -> Result<(), (&'static str, &'static str)> {
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

/// A file, relative to the config.
fn read_file(reader: &Reader<'_>, key: &'static str) -> Option<PathBuf> {
    let (text, node) = reader.text(key)?;
    match reader.scope.absolute(text.as_ref()) {
        Ok(path) => Some(path),
        Err(why) => {
            reader.scope.error(node.at, &reader.path_of(key), why, None);
            None
        }
    }
}
