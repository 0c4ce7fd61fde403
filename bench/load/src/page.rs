//! Rows and how they are printed.

use std::process::Command;

use serde_json::json;

use crate::options::{Format, Options};

/// A figure, what was aimed at and what was found.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) part: &'static str,
    pub(crate) figure: String,
    pub(crate) aim: String,
    pub(crate) found: String,
    /// Whether the aim was reached; `None` where there is none.
    pub(crate) is_met: Option<bool>,
}

impl Row {
    pub(crate) fn new(part: &'static str, figure: impl Into<String>, found: impl Into<String>) -> Self {
        Self { part, figure: figure.into(), aim: String::new(), found: found.into(), is_met: None }
    }

    /// What was aimed at, and whether that was reached.
    pub(crate) fn aim(mut self, aim: impl Into<String>, is_met: bool) -> Self {
        self.aim = aim.into();
        self.is_met = Some(is_met);
        self
    }
}

pub(crate) fn print(options: &Options, rows: &[Row]) {
    match options.format {
        Format::Json => print_json(rows),
        Format::Markdown => print_markdown(rows),
    }
}

fn print_json(rows: &[Row]) {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({"part": row.part, "figure": row.figure, "aim": row.aim, "found": row.found, "met": row.is_met})
        })
        .collect();
    let page = json!({"date": said("date", &["-u", "+%F"]), "rustc": said("rustc", &["--version"]),
        "commit": said("git", &["rev-parse", "--short", "HEAD"]), "load": load(), "rows": rows});
    println!("{page:#}");
}

fn print_markdown(rows: &[Row]) {
    println!("## Under load\n");
    println!(
        "Measured on {}, {}, {}, {} build of commit {}, `bench-load`; the machine's load afterwards was {}.\n",
        said("date", &["-u", "+%F"]),
        format_args!("{} virtual cores", std::thread::available_parallelism().map_or(0, usize::from)),
        said("rustc", &["--version"]),
        if cfg!(debug_assertions) { "debug" } else { "release" },
        said("git", &["rev-parse", "--short", "HEAD"]),
        load(),
    );
    println!("| part | figure | aim | found |\n|---|---|---|---|");
    for row in rows {
        let missed = if row.is_met == Some(false) { ": missed" } else { "" };
        println!("| {} | {} | {} | {}{missed} |", row.part, row.figure, row.aim, row.found);
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(|_| "?".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
