//! A real MCP server on stdio that misbehaves on request.
//!
//! Tests start it as a child process to meet every fault for real: crashes, hangs, floods, forks, lies.
//! The plain path is short enough to serve as a benchmark's upstream. `fake-mcp --help` lists the switches;
//! `tools/list` names the tools.
//!
//! | file | what it holds |
//! |---|---|
//! | `script`, `switches` | what was typed, and what it means |
//! | `start`, `fork` | what happens before the first line is read |
//! | `serve` | the read loop and the table of methods |
//! | `message`, `era` | requests as borrowed JSON, and which revision each one speaks |
//! | `tool`, `perform`, `faults` | the arguments of a tool, the tools that behave, the tools that do not |
//! | `deeds`, `executions` | tools whose every execution is accounted for, and the file that does it |
//! | `tasks` | tasks, and their methods |
//! | `catalog`, `lists`, `library` | definitions, paging, resources and prompts |
//! | `reply`, `outlet`, `delivery`, `clock` | answer lines and their way out, at once or later |
//! | `asks`, `news`, `ledger` | questions to the client, what it wants to hear of, files that count what happened |

use std::io::Write as _;
use std::process::ExitCode;

mod append_file;
mod call_tool;
mod catalog;
mod catalog_file;
mod client_subscriptions;
mod delay_queue;
mod era;
mod executions;
mod faults;
mod fork;
mod message;
mod options;
mod output;
mod recorded_tools;
mod resources_and_prompts;
mod response;
mod server;
mod server_requests;
mod start;
mod stdout_buffer;
mod switches;
mod tasks;
mod tool;
mod tool_list;

use options::{FakeOptions, RunMode};

fn main() -> ExitCode {
    let script = match FakeOptions::parse(std::env::args().skip(1)) {
        Ok(script) => script,
        Err(misuse) => {
            let _ = writeln!(std::io::stderr(), "fake-mcp: {misuse}");
            return ExitCode::from(2);
        }
    };
    match script.action {
        RunMode::Help => print(&switches::help()),
        RunMode::PrintExact => print(response::EXACT),
        RunMode::Linger => fork::linger_detached(),
        RunMode::Serve => {
            if let Err(problem) = start::prepare(&script) {
                let _ = writeln!(std::io::stderr(), "fake-mcp: {problem}");
                return ExitCode::from(2);
            }
            server::run(script)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
