//! `ostler list`: the servers of the config.

use std::path::PathBuf;

use ostler_core::card::CardStatus;
use ostler_core::config::{Config, hide_in_address, hide_in_args};
use ostler_core::name::ServerName;
use ostler_core::spec::{ServerSpec, Transport};
use ostler_host::card_in_file;
use serde::{Deserialize, Serialize};

use crate::api::AppliedConfig;
use crate::failure::Failure;
use crate::output::{self, Style, Tint};
use crate::reach::{self, Reach, Way};
use crate::table::{Cell, Table};
use crate::{cli, config_file};

pub(super) fn run(typed: &cli::List, shared: &cli::Shared) -> Result<(), Failure> {
    let entries = match reach::find(shared)? {
        Way::Here(setting) => {
            if !typed.json {
                setting.tell_standing();
            }
            // A card at an address is known to a host that has read it.
            entries(&setting.config, |spec| card_in_file(spec).map(Into::into))
        }
        Way::There(there) => reach::run(Way::There(there), async |reach| {
            reach.tell_refused_change().await;
            ask(reach).await
        })?,
    };
    if typed.json {
        return output::print_json(&Listing { servers: entries });
    }
    if entries.is_empty() {
        config_file::tell_no_servers(shared.config.as_deref(), &[]);
    }
    let mut table = Table::new(&["NAME", "TRANSPORT", "STARTS", "SOURCE", "COMMAND"]);
    for entry in &entries {
        let starts = match (&entry.disabled, entry.lazy) {
            (Some(_), _) => "disabled",
            (None, true) => "when used",
            (None, false) => "at once",
        };
        table.row([
            entry.name.as_str().into(),
            entry.transport.as_str().into(),
            starts.into(),
            Cell::tinted(&entry.source(), Tint::Faint),
            entry.target().into(),
        ]);
    }
    output::print(&table.render(Style::stdout(), output::width()))
}

/// The servers of a config, in its order, with the cards that are known; those that are disabled at the end.
pub(crate) fn entries(config: &Config, card: impl Fn(&ServerSpec) -> Option<CardStatus>) -> Vec<Entry> {
    let entry = |spec: &ServerSpec| Entry { card: card(spec), ..Entry::of(config, spec) };
    let run = config.servers.iter().map(entry);
    let disabled = config.disabled.iter().map(|server| Entry {
        disabled: Some(format!("{}; {}", server.cause, server.remedy)),
        ..Entry::of(config, &server.spec)
    });
    run.chain(disabled).collect()
}

async fn ask(reach: &Reach) -> Result<Vec<Entry>, Failure> {
    match reach {
        Reach::There(there) => Ok(there.get::<AppliedConfig>("/api/v1/config").await?.servers),
        Reach::Here(_) => Ok(Vec::new()),
    }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct Listing {
    servers: Vec<Entry>,
}

/// One server.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ConfigEntry"))]
pub(crate) struct Entry {
    name: ServerName,
    transport: String,
    command: Option<String>,
    /// Without secrets: what is listed here is pasted into reports.
    args: Option<Vec<String>>,
    /// The same.
    url: Option<String>,
    lazy: bool,
    /// Why it is not run, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
    /// Its card, if it is a file or a daemon has read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    card: Option<CardStatus>,
    file: Option<PathBuf>,
    line: Option<u32>,
}

impl Entry {
    fn of(config: &Config, spec: &ServerSpec) -> Self {
        let origin = config.origin(spec.name.as_str());
        let (command, args, url) = match &spec.transport {
            Transport::Stdio(process) => {
                (Some(process.command.clone()), Some(hide_in_args(&process.args)), None)
            }
            Transport::Http(endpoint) => (None, None, Some(hide_in_address(&endpoint.url))),
        };
        Self {
            name: spec.name.clone(),
            transport: spec.transport.kind().to_owned(),
            command,
            args,
            url,
            lazy: spec.lazy,
            disabled: None,
            card: None,
            file: origin.map(|(file, _)| file.to_owned()),
            line: origin.map(|(_, line)| line),
        }
    }

    fn source(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", config_file::shown(file).display()),
            _ => "built-in".into(),
        }
    }

    fn target(&self) -> String {
        let words = self.command.as_deref().into_iter().chain(self.args.iter().flatten().map(String::as_str));
        let words: Vec<String> = words.map(word).collect();
        self.url.clone().unwrap_or_else(|| words.join(" "))
    }
}

/// A word of a command line, in quotes where it would not be one otherwise.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,$~{}…".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
