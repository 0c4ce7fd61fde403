//! Faults of HTTP: error statuses and broken transfers.

use std::io;
use std::time::Duration;

use ostler_core::fault::{
    CertificateFault, ConnectFailure, ConnectFault, Delivery, Fault, FaultKind, PermanentCause,
};
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Error, StatusCode};

use super::client_builder::{UnknownHost, chain};

/// Upper bound on the pause that a server may ask for. One that asks for more is retried after an hour; it may have
/// come back long before.
const MAX_PAUSE: Duration = Duration::from_secs(3_600);
/// Lower bound on the pause: a server that asks for one is not retried at once.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The pause for a server that gives none, or an unusable one.
const USUAL_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of a server's message that go into an error.
const WORDS: usize = 200;

/// Returns the fault of a request that got no response.
pub(crate) fn request_fault(error: Error) -> Fault {
    // The rest of an address may hold a secret.
    let place =
        error.url().and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
    let error = error.without_url();
    match error.is_connect() || error.is_builder() {
        true => Fault::not_sent(match lasting_tls_error(&error) {
            Some(rustls::Error::InvalidMessage(_)) => FaultKind::from(PermanentCause::NoTls),
            Some(tls) => FaultKind::from(PermanentCause::Certificate(certificate_fault(tls))),
            None => {
                let why = connect_fault(&error);
                FaultKind::Connect(Box::new(ConnectFailure {
                    authority: place.unwrap_or_else(|| "its address".into()),
                    why,
                }))
            }
        }),
        false => Fault::unknown(FaultKind::Transfer(chain(&error))),
    }
}

/// Classifies a failed connection by the types of its causes.
fn connect_fault(error: &Error) -> ConnectFault {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut is_silent = error.is_timeout();
    while let Some(cause) = next {
        if cause.is::<UnknownHost>() {
            return ConnectFault::UnknownHost;
        }
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return ConnectFault::Refused,
            Some(
                io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable,
            ) => is_silent = true,
            _ => {}
        }
        next = cause.source();
    }
    if is_silent { ConnectFault::NoResponse } else { ConnectFault::Other(innermost(error)) }
}

fn certificate_fault(error: &rustls::Error) -> CertificateFault {
    use rustls::CertificateError as C;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            C::UnknownIssuer | C::BadSignature => CertificateFault::UnknownIssuer,
            C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. } => {
                CertificateFault::Expired
            }
            C::NotValidForName | C::NotValidForNameContext { .. } => CertificateFault::WrongHost,
            // A self-signed one is compared with every known authority, and the error describes the difference from
            // the last one.
            C::Other(_) | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                CertificateFault::UnknownIssuer
            }
            other => CertificateFault::Other(other.to_string()),
        },
        _ => CertificateFault::Other(error.to_string()),
    }
}

/// Returns the lasting reason for which no TLS connection can be made with this endpoint, if any. A connection that
/// breaks during the TLS handshake is none.
fn lasting_tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let io = cause.downcast_ref::<io::Error>();
        // The error inside of one of the system is not among its sources.
        let inner = io.and_then(io::Error::get_ref).map(|inner| inner as &(dyn std::error::Error + 'static));
        let tls = inner.unwrap_or(cause).downcast_ref::<rustls::Error>();
        if let Some(tls) = tls {
            return Some(tls).filter(|tls| is_lasting(tls));
        }
        next = inner.or_else(|| cause.source());
    }
    None
}

/// Returns the text of the first cause: the outer ones name parts of the HTTP library.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn is_lasting(error: &rustls::Error) -> bool {
    use rustls::Error as E;
    matches!(
        error,
        E::InvalidCertificate(_)
            | E::NoCertificatesPresented
            | E::UnsupportedNameType
            | E::PeerIncompatible(_)
            // A server that speaks plain HTTP, for example.
            | E::InvalidMessage(_)
    )
}

/// Returns the lasting failure that a fault of the handshake shows, if any.
pub(crate) fn handshake_fault_kind(kind: FaultKind) -> FaultKind {
    match kind {
        // Not yet, too early and too many requests are temporary.
        FaultKind::Status { code, text }
            if (300..500).contains(&code) && !matches!(code, 408 | 425 | 429) =>
        {
            FaultKind::from(PermanentCause::NoEndpoint { code, text })
        }
        FaultKind::ContentType(kind) => FaultKind::from(PermanentCause::ContentType(kind)),
        FaultKind::Malformed(why) => FaultKind::from(PermanentCause::NotMcp(why)),
        kind => kind,
    }
}

/// Returns the fault of a body that can't be read on.
pub(crate) fn body_fault_kind(error: Error) -> FaultKind {
    let error = error.without_url();
    match error.is_decode() && !is_cut_off(&error) {
        true => FaultKind::Malformed(chain(&error)),
        false => FaultKind::Transfer(chain(&error)),
    }
}

/// Returns whether the transfer failed, not the decompression: both appear as decoding errors, and only the first has
/// a connection error inside.
fn is_cut_off(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let io = cause.downcast_ref::<io::Error>();
        if cause.is::<Error>() || io.is_some_and(|io| io.kind() != io::ErrorKind::InvalidData) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Returns the fault of a response that failed during reading. An unusable response counts as answered all the same.
pub(crate) fn reading_fault(kind: FaultKind) -> Fault {
    match kind {
        FaultKind::Malformed(_) | FaultKind::ContentType(_) | FaultKind::Oversize(_) => {
            Fault { delivery: Delivery::Answered, kind }
        }
        kind => Fault::unknown(kind),
    }
}

/// Returns the fault of a status with a fixed meaning, with any body.
pub(crate) fn auth_or_pause(status: StatusCode, headers: &HeaderMap) -> Option<FaultKind> {
    let code = status.as_u16();
    let paused = || {
        let wait = retry_after(headers).unwrap_or(USUAL_PAUSE).clamp(MIN_PAUSE, MAX_PAUSE);
        Some(FaultKind::RetryAfter { code, wait })
    };
    match code {
        401 | 403 => {
            let challenge = headers.get(WWW_AUTHENTICATE).map(|value| short_text(value.as_bytes()));
            Some(FaultKind::NeedsAuth { code, challenge: challenge.unwrap_or_default() })
        }
        // Loop Detected.
        508 => Some(FaultKind::from(PermanentCause::Loop)),
        429 => paused(),
        503 if headers.contains_key(RETRY_AFTER) => paused(),
        _ => None,
    }
}

/// Returns the fault of an error status. A 5xx may come from a server that has executed the request, or from a proxy
/// that has lost its response.
pub(crate) fn status_fault(status: StatusCode, body: &[u8]) -> Fault {
    let kind = FaultKind::Status { code: status.as_u16(), text: short_text(body) };
    match status.is_server_error() {
        true => Fault::unknown(kind),
        false => Fault::rejected(kind),
    }
}

/// Returns the pause of `Retry-After`, in seconds or up to a date. A date is compared with the response's own, so
/// that no two clocks need to agree; a response without one gives no pause.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text| httpdate::parse_http_date(text).ok();
    let (until, now) = (date(asked)?, date(text(DATE)?)?);
    Some(until.duration_since(now).unwrap_or_default())
}

/// Returns a server's message for a person: one short line, and nothing of a web page.
fn short_text(text: &[u8]) -> String {
    let text = text.trim_ascii();
    if text.starts_with(b"<") {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * WORDS)]);
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = line.take(WORDS).collect();
    if text.chars().count() > WORDS {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header =
            |(name, value): &(&'static str, &'static str)| (name.parse().unwrap(), value.parse().unwrap());
        pairs.iter().map(header).collect()
    }

    /// Makes the headers of a pause up to a date, sent at 07:26:30.
    fn dated(until: &'static str) -> HeaderMap {
        headers(&[("retry-after", until), ("date", "Wed, 21 Oct 2026 07:26:30 GMT")])
    }

    #[test]
    fn each_status_has_its_meaning() {
        let status = |code| StatusCode::from_u16(code).unwrap();
        let pause = |code, seconds| Some(FaultKind::RetryAfter { code, wait: Duration::from_secs(seconds) });
        let auth = |code, text: &str| Some(FaultKind::NeedsAuth { code, challenge: text.into() });
        let table = [
            (401, headers(&[("www-authenticate", "Bearer realm=\"x\"")]), auth(401, "Bearer realm=\"x\"")),
            (403, headers(&[]), auth(403, "")),
            (429, headers(&[("retry-after", "7")]), pause(429, 7)),
            (429, headers(&[]), pause(429, 5)),
            (503, headers(&[("retry-after", "7")]), pause(503, 7)),
            (503, headers(&[("retry-after", "999999999")]), pause(503, 3_600)),
            (429, headers(&[("retry-after", "99999999999999999999999")]), pause(429, 5)),
            (429, dated("Wed, 21 Oct 2026 07:28:00 GMT"), pause(429, 90)),
            (503, dated("Wed, 21 Oct 2026 07:28:00 GMT"), pause(503, 90)),
            (503, dated("Wednesday, 21-Oct-26 07:28:00 GMT"), pause(503, 90)),
            (503, dated("Thu, 22 Oct 2026 07:28:00 GMT"), pause(503, 3_600)),
            (503, dated("Wed, 21 Oct 2026 07:00:00 GMT"), pause(503, 1)),
            (503, dated("tomorrow"), pause(503, 5)),
            (429, headers(&[("retry-after", "0")]), pause(429, 1)),
            (429, headers(&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]), pause(429, 5)),
            (503, headers(&[]), None),
            (500, headers(&[("retry-after", "7")]), None),
            (404, headers(&[]), None),
        ];
        for (code, headers, expected) in table {
            assert_eq!(auth_or_pause(status(code), &headers), expected, "{code} {headers:?}");
        }
        assert_eq!(status_fault(status(404), b"nope").delivery, Delivery::Rejected);
        assert_eq!(status_fault(status(502), b"<html>").to_string(), "the server answered HTTP 502");
        assert_eq!(status_fault(status(500), b"no\ndb").to_string(), "the server answered HTTP 500: no db");
        assert_eq!(status_fault(status(502), b"").delivery, Delivery::Unknown);
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(short_text("ä".repeat(500).as_bytes()).chars().count(), WORDS + 1);
    }
}
