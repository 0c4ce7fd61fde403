//! `ostler card`: the card that a server publishes.

use ostler_core::card::{CardReport, Remote, ServerCard};
use ostler_core::server_name::ServerName;

use crate::cli;
use crate::client;
use crate::failure::CommandFailure;
use crate::output::{self, Style, Tint, escape_line, print_stderr};

pub(super) fn run(typed: &cli::CardArgs, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    let report = client::run_with_backend(client::choose_backend(shared)?, async |reach| {
        let known: Vec<ServerName> = reach.statuses().await?.into_iter().map(|status| status.name).collect();
        match known.iter().find(|name| name.as_str() == typed.server) {
            Some(server) => Ok(reach.card(server).await?),
            None => Err(CommandFailure::unknown_server(&typed.server, &known)),
        }
    })?;
    if typed.json {
        output::print_json(&report)?;
    } else {
        output::print(&describe(&report, Style::stdout()))?;
    }
    for difference in &report.differences {
        print_stderr(&format!("warning: {}", escape_line(difference)));
    }
    Ok(())
}

fn describe(report: &CardReport, style: Style) -> String {
    let ServerCard { name, title, description, version, website_url, repository, remotes, .. } = &report.card;
    let heading = style.paint(Tint::Heading, &escape_line(name));
    let mut text = format!("{heading} {}\n", escape_line(version));
    let mut row = |key: &str, value: &str| {
        let label = style.paint(Tint::Label, &format!("{key}:"));
        text.push_str(&format!("  {label}{:1$}{value}\n", "", 13 - key.len()));
    };
    title.iter().for_each(|title| row("title", &escape_line(title)));
    row("description", &escape_line(description));
    website_url.iter().for_each(|url| row("website", &escape_line(url)));
    repository.iter().for_each(|repository| row("repository", &escape_line(&repository.url)));
    remotes.iter().for_each(|remote| row("remote", &describe_remote(remote)));
    let compared = if report.compared { "" } else { "; the server does not run, so it is not compared" };
    row("read from", &format!("{}{compared}", escape_line(&report.source)));
    text
}

fn describe_remote(remote: &Remote) -> String {
    let mut text = format!("{} ({})", escape_line(&remote.url), escape_line(&remote.transport));
    if !remote.supported_protocol_versions.is_empty() {
        text.push_str(&format!(", MCP {}", escape_line(&remote.supported_protocol_versions.join(", "))));
    }
    let headers: Vec<String> = remote.headers.iter().map(|header| escape_line(&header.name)).collect();
    if !headers.is_empty() {
        text.push_str(&format!(", headers {}", headers.join(", ")));
    }
    text
}
