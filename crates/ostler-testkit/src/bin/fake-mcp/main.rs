//! A real MCP server on stdio that misbehaves on request.
//!
//! Tests start it as a child process to meet real faults: crashes, hangs, floods, forks, wrong answers.
//! The plain path is short enough for a benchmark's upstream. `fake-mcp --help` lists the switches;
//! `tools/list` names the tools.
//!
//! | file | content |
//! |---|---|
//! | `options`, `switches` | options, and the table of switches that sets them |
//! | `start`, `fork` | start of the process, before the first line is read |
//! | `server` | the read loop and the table of methods |
//! | `message`, `era` | requests as borrowed JSON, and the era of each |
//! | `tool`, `call_tool`, `faults` | arguments of a tool, tools that behave, tools that misbehave |
//! | `recorded_tools`, `executions` | tools whose every execution is recorded, and the files of records |
//! | `tasks` | the tool `task` and its methods |
//! | `catalog`, `tool_list`, `resources_and_prompts`, `catalog_file` | definitions, paging, resources and prompts, lists from a file |
//! | `response`, `output`, `delay_queue`, `stdout_buffer` | answer lines, sent at once or later |
//! | `client_subscriptions` | subscriptions of the client |

use std::io::Write as _;
use std::process::ExitCode;

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
mod start;
mod stdout_buffer;
mod switches;
mod tasks;
mod tool;
mod tool_list;

use options::{FakeOptions, RunMode};

fn main() -> ExitCode {
    let options = match FakeOptions::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fake-mcp: {error}");
            return ExitCode::from(2);
        }
    };
    match options.action {
        RunMode::Help => print(&switches::help()),
        RunMode::PrintExact => print(response::EXACT),
        RunMode::Linger => fork::linger_detached(),
        RunMode::Serve => {
            if let Err(error) = start::prepare(&options) {
                let _ = writeln!(std::io::stderr(), "fake-mcp: {error}");
                return ExitCode::from(2);
            }
            server::run(options)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
