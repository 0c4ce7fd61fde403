//! Rows of results, printed as text, Markdown or JSON.

use bench::process::machine_load;
use serde_json::json;

use super::options::{LoadOptions, RowFormat};
use crate::{command_output, describe_machine};

/// A figure with its aim and the measured value.
#[derive(Debug)]
pub(crate) struct LoadRow {
    pub(crate) part: &'static str,
    pub(crate) figure: String,
    pub(crate) aim: String,
    pub(crate) found: String,
    /// True if the aim was reached; `None` without an aim.
    pub(crate) is_met: Option<bool>,
}

impl LoadRow {
    pub(crate) fn new(part: &'static str, figure: impl Into<String>, found: impl Into<String>) -> Self {
        Self { part, figure: figure.into(), aim: String::new(), found: found.into(), is_met: None }
    }

    /// Sets the aim, and whether it was reached.
    pub(crate) fn aim(mut self, aim: impl Into<String>, is_met: bool) -> Self {
        self.aim = aim.into();
        self.is_met = Some(is_met);
        self
    }
}

pub(crate) fn print(options: &LoadOptions, rows: &[LoadRow]) {
    match options.format {
        RowFormat::Json => print_json(rows),
        RowFormat::Markdown => print_markdown(rows),
    }
}

fn print_json(rows: &[LoadRow]) {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({"part": row.part, "figure": row.figure, "aim": row.aim, "found": row.found, "met": row.is_met})
        })
        .collect();
    let page = json!({"date": command_output(&["date", "-u", "+%F"]), "rustc": command_output(&["rustc", "--version"]),
        "commit": command_output(&["git", "rev-parse", "--short", "HEAD"]), "load": machine_load(), "rows": rows});
    println!("{page:#}");
}

fn print_markdown(rows: &[LoadRow]) {
    println!("## Under load\n");
    println!("{}, `bench load`; the machine's load afterwards was {}.\n", describe_machine(), machine_load());
    println!("| part | figure | aim | found |\n|---|---|---|---|");
    for row in rows {
        let missed = if row.is_met == Some(false) { ": missed" } else { "" };
        println!("| {} | {} | {} | {}{missed} |", row.part, row.figure, row.aim, row.found);
    }
}
