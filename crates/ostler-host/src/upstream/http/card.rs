//! Fetching a server card: one GET, with credentials for the server's own origin alone.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use ostler_core::card::{self, MAX_BYTES, MEDIA_TYPE};
use ostler_core::fault::{FaultKind, PermanentCause};
use reqwest::Url;
use reqwest::header::{AGE, CACHE_CONTROL};

use super::connect::{HttpConnector, make_client};
use super::endpoint_client::EndpointClient;
use crate::loop_detection::LoopDetector;

/// Fetches the card at an address, or at its usual path below the server's own. Returns its text and its time to
/// live, if any.
pub(crate) async fn fetch_card(
    own: Option<&HttpConnector>,
    at: Option<&str>,
    via: &Arc<LoopDetector>,
) -> Result<(String, Option<Duration>), FaultKind> {
    let config = |why: String| FaultKind::from(PermanentCause::Config(why));
    let at = at.map(|at| Url::parse(at).map_err(|error| config(format!("`card` is no address: {error}"))));
    let at = at.transpose()?;
    let own = match own {
        Some(own) => Some(own.endpoint_client(None).await?),
        None => None,
    };
    let road = match (own, at) {
        (Some(own), None) => {
            let url = default_card_url(&own.url);
            own.with_url(url)
        }
        (Some(own), Some(at)) if at.origin() == own.url.origin() => own.with_url(at),
        (_, Some(at)) => {
            let client = make_client(at.clone()).await.map_err(config)?;
            EndpointClient::new(client, at, HeaderMap::new(), (0, Arc::clone(via)))
        }
        (None, None) => return Err(config("there is no address for a card".into())),
    };
    let (headers, body) = road.get_document(MEDIA_TYPE, MAX_BYTES).await?;
    let text =
        String::from_utf8(body.into()).map_err(|_| FaultKind::Malformed("it is not UTF-8 text".into()))?;
    Ok((text, remaining_max_age(&headers)))
}

/// Returns the address of the card of an endpoint. Its query stays: it may be a credential.
fn default_card_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let path = format!("{}/{}", url.path().trim_end_matches('/'), card::PATH);
    url.set_path(&path);
    url
}

/// Returns the remaining time to live of a response.
fn remaining_max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
    let left = card::cache_ttl(values)?.saturating_sub(Duration::from_secs(age));
    Some(left).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_place_is_below_the_endpoint() {
        let table = [
            ("https://e.example/mcp", "https://e.example/mcp/server-card"),
            ("https://e.example/mcp/", "https://e.example/mcp/server-card"),
            ("https://e.example", "https://e.example/server-card"),
            ("https://e.example/a/mcp?key=1", "https://e.example/a/mcp/server-card?key=1"),
        ];
        for (endpoint, expected) in table {
            assert_eq!(default_card_url(&endpoint.parse().unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn the_age_of_a_response_counts() {
        let life = |pairs: &[(&'static str, &'static str)]| {
            let each = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            super::remaining_max_age(&each.collect()).map(|life| life.as_secs())
        };
        assert_eq!(life(&[]), Some(300));
        assert_eq!(life(&[("cache-control", "max-age=60"), ("age", "20")]), Some(40));
        assert_eq!(life(&[("cache-control", "max-age=60"), ("age", "60")]), None);
        assert_eq!(life(&[("cache-control", "no-store")]), None);
    }
}
