//! `ostler daemons`: the daemons of this user on this machine.

use serde::Serialize;
use tokio::task::JoinSet;

use crate::about::About;
use crate::cli;
use crate::failure::Failure;
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach::{Address, There};
use crate::spot::{self, Note, Spot};
use crate::table::{Cell, Table};

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Listing<'a> {
    daemons: &'a [About],
}

pub(super) fn run(typed: &cli::Daemons) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
    let changing = spot::all_taken().into_iter().filter(|spot| spot.running().is_none()).count();
    let daemons = runtime.block_on(all());
    match changing {
        0 => {}
        1 => tell("a daemon is being replaced or ends; it is listed when that is over"),
        some => tell(&format!("{some} daemons are being replaced or end; they are listed when that is over")),
    }
    if typed.json {
        return output::print_json(&Listing { daemons: &daemons });
    }
    if daemons.is_empty() {
        if changing == 0 {
            tell("no daemon runs; `ostler serve` starts one");
        }
        return Ok(());
    }
    let mut table = Table::new(&["URL", "PID", "VERSION", "STARTED BY", "CLIENTS", "UP", "CONFIG"]);
    for daemon in &daemons {
        table.row([
            daemon.url.as_str().into(),
            daemon.pid.to_string().into(),
            clean(&daemon.version).as_str().into(),
            daemon.started_by().into(),
            match daemon.clients {
                Some(clients) => clients.to_string().into(),
                None => Cell::tinted("no answer", Tint::Bad),
            },
            daemon.uptime().into(),
            daemon.config().into(),
        ]);
    }
    output::print(&table.render(Style::stdout(), output::width()))
}

/// Every daemon, in the order of their addresses. One that does not answer is described by its note.
async fn all() -> Vec<About> {
    let mut asking = JoinSet::new();
    for (spot, note) in spot::all_running() {
        asking.spawn(async move { about(&spot, note).await });
    }
    let mut daemons = asking.join_all().await;
    daemons.sort_by(|a, b| a.url.cmp(&b.url));
    daemons
}

async fn about(spot: &Spot, note: Note) -> About {
    let there = Address::near(&note.url).map(|address| There::new(address, spot.token()));
    let told = match &there {
        Some(there) => there.about().await.ok(),
        None => None,
    };
    told.unwrap_or_else(|| About::noted(note))
}
