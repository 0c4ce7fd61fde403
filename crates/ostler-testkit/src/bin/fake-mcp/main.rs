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

mod asks;
mod catalog;
mod clock;
mod deeds;
mod delivery;
mod era;
mod executions;
mod faults;
mod fork;
mod ledger;
mod library;
mod lists;
mod message;
mod news;
mod outlet;
mod overrides;
mod perform;
mod reply;
mod script;
mod serve;
mod start;
mod switches;
mod tasks;
mod tool;

use script::{Action, Script};

fn main() -> ExitCode {
    let script = match Script::parse(std::env::args().skip(1)) {
        Ok(script) => script,
        Err(misuse) => {
            let _ = writeln!(std::io::stderr(), "fake-mcp: {misuse}");
            return ExitCode::from(2);
        }
    };
    match script.action {
        Action::Help => print(&switches::help()),
        Action::PrintExact => print(reply::EXACT),
        Action::Linger => fork::linger_detached(),
        Action::Serve => {
            if let Err(problem) = start::prepare(&script) {
                let _ = writeln!(std::io::stderr(), "fake-mcp: {problem}");
                return ExitCode::from(2);
            }
            serve::run(script)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
