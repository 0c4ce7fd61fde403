//! `[relay]`: the broker through which workers elsewhere reach this host.

use std::path::{Path, PathBuf};

use super::field::{Field, Kind, Preset, Section};
use super::reader::Reader;
use super::secret::quote;

/// The broker through which workers elsewhere reach this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// `nats://` or `tls://`.
    pub nats: String,
    /// The first word of every subject after Ostler's own: letters, digits, `-` and `_`.
    pub tenant: String,
    /// A NATS credentials file.
    pub creds: Option<PathBuf>,
}

pub(crate) static SECTION: Section = Section {
    name: "relay",
    doc: "The NATS broker through which workers elsewhere reach this host.",
    fields: &[
        Field {
            key: "nats",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "The address of the NATS server, such as nats://127.0.0.1:4222.",
        },
        Field {
            key: "tenant",
            kind: Kind::Text,
            preset: Preset::Text("default"),
            doc: "Separates hosts that share a broker; part of every subject.",
        },
        Field {
            key: "creds",
            kind: Kind::Text,
            preset: Preset::Nothing,
            doc: "A NATS credentials file, relative to the config file.",
        },
    ],
};

pub(crate) fn read(reader: Reader<'_>) -> Option<Relay> {
    let nats = read_nats(&reader);
    let tenant = reader.text("tenant").map_or("default", |(text, node)| {
        if super::role::check_name(text).is_err() {
            let path = reader.path_of("tenant");
            let message = format!("`{path}` is made of letters, digits, `-` and `_`, found {}", quote(text));
            reader.scope.error(node.at, &path, message, None);
        }
        text
    });
    let creds = reader.text("creds").and_then(|(text, node)| match reader.scope.absolute(Path::new(text)) {
        Ok(path) => Some(path),
        Err(why) => {
            reader.scope.error(node.at, &reader.path_of("creds"), why, None);
            None
        }
    });
    reader.finish();
    Some(Relay { nats: nats?, tenant: tenant.to_owned(), creds })
}

fn read_nats(reader: &Reader<'_>) -> Option<String> {
    if !reader.has("nats") {
        let message = format!("`{}` has no `nats`", reader.path);
        reader.scope.error(reader.at, &reader.path, message, "write nats = \"nats://127.0.0.1:4222\"");
    }
    let (text, node) = reader.text("nats")?;
    if !text.starts_with("nats://") && !text.starts_with("tls://") {
        let path = reader.path_of("nats");
        let message = format!("`{path}` wants a nats:// or tls:// address, found {}", quote(text));
        reader.scope.error(node.at, &path, message, "write it like \"nats://127.0.0.1:4222\"");
    }
    Some(text.to_owned())
}
