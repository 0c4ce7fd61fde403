//! The server that the official conformance suite talks to.
//!
//! It is written on `rmcp` and shares no line with Ostler's own protocol code,
//! so that a mistake there can't hide behind the same mistake here.
//! `fixture-mcp --help` lists the switches.
//!
//! | file | what it holds |
//! |---|---|
//! | `switches`, `era` | what was typed, and which revisions are admitted to |
//! | `stdio`, `http` | the two transports, and what a server of one era does differently |
//! | `server`, `world` | one session, and what all sessions share |
//! | `catalog` | every definition that is listed |
//! | `content`, `prompts` | what always reads the same |
//! | `narrate` | tools that log and report progress |
//! | `visit`, `questions`, `rounds` | tools that ask their client, in either era |
//! | `jobs` | tools that go on as tasks |

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

mod catalog;
mod client_requests;
mod content;
mod era;
mod http;
mod interactive_tools;
mod logging_tools;
mod options;
mod prompts;
mod request;
mod server;
mod shared_state;
mod stdio;
mod task_tools;

use options::{FixtureOptions, FixtureTransport};

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--help") {
        let _ = std::io::stdout().write_all(options::USAGE.as_bytes());
        return ExitCode::SUCCESS;
    }
    let switches = match FixtureOptions::parse(std::env::args().skip(1)) {
        Ok(switches) => switches,
        Err(misuse) => return complain(&misuse, 2),
    };
    match run(switches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), 1),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(switches: FixtureOptions) -> Result<(), Box<dyn Error>> {
    let world = Arc::new(shared_state::FixtureState::new(catalog::FixtureCatalog::read()?)?);
    match switches.transport {
        FixtureTransport::Stdio => stdio::serve(world, switches.era).await,
        FixtureTransport::Http { listen, port_file } => {
            let bound = http::bind(listen, port_file.as_deref()).await?;
            writeln!(std::io::stdout(), "http://{}{}", bound.address, http::PATH)?;
            Ok(http::serve(bound, world, switches.era).await?)
        }
    }
}

fn complain(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "fixture-mcp: {message}");
    ExitCode::from(code)
}
