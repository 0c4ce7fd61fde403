//! The top of Ostler's own file.

use super::field::{Field, Kind, Preset, Section};
use super::{audit, auth, bounds, defaults, gateway, pins, relay, role, server};

pub(crate) static SECTION: Section = Section {
    name: "config",
    doc: "Ostler's config: ostler.toml, or the same as JSON.",
    fields: &[
        Field {
            key: "version",
            kind: Kind::Count(1, 1),
            preset: Preset::Count(1),
            doc: "The version of this format.",
        },
        Field {
            key: "listen",
            kind: Kind::Text,
            preset: Preset::Text("127.0.0.1:7777"),
            doc: "The address to listen on: an IP address and a port, or a port of this machine.",
        },
        Field {
            key: "watch",
            kind: Kind::Flag,
            preset: Preset::Flag(true),
            doc: "Whether an edit of the file applies by itself.",
        },
        Field {
            key: "include",
            kind: Kind::Texts,
            preset: Preset::Texts(&[]),
            doc: "Files whose servers are hosted too, relative to this file; mcpServers files work unchanged.",
        },
        Field {
            key: "servers",
            kind: Kind::Named(&server::SECTION),
            preset: Preset::Nothing,
            doc: "The servers, by name.",
        },
        Field {
            key: "defaults",
            kind: Kind::Section(&defaults::SECTION),
            preset: Preset::Nothing,
            doc: "Settings of all servers.",
        },
        Field {
            key: "roles",
            kind: Kind::Named(&role::SECTION),
            preset: Preset::Nothing,
            doc: "What callers may use, by role.",
        },
        Field {
            key: "auth",
            kind: Kind::Section(&auth::SECTION),
            preset: Preset::Nothing,
            doc: "How callers prove who they are.",
        },
        Field {
            key: "pool",
            kind: Kind::Section(&bounds::POOL),
            preset: Preset::Nothing,
            doc: "Limits on what runs at once.",
        },
        Field {
            key: "cache",
            kind: Kind::Section(&bounds::CACHE),
            preset: Preset::Nothing,
            doc: "Limits on what is remembered.",
        },
        Field {
            key: "gateway",
            kind: Kind::Section(&gateway::SECTION),
            preset: Preset::Nothing,
            doc: "What MCP clients may do at the endpoints.",
        },
        Field {
            key: "pins",
            kind: Kind::Section(&pins::SECTION),
            preset: Preset::Nothing,
            doc: "What happens when a tool's definition changes.",
        },
        Field {
            key: "relay",
            kind: Kind::Section(&relay::SECTION),
            preset: Preset::Nothing,
            doc: "The broker through which workers elsewhere reach this host.",
        },
        Field {
            key: "audit",
            kind: Kind::Section(&audit::SECTION),
            preset: Preset::Nothing,
            doc: "What is written down about calls.",
        },
    ],
};
