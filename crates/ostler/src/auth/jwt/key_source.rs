//! Source of an issuer's keys: a URL or a file.

use std::path::Path;
use std::time::Duration;

use ostler_core::config::JwksLocation;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Url};

use super::key_set::KeySet;
use crate::config_file;
use crate::file_stamp::FileStamps;

/// Timeout of a fetch from the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound on a set of keys.
const MAX_KEY_SET_BYTES: usize = 1 << 20;
/// Upper bound on redirects.
const MAX_REDIRECTS: usize = 3;

/// Source, and its state between fetches.
#[derive(Debug)]
pub(super) enum KeySource {
    /// Client created with the first fetch: reading the machine's certificates takes time.
    Url(String, Option<Client>),
    /// Stamps of the last read.
    File(std::path::PathBuf, FileStamps),
}

impl KeySource {
    pub(super) fn new(jwks: &JwksLocation) -> Self {
        match jwks {
            JwksLocation::Url(url) => Self::Url(url.clone(), None),
            JwksLocation::File(file) => Self::File(file.clone(), FileStamps::default()),
        }
    }

    /// Fetches the keys; `None` if they have not changed.
    pub(super) async fn fetch_if_changed(&mut self) -> Result<Option<KeySet>, String> {
        match self {
            Self::Url(url, client) => {
                let client = match client {
                    Some(client) => client.clone(),
                    None => client.insert(build_client(url).await?).clone(),
                };
                fetch(&client, url).await.map(Some)
            }
            Self::File(file, seen) => {
                let mut now = FileStamps::default();
                now.add(file);
                if now == *seen {
                    return Ok(None);
                }
                let read = read(file).await;
                // An unreadable file is read again only after a change.
                *seen = now;
                read.map(Some)
            }
        }
    }
}

async fn read(file: &Path) -> Result<KeySet, String> {
    let path = file.to_owned();
    match tokio::task::spawn_blocking(move || read_file_blocking(&path)).await {
        Ok(read) => read,
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the keys in a file.
pub(super) fn read_file_blocking(file: &Path) -> Result<KeySet, String> {
    match config_file::read_at_most(file, MAX_KEY_SET_BYTES as u64) {
        Ok(text) if text.len() <= MAX_KEY_SET_BYTES => KeySet::parse(text.as_bytes()),
        Ok(_) => Err("it is larger than 1 MiB".into()),
        Err(error) => Err(error.to_string()),
    }
}

async fn build_client(url: &str) -> Result<Client, String> {
    let is_secure = url.starts_with("https://");
    let made = tokio::task::spawn_blocking(move || {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .timeout(FETCH_TIMEOUT)
            .pool_max_idle_per_host(0)
            .redirect(Policy::custom(follow_same_origin))
            .referer(false)
            .https_only(is_secure)
            .user_agent(concat!("ostler/", env!("CARGO_PKG_VERSION")));
        // An address of this machine needs no proxy, whatever the environment says.
        let builder = if is_secure { builder } else { builder.no_proxy() };
        builder.build()
    });
    match made.await {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Follows a redirect within the origin: the config names the issuer to trust.
fn follow_same_origin(attempt: Attempt<'_>) -> Action {
    let is_within = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if is_within && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

async fn fetch(client: &Client, url: &str) -> Result<KeySet, String> {
    let url: Url = url.parse().map_err(|error| format!("its address can't be read: {error}"))?;
    let mut response = client.get(url).send().await.map_err(|error| chain(&error))?;
    if !response.status().is_success() {
        return Err(format!("it answers with HTTP status {}", response.status()));
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        if text.len() + chunk.len() > MAX_KEY_SET_BYTES {
            return Err("it is larger than 1 MiB".into());
        }
        text.extend_from_slice(&chunk);
    }
    KeySet::parse(&text)
}

/// Returns an error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}
