//! MCP server for the official conformance suite.
//!
//! It is written on `rmcp` and shares no line with Ostler's own protocol code,
//! so that a mistake there can't hide behind the same mistake here.
//! `fixture-mcp --help` lists the options.
//!
//! | file | content |
//! |---|---|
//! | `options`, `era` | options of the command line, and the revisions that are served |
//! | `stdio`, `http` | the two transports, and the refusals of a server of one era |
//! | `server`, `shared_state` | one session, and the state that all sessions share |
//! | `catalog` | every definition that is listed |
//! | `content`, `prompts` | static contents |
//! | `logging_tools` | tools that log and report progress |
//! | `request`, `client_requests`, `interactive_tools` | tools that ask their client, in either era |
//! | `task_tools` | tools that continue as tasks |

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
    let options = match FixtureOptions::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => return complain(&error, 2),
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), 1),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(options: FixtureOptions) -> Result<(), Box<dyn Error>> {
    let shared = Arc::new(shared_state::FixtureState::new(catalog::FixtureCatalog::read()?)?);
    match options.transport {
        FixtureTransport::Stdio => stdio::serve(shared, options.era).await,
        FixtureTransport::Http { listen, port_file } => {
            let bound = http::bind(listen, port_file.as_deref()).await?;
            writeln!(std::io::stdout(), "http://{}{}", bound.address, http::PATH)?;
            Ok(http::serve(bound, shared, options.era).await?)
        }
    }
}

fn complain(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "fixture-mcp: {message}");
    ExitCode::from(code)
}
