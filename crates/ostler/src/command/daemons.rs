//! `ostler daemons`: the daemons of this user on this machine.

use serde::Serialize;
use tokio::task::JoinSet;

use crate::cli;
use crate::client::{DaemonAddress, DaemonClient};
use crate::daemon_info::DaemonInfo;
use crate::failure::CommandFailure;
use crate::instance::{self, DaemonInstance, DaemonRecord};
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::text_table::{TableCell, TextTable};

/// The stable shape of `--json`.
#[derive(Serialize)]
struct DaemonsOutput<'a> {
    daemons: &'a [DaemonInfo],
}

pub(super) fn run(typed: &cli::DaemonsArgs) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandFailure::Machine)?;
    let changing = instance::all_claimed().into_iter().filter(|spot| spot.running().is_none());
    let changing: Vec<Option<u32>> = changing.map(|spot| spot.claim_holder()).collect();
    let daemons = runtime.block_on(list_daemons());
    for pid in &changing {
        let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        print_stderr(&format!(
            "a daemon{pid} is being replaced, ends or has lost its record; it is listed when that is over"
        ));
    }
    if typed.json {
        return output::print_json(&DaemonsOutput { daemons: &daemons });
    }
    if daemons.is_empty() {
        if changing.is_empty() {
            print_stderr("no daemon runs; `ostler serve` starts one");
        }
        return Ok(());
    }
    let mut table = TextTable::new(&["URL", "PID", "VERSION", "STARTED BY", "CLIENTS", "UP", "CONFIG"]);
    for daemon in &daemons {
        table.row([
            daemon.url.as_str().into(),
            daemon.pid.to_string().into(),
            escape_line(&daemon.version).as_str().into(),
            daemon.started_by().into(),
            match daemon.clients {
                Some(clients) => clients.to_string().into(),
                None => TableCell::tinted("no answer", Tint::Error),
            },
            daemon.uptime().into(),
            daemon.config().into(),
        ]);
    }
    output::print(&table.render(Style::stdout(), output::stdout_columns()))
}

/// Returns every daemon, by address. One that does not answer is described by its record.
async fn list_daemons() -> Vec<DaemonInfo> {
    let mut asking = JoinSet::new();
    for (spot, note) in instance::all_running() {
        asking.spawn(async move { fetch_info(&spot, note).await });
    }
    let mut daemons = asking.join_all().await;
    daemons.sort_by(|a, b| a.url.cmp(&b.url));
    daemons
}

async fn fetch_info(spot: &DaemonInstance, note: DaemonRecord) -> DaemonInfo {
    let there = DaemonAddress::local(&note.url).map(|address| DaemonClient::new(address, spot.admin_token()));
    let told = match &there {
        Some(there) => there.info().await.ok(),
        None => None,
    };
    told.unwrap_or_else(|| DaemonInfo::from_record(note))
}
