//! Credentials for a broker.

use std::path::{Path, PathBuf};

use ostler_core::config::{RelayConfig, RelayCredentials};
use ostler_relay::RelayName;
use ostler_relay::broker::nats::{Credentials, NatsOptions, Tls};
use ostler_relay::nats_config::host_inbox_prefix;

use crate::failure::CommandFailure;
use crate::{cli, config_file, environment};

/// Variable with a worker's password.
const PASSWORD_VARIABLE: &str = "OSTLER_NATS_PASSWORD";

/// Upper bound on a password file.
const MAX_PASSWORD_BYTES: u64 = 32 << 10;

/// Returns the options of a host, by its config.
pub(crate) fn host_options(relay: &RelayConfig, host: &RelayName) -> Result<NatsOptions, CommandFailure> {
    let credentials = match &relay.credentials {
        RelayCredentials::None => Credentials::None,
        RelayCredentials::Creds(file) => Credentials::Creds(file.clone()),
        RelayCredentials::Nkey(file) => Credentials::Nkey(file.clone()),
        RelayCredentials::Password { user, password } => {
            let password = environment::resolve(password).map_err(|why| CommandFailure::Relay {
                what: "the password of the relay is not known".into(),
                why: format!("`relay.password`: {why}"),
                hint: "set the variable or write the file that it refers to",
            })?;
            Credentials::Password { user: user.clone(), password: password.trim_end().to_owned() }
        }
    };
    let (cert, key) = relay.tls.identity.clone().unzip();
    Ok(NatsOptions {
        credentials,
        tls: tls(relay.tls.ca.clone(), cert, key),
        name: format!("ostler host {host}"),
        inbox_prefix: host_inbox_prefix(host),
        ..NatsOptions::new(relay.nats.clone())
    })
}

/// Returns the options of a worker, by its command line. Files must exist now: a misspelled path would otherwise be
/// waited for without end.
pub(crate) fn worker_options(
    nats: Vec<String>,
    login: &cli::BrokerLoginArgs,
    worker: &RelayName,
) -> Result<NatsOptions, CommandFailure> {
    let cli::BrokerLoginArgs { creds, nkey, user, password_file, ca, cert, key } = login;
    for file in [creds, nkey, ca, cert, key].into_iter().flatten() {
        std::fs::File::open(file).map_err(|error| unreadable(file, error.to_string()))?;
    }
    let credentials = match (creds, nkey, user) {
        (Some(file), ..) => Credentials::Creds(file.clone()),
        (_, Some(file), _) => Credentials::Nkey(file.clone()),
        (.., Some(user)) => {
            Credentials::Password { user: user.clone(), password: password(password_file.as_deref())? }
        }
        (None, None, None) => Credentials::None,
    };
    Ok(NatsOptions {
        credentials,
        tls: tls(ca.clone(), cert.clone(), key.clone()),
        name: format!("ostler worker {worker}"),
        inbox_prefix: format!("_INBOX_{worker}"),
        ..NatsOptions::new(nats)
    })
}

/// Returns the TLS options. Any of these files enables TLS.
fn tls(ca: Option<PathBuf>, cert: Option<PathBuf>, key: Option<PathBuf>) -> Tls {
    Tls { is_required: ca.is_some() || cert.is_some(), ca, cert, key }
}

fn password(file: Option<&Path>) -> Result<String, CommandFailure> {
    let text = match file {
        Some(file) => config_file::read_named_at_most(file, MAX_PASSWORD_BYTES)
            .map_err(|error| unreadable(file, error.to_string()))?,
        None => std::env::var(PASSWORD_VARIABLE).map_err(|_| CommandFailure::Usage {
            what: "--user goes with a password".into(),
            hint: Some(format!("name its file with --password-file, or set {PASSWORD_VARIABLE}")),
        })?,
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn unreadable(file: &Path, why: String) -> CommandFailure {
    CommandFailure::Unreadable {
        file: file.to_owned(),
        why,
        hint: "name a file that is there and can be read",
    }
}
