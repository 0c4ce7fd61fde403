//! Options of the command line: transport, era and the file for the address.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::era::ServedEras;

pub(crate) const USAGE: &str = "\
fixture-mcp: the server that the official conformance suite talks to

usage: fixture-mcp --stdio [ERA]
       fixture-mcp --http ADDR:PORT [--port-file FILE] [ERA]

  --stdio            one client, on stdin and stdout
  --http ADDR:PORT   Streamable HTTP at /mcp; port 0 takes a free one; prints the url
  --port-file FILE   writes ADDR:PORT there once the port is open
ERA is one of
  --modern-only      speaks 2026-07-28 and refuses `initialize`
  --legacy-only      speaks 2025-11-25 and older, and does not know newer ones
";

#[derive(Debug)]
pub(crate) struct FixtureOptions {
    pub(crate) era: ServedEras,
    pub(crate) transport: FixtureTransport,
}

#[derive(Debug)]
pub(crate) enum FixtureTransport {
    Stdio,
    Http { listen: SocketAddr, port_file: Option<PathBuf> },
}

impl FixtureOptions {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let (mut era, mut listen, mut port_file, mut is_stdio) = (ServedEras::Dual, None, None, false);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--stdio" => is_stdio = true,
                "--http" => {
                    let address = value()?;
                    listen = Some(address.parse().map_err(|error| format!("{address}: {error}"))?);
                }
                "--port-file" => port_file = Some(PathBuf::from(value()?)),
                "--modern-only" => era = ServedEras::ModernOnly,
                "--legacy-only" => era = ServedEras::LegacyOnly,
                other => return Err(format!("{other} is not a switch\n\n{USAGE}")),
            }
        }
        let transport = match (is_stdio, listen) {
            (true, None) => FixtureTransport::Stdio,
            (false, Some(listen)) => FixtureTransport::Http { listen, port_file },
            _ => return Err(format!("one of --stdio and --http is needed\n\n{USAGE}")),
        };
        Ok(Self { era, transport })
    }
}
