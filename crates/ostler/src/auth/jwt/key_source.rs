//! Where the keys of an issuer come from.

use std::path::Path;
use std::time::Duration;

use ostler_core::config::JwksLocation;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Url};

use super::key_set::KeySet;
use crate::config_file;
use crate::file_stamp::FileStamps;

/// How long the issuer may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest set of keys.
const MAX_KEY_SET_BYTES: usize = 1 << 20;
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 3;

/// The source, and what is kept between looks at it.
#[derive(Debug)]
pub(super) enum KeySource {
    /// Made with the first look: reading the machine's certificates takes time.
    Url(String, Option<Client>),
    /// As it was when it was last read.
    File(std::path::PathBuf, FileStamps),
}

impl KeySource {
    pub(super) fn new(jwks: &JwksLocation) -> Self {
        match jwks {
            JwksLocation::Url(url) => Self::Url(url.clone(), None),
            JwksLocation::File(file) => Self::File(file.clone(), FileStamps::default()),
        }
    }

    /// The keys as they are now; `None` if they are the same as before.
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
                // One that can't be read is read again when it has changed.
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

/// The keys in a file.
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
        // What is on this machine needs no proxy, whatever the environment says.
        let builder = if is_secure { builder } else { builder.no_proxy() };
        builder.build()
    });
    match made.await {
        Ok(made) => made.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Follows a redirect within the origin: the config names who is trusted.
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

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}
