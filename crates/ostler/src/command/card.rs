//! `ostler card`: what a server publishes of itself.

use ostler_core::card::{CardReport, Remote, ServerCard};
use ostler_core::name::ServerName;

use crate::cli;
use crate::failure::Failure;
use crate::output::{self, Style, Tint, clean, tell};
use crate::reach;

pub(super) fn run(typed: &cli::Card, shared: &cli::Shared) -> Result<(), Failure> {
    let report = reach::run(reach::find(shared)?, async |reach| {
        let known: Vec<ServerName> = reach.statuses().await?.into_iter().map(|status| status.name).collect();
        match known.iter().find(|name| name.as_str() == typed.server) {
            Some(server) => Ok(reach.card(server).await?),
            None => Err(Failure::unknown_server(&typed.server, &known)),
        }
    })?;
    if typed.json {
        output::print_json(&report)?;
    } else {
        output::print(&describe(&report, Style::stdout()))?;
    }
    for difference in &report.differences {
        tell(&format!("warning: {}", clean(difference)));
    }
    Ok(())
}

fn describe(report: &CardReport, style: Style) -> String {
    let ServerCard { name, title, description, version, website_url, repository, remotes, .. } = &report.card;
    let heading = style.paint(Tint::Heading, &clean(name));
    let mut text = format!("{heading} {}\n", clean(version));
    let mut row = |key: &str, value: &str| {
        let label = style.paint(Tint::Label, &format!("{key}:"));
        text.push_str(&format!("  {label}{:1$}{value}\n", "", 13 - key.len()));
    };
    title.iter().for_each(|title| row("title", &clean(title)));
    row("description", &clean(description));
    website_url.iter().for_each(|url| row("website", &clean(url)));
    repository.iter().for_each(|repository| row("repository", &clean(&repository.url)));
    remotes.iter().for_each(|remote| row("remote", &describe_remote(remote)));
    let compared = if report.compared { "" } else { "; the server does not run, so it is not compared" };
    row("read from", &format!("{}{compared}", clean(&report.source)));
    text
}

fn describe_remote(remote: &Remote) -> String {
    let mut text = format!("{} ({})", clean(&remote.url), clean(&remote.transport));
    if !remote.supported_protocol_versions.is_empty() {
        text.push_str(&format!(", MCP {}", clean(&remote.supported_protocol_versions.join(", "))));
    }
    let headers: Vec<String> = remote.headers.iter().map(|header| clean(&header.name)).collect();
    if !headers.is_empty() {
        text.push_str(&format!(", headers {}", headers.join(", ")));
    }
    text
}
