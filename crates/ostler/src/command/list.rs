//! `ostler list`: the servers of the config.

use std::path::PathBuf;

use ostler_core::card::CardStatus;
use ostler_core::config::{Config, redact_args, redact_url};
use ostler_core::server_name::ServerName;
use ostler_core::spec::{ServerSpec, ServerTransport};
use ostler_host::card_from_file;
use serde::{Deserialize, Serialize};

use crate::api::AppliedConfig;
use crate::client::{self, Backend, BackendChoice};
use crate::failure::CommandFailure;
use crate::output::{self, Style, Tint};
use crate::text_table::{TableCell, TextTable};
use crate::{cli, config_file};

pub(super) fn run(typed: &cli::ListArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let entries = match client::choose_backend(shared)? {
        BackendChoice::InProcess(setting) => {
            if !typed.json {
                setting.print_trust_state();
            }
            // Only a host fetches cards at an address.
            entries(&setting.config, |spec| card_from_file(spec).map(Into::into))
        }
        BackendChoice::Daemon(there) => {
            client::run_with_backend(BackendChoice::Daemon(there), async |reach| {
                reach.warn_refused_change().await;
                fetch_entries(reach).await
            })?
        }
    };
    if typed.json {
        return output::print_json(&ListOutput { servers: entries });
    }
    if entries.is_empty() {
        config_file::print_no_servers(shared.config.as_deref(), &[]);
    }
    let mut table = TextTable::new(&["NAME", "TRANSPORT", "STARTS", "SOURCE", "COMMAND"]);
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
            TableCell::tinted(&entry.source(), Tint::Faint),
            entry.target().into(),
        ]);
    }
    output::print(&table.render(Style::stdout(), output::stdout_columns()))
}

/// Returns the servers of a config, in its order, with the cards that are known; disabled ones at the end.
pub(crate) fn entries(config: &Config, card: impl Fn(&ServerSpec) -> Option<CardStatus>) -> Vec<ConfigEntry> {
    let entry = |spec: &ServerSpec| ConfigEntry { card: card(spec), ..ConfigEntry::of(config, spec) };
    let run = config.servers.iter().map(entry);
    let disabled = config.disabled.iter().map(|server| ConfigEntry {
        disabled: Some(format!("{}; {}", server.cause, server.remedy)),
        ..ConfigEntry::of(config, &server.spec)
    });
    run.chain(disabled).collect()
}

async fn fetch_entries(reach: &Backend) -> Result<Vec<ConfigEntry>, CommandFailure> {
    match reach {
        Backend::Daemon(there) => Ok(there.get::<AppliedConfig>("/api/v1/config").await?.servers),
        Backend::InProcess(_) => Ok(Vec::new()),
    }
}

/// The stable shape of `--json`.
#[derive(Serialize)]
struct ListOutput {
    servers: Vec<ConfigEntry>,
}

/// One server.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ConfigEntry"))]
pub(crate) struct ConfigEntry {
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

impl ConfigEntry {
    fn of(config: &Config, spec: &ServerSpec) -> Self {
        let origin = config.origin(spec.name.as_str());
        let (command, args, url) = match &spec.transport {
            ServerTransport::Stdio(process) => {
                (Some(process.command.clone()), Some(redact_args(&process.args)), None)
            }
            ServerTransport::Http(endpoint) => (None, None, Some(redact_url(&endpoint.url))),
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
            (Some(file), Some(line)) => format!("{}:{line}", config_file::relative_to_cwd(file).display()),
            _ => "built-in".into(),
        }
    }

    fn target(&self) -> String {
        let words = self.command.as_deref().into_iter().chain(self.args.iter().flatten().map(String::as_str));
        let words: Vec<String> = words.map(shell_word).collect();
        self.url.clone().unwrap_or_else(|| words.join(" "))
    }
}

/// Returns a word of a command line, in quotes where the shell would change it.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,$~{}…".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
