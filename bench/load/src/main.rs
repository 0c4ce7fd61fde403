//! What overload, slow and silent clients do to the daemon, and what it weighs.
//!
//!   bench-load [PART…] [--json | --markdown] [--scale PERCENT]
//!
//! Parts: overload sessions connections idle readers slowhttp restarts floods
//! streams; all of them without a name. `ostler` and `fake-mcp` are taken from
//! the folder that this program is in. Each part starts daemons of its own and
//! yields rows: a figure, what was aimed at, what was found.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark prints, and stops when something is wrong"
)]

mod connections;
mod daemon;
mod floods;
mod good;
mod http;
mod idle;
mod mcp;
mod options;
mod overload;
mod page;
mod process;
mod readers;
mod restarts;
mod sessions;
mod slowhttp;
mod streams;

use options::Options;
use page::Row;

fn main() {
    let options = Options::read();
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows = runtime.block_on(run(&options));
    page::print(&options, &rows);
}

async fn run(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for part in &options.parts {
        eprintln!("{part} …");
        let found = match part.as_str() {
            "overload" => overload::run(options).await,
            "sessions" => sessions::run(options).await,
            "connections" => connections::run(options).await,
            "idle" => idle::run().await,
            "readers" => readers::run(options).await,
            "slowhttp" => slowhttp::run(options).await,
            "restarts" => restarts::run(options).await,
            "floods" => floods::run(options).await,
            "streams" => streams::run(options).await,
            other => panic!("there is no part `{other}`"),
        };
        for row in &found {
            eprintln!("  {}: {} (aim: {})", row.figure, row.found, row.aim);
        }
        rows.extend(found);
    }
    rows
}
