//! Load on a daemon: overload, and clients that are slow or silent.
//!
//! Each part starts daemons of its own and yields rows: a figure, its aim and the measured value.

mod connections;
mod floods;
mod good_client;
mod http;
mod idle;
mod mcp;
mod options;
mod overload;
mod readers;
mod restarts;
mod result_rows;
mod sessions;
mod setup;
mod slowhttp;
mod streams;
mod thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use options::LoadOptions;

pub(crate) async fn run(args: &[String]) {
    let options = LoadOptions::read(args);
    raise_descriptors();
    let mut rows = Vec::new();
    for part in &options.parts {
        eprintln!("{part} …");
        let found = match part.as_str() {
            "overload" => overload::run(&options).await,
            "sessions" => sessions::run(&options).await,
            "connections" => connections::run(&options).await,
            "idle" => idle::run().await,
            "readers" => readers::run(&options).await,
            "slowhttp" => slowhttp::run(&options).await,
            "restarts" => restarts::run(&options).await,
            "floods" => floods::run(&options).await,
            "streams" => streams::run(&options).await,
            "thread" => thread::run(&options).await,
            other => panic!("there is no part `{other}`"),
        };
        for row in &found {
            eprintln!("  {}: {} (aim: {})", row.figure, row.found, row.aim);
        }
        rows.extend(found);
    }
    result_rows::print(&options, &rows);
}

/// Raises this process's limit of descriptors to the hard limit.
fn raise_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}
