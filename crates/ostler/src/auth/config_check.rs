//! Checks of credentials in `ostler check`: the problems that a daemon would report.

use std::time::{SystemTime, UNIX_EPOCH};

use ostler_core::config::{Config, JwksLocation, Problem};
use ostler_core::loopback::is_loopback;

use super::jwt;
use crate::invocation::command;
use crate::token::TokenRecord;
use crate::token::store::TokenStore;

/// Warns about keys that can't be read, and about an address that the daemon would refuse to listen on. Never contacts
/// a key server.
pub(crate) fn check_credentials(config: &Config, tokens: Option<&TokenStore>) -> Vec<Problem> {
    let unreadable = match &config.auth.jwt {
        Some(jwt) => match &jwt.jwks {
            JwksLocation::File(file) => jwt::check_file(file).err().map(|why| (file, why)),
            JwksLocation::Url(_) => None,
        },
        None => None,
    };
    let keys = unreadable.map(|(file, why)| {
        let message = format!("the keys in {} can't be read: {why}", file.display());
        warn(config, "auth.jwt.jwks", message, "until they can be, no JSON web token is taken")
    });
    let is_far = !is_loopback(config.listen.ip());
    let is_closed = is_far && config.auth.jwt.is_none() && tokens.is_none_or(has_no_valid_token);
    let address = is_closed.then(|| {
        let message = format!(
            "{} can be reached from other machines, and no credentials are set up, so `ostler serve` refuses it",
            config.listen
        );
        let create = command("token create --name NAME --role ROLE");
        let hint = format!("make a token with {create}, or set up [auth.jwt]");
        warn(config, "listen", message, &hint)
    });
    keys.into_iter().chain(address).collect()
}

/// Returns whether no token is valid now. Tokens that can't be read may be.
fn has_no_valid_token(tokens: &TokenStore) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let is_good = |record: &TokenRecord| record.expires.is_none_or(|end| now < end);
    tokens.read().is_ok_and(|records| !records.iter().any(is_good))
}

fn warn(config: &Config, path: &str, message: String, hint: &str) -> Problem {
    Problem::warning(config.origin_of_key(path), path, message, hint)
}
