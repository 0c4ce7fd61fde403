//! `[auth]`: authentication of callers.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::keys::section::section;
use crate::config::read::SectionReader;
use crate::config::values::secret_literals::quote;
use crate::loopback::is_loopback_authority;

section! {
    /// Authentication of callers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AuthConfig("auth", default) {
        /// True if callers on this machine without a credential are `local`; by default only if the daemon
        /// serves this machine alone.
        local: Option<bool> = flag;
        /// Issuer of accepted JSON web tokens, beside Ostler's own tokens.
        jwt: Option<JwtConfig> = section(JwtConfig);
    }
}

section! {
    /// Accepted JSON web tokens, and their claims about callers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JwtConfig("jwt", optional) {
        /// Required issuer of a token: its `iss`, to the letter.
        issuer: String = text(required "write issuer = \"https://id.example\", as its tokens have it");
        /// Required audience: one of these must be in a token's `aud`.
        audience: Vec<String> = text_or_texts(
            required "write audience = \"…\": a token for somebody else must not open this door"
        ) => audience;
        /// The issuer's keys: an https address, or a file relative to the config file.
        jwks: JwksLocation = text(
            required "write jwks = \"https://id.example/.well-known/jwks.json\"", else JwksLocation::File(PathBuf::new())
        ) => jwks;
        /// The claim that holds the role, a text or a list; dots lead into objects.
        role_claim: String = text("role");
        /// The claim that holds the caller's name; dots lead into objects.
        subject_claim: String = text("sub");
        /// Allowed difference between the clocks of the issuer and of this machine; at most 10m.
        leeway: Duration = duration(0.., "60s") => leeway;
        /// Accepted signature algorithms; none of them symmetric.
        algorithms: Vec<Algorithm> = texts(["RS256", "PS256", "ES256", "ES384", "EdDSA"], DEFAULT_ALGORITHMS.to_vec()) => algorithms;
        /// External address of the endpoints, such as https://tools.example; announced to clients without a
        /// token.
        resource: Option<String> = text => resource;
    }
}

/// Location of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksLocation {
    /// An address: `https`, or `http` of this machine.
    Url(String),
    /// A file, absolute.
    File(PathBuf),
}

/// A signature algorithm. None is symmetric: a verifier of such a token could also make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Returns its name in a token's header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the algorithm of that exact name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// Algorithms accepted by default.
const DEFAULT_ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa];

fn audience(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<String>> {
    let texts = reader.text_or_texts(key)?;
    if texts.is_empty() || texts.iter().any(|(text, _)| text.is_empty()) {
        let path = reader.key_path(key);
        let message = format!("`{path}` must name somebody");
        let hint = "write the name that tokens for this daemon have in `aud`";
        reader.context.error(reader.key_span(key), &path, message, hint);
        return None;
    }
    Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
}

fn jwks(reader: &SectionReader<'_>, key: &'static str) -> Option<JwksLocation> {
    let (text, node) = reader.text(key)?;
    let path = reader.key_path(key);
    let Some((scheme, rest)) = text.split_once("://") else {
        return reader.absolute(key, text, node).map(JwksLocation::File);
    };
    let is_good = match scheme {
        "https" => !rest.is_empty(),
        "http" => is_loopback_authority(rest.split(['/', '?', '#']).next().unwrap_or_default()),
        _ => false,
    };
    if !is_good {
        let message = format!("`{path}` wants an https address or a file, found {}", quote(text));
        let hint = "who can change the keys on their way can be everybody; http is for this machine only";
        reader.context.error(node.span, &path, message, hint);
        return None;
    }
    Some(JwksLocation::Url(text.to_owned()))
}

fn leeway(reader: &SectionReader<'_>, key: &'static str) -> Option<Duration> {
    const MOST: Duration = Duration::from_secs(600);
    let leeway = reader.duration(key)?;
    if leeway > MOST {
        let path = reader.key_path(key);
        let message = format!("`{path}` is at most 10m");
        reader.context.error(reader.key_span(key), &path, message, "set the clocks");
    }
    Some(leeway)
}

fn algorithms(reader: &SectionReader<'_>, key: &'static str) -> Option<Vec<Algorithm>> {
    let texts = reader.texts(key)?;
    let path = reader.key_path(key);
    if texts.is_empty() {
        let message = format!("`{path}` allows none");
        reader.context.error(reader.key_span(key), &path, message, "leave it out for the usual ones");
    }
    let mut found = Vec::new();
    for (text, node) in texts {
        match Algorithm::from_name(text) {
            Some(algorithm) => found.push(algorithm),
            None => {
                let message = format!("`{path}` can't hold {}", quote(text));
                let hint = if text.starts_with("HS") {
                    "with a shared secret, who can check tokens can make them; let the issuer sign with a key pair".into()
                } else if text.eq_ignore_ascii_case("none") {
                    "a token without a signature is anybody's".into()
                } else {
                    format!("known are {}", Algorithm::ALL.map(Algorithm::as_str).join(", "))
                };
                reader.context.error(node.span, &path, message, hint);
            }
        }
    }
    Some(found)
}

fn resource(reader: &SectionReader<'_>, key: &'static str) -> Option<Option<String>> {
    let (text, node) = reader.text(key)?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_base = rest.is_some_and(|rest| {
        let host = rest.trim_end_matches('/');
        !host.is_empty()
            && !host.contains(|c: char| "/?#\"\\".contains(c) || c.is_whitespace() || c.is_control())
    });
    if !is_base {
        let path = reader.key_path(key);
        let message = format!("`{path}` wants a scheme and a host, found {}", quote(text));
        let hint = "write it like \"https://tools.example\", without a path";
        reader.context.error(node.span, &path, message, hint);
        return None;
    }
    Some(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigFormat, NoSource};

    const GOOD: &str =
        "[auth.jwt]\nissuer = \"https://id.example\"\naudience = \"ostler\"\njwks = \"keys.json\"\n";

    fn parse(text: &str) -> Result<AuthConfig, Vec<String>> {
        Config::parse("/etc/ostler.toml".as_ref(), text, ConfigFormat::Toml, &NoSource)
            .map(|config| config.auth)
            .map_err(|report| report.problems.into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn without_a_word_loopback_is_local_and_no_jwt_is_taken() {
        assert_eq!(parse(""), Ok(AuthConfig::default()));
        assert_eq!(parse("[auth]\nlocal = false\n").unwrap().local, Some(false));
    }

    #[test]
    fn the_usual_is_filled_in() {
        let jwt = parse(GOOD).unwrap().jwt.unwrap();
        assert_eq!(jwt.audience, ["ostler"]);
        assert_eq!(jwt.jwks, JwksLocation::File("/etc/keys.json".into()));
        assert_eq!((jwt.role_claim.as_str(), jwt.subject_claim.as_str()), ("role", "sub"));
        assert_eq!(jwt.leeway, Duration::from_secs(60));
        assert_eq!(jwt.algorithms, DEFAULT_ALGORITHMS);
    }

    #[test]
    fn what_could_let_a_stranger_in_is_an_error() {
        for bad in [
            "algorithms = [\"HS256\"]",
            "algorithms = [\"none\"]",
            "algorithms = []",
            "algorithms = [\"rs256\"]",
            "leeway = \"1h\"",
            "resource = \"tools.example\"",
            "resource = \"https://tools.example/mcp\"",
            "resource = \"https://\"",
            "resource = \"https://tools example\"",
            "resource = \"https://tools\\u0007example\"",
        ] {
            assert_eq!(parse(&format!("{GOOD}{bad}\n")).unwrap_err().len(), 1, "{bad}");
        }
        for bad in [
            "http://id.example/jwks",
            "http://localhost.evil/",
            "http://127.0.0.1:80@evil/",
            "ftp://localhost/",
            "https://",
        ] {
            let text = GOOD.replace("keys.json", bad);
            assert_eq!(parse(&text).unwrap_err().len(), 1, "{bad}");
        }
        for good in [
            "http://127.0.0.1:80/jwks",
            "http://localhost/x",
            "http://[::1]:9/",
            "http://[::1]/",
            "https://id.example/",
        ] {
            assert!(parse(&GOOD.replace("keys.json", good)).is_ok(), "{good}");
        }
        assert_eq!(parse(&GOOD.replace("\"ostler\"", "[]")).unwrap_err().len(), 1);
        assert_eq!(parse("[auth.jwt]\n").unwrap_err().len(), 3);
    }

    #[test]
    fn what_is_set_is_taken() {
        let set = "algorithms = [\"ES256\", \"EdDSA\"]\nleeway = \"10m\"\nresource = \"https://tools.example:8443/\"\n";
        let jwt = parse(&format!("{GOOD}{set}")).unwrap().jwt.unwrap();
        assert_eq!(jwt.algorithms, [Algorithm::Es256, Algorithm::EdDsa]);
        assert_eq!(jwt.leeway, Duration::from_secs(600));
        assert_eq!(jwt.resource.as_deref(), Some("https://tools.example:8443/"));
    }
}
