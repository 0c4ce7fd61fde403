//! `ostler token`: credentials of callers.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ostler_core::caller::Caller;
use ostler_core::fault::HumanDuration;
use serde::Serialize;

use crate::api::{TokenCount, TokensResponse};
use crate::audit::{self, AuditedAction};
use crate::cli::{TokenCommand, TokenCreateArgs};
use crate::client::{self, RequestFailure};
use crate::config_file::FoundConfig;
use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::invocation::command;
use crate::output::{self, Style, Tint, print_stderr};
use crate::text_table::{TableCell, TextTable};
use crate::time_text::{Zone, from_seconds};
use crate::token::store::{MAX_TOKENS, TokenStore};
use crate::token::{self, TokenBudget, TokenRecord};
use crate::{cli, config_file};

/// Role with every right as long as it has no entry in the config.
const LOCAL_ROLE: &str = "local";

pub(super) fn run(typed: TokenCommand, shared: &cli::GlobalOptions) -> Result<(), CommandFailure> {
    if shared.daemon.is_some() {
        return Err(CommandFailure::Usage {
            what: "tokens are kept in a file of the machine whose config they are for".into(),
            hint: Some("run the command there, without --daemon".into()),
        });
    }
    let found = config_file::find(shared.config.as_deref())?;
    let spot = DaemonInstance::for_config(found.file())?;
    match typed {
        TokenCommand::Create(new) => create(&new, &found, &spot, shared.zone()),
        TokenCommand::List { json } => list(json, &spot, shared.zone()),
        TokenCommand::Revoke { name } => revoke(&name, &found, &spot),
    }
}

/// Token in the output of `--json`.
#[derive(Serialize)]
struct TokenOutput<'a> {
    name: &'a str,
    role: &'a str,
    /// Present only at creation: it can't be shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    created: u64,
    expires: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expired: Option<bool>,
    /// Last use since the daemon started; null if it was not used, or none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<Option<u64>>,
    budget: Option<TokenBudgetOutput>,
}

#[derive(Serialize)]
struct TokenBudgetOutput {
    calls: u64,
    per: String,
}

impl<'a> TokenOutput<'a> {
    fn of(record: &'a TokenRecord) -> Self {
        let budget = record.budget.map(|budget| TokenBudgetOutput {
            calls: budget.calls,
            per: HumanDuration(budget.per()).to_string(),
        });
        Self {
            name: &record.name,
            role: &record.role,
            token: None,
            created: record.created,
            expires: record.expires,
            expired: None,
            last_used: None,
            budget,
        }
    }
}

fn create(
    new: &TokenCreateArgs,
    found: &FoundConfig,
    spot: &DaemonInstance,
    zone: Zone,
) -> Result<(), CommandFailure> {
    if new.role == Caller::operator().role() {
        return Err(CommandFailure::Usage {
            what: "`operator` is whoever runs the daemon, and no token can have that role".into(),
            hint: Some("take a role of the config".into()),
        });
    }
    refuse_to_overwrite(new)?;
    let fresh = token::create().map_err(CommandFailure::Machine)?;
    let created = now();
    let record = TokenRecord {
        name: new.name.clone(),
        role: new.role.clone(),
        id: fresh.id,
        sha256: fresh.sha256,
        created,
        expires: new.expires.map(|time| created.saturating_add(time.as_secs().max(1))),
        budget: new.budget,
    };
    let store = spot.token_store();
    change_tokens(&store, |tokens| add(tokens, record.clone()))?;
    if let Some(file) = &new.out {
        write(file, &fresh.text).inspect_err(|_| remove_unseen(&store, &record))?;
    }
    if !has_role(found, &new.role) {
        let role = &new.role;
        let may_use = if role == LOCAL_ROLE { "everything" } else { "nothing" };
        print_stderr(&format!(
            "warning: the config has no role `{role}`, so this token may use {may_use}\n  hint: add [roles.{role}] with \
             an `allow`"
        ));
    }
    notify_daemon(spot);
    let detail = format!("role `{}`", record.role);
    record_action(
        found,
        spot,
        &AuditedAction {
            action: "token-created",
            subject: &record.name,
            detail: &detail,
            ..AuditedAction::default()
        },
    );
    let shown = new.out.is_none().then_some(fresh.text.as_str());
    if new.json {
        return output::print_json(&TokenOutput { token: shown, ..TokenOutput::of(&record) });
    }
    let end = record.expires.map_or("until it is revoked".into(), |end| {
        format!("until {}", zone.format_minute(from_seconds(end)))
    });
    let (name, role) = (&record.name, &record.role);
    let Some(token) = shown else {
        let file = new.out.as_deref().unwrap_or(Path::new("")).display();
        print_stderr(&format!("token `{name}` of role `{role}`, good {end}, is in {file}"));
        return Ok(());
    };
    print_stderr(&format!(
        "token `{name}` of role `{role}`, good {end}; it is shown this once\n  use: Authorization: Bearer TOKEN"
    ));
    output::print(&format!("{token}\n"))
}

fn refuse_to_overwrite(new: &TokenCreateArgs) -> Result<(), CommandFailure> {
    match &new.out {
        // A dangling link would be replaced too.
        Some(file) if !new.force && file.symlink_metadata().is_ok() => Err(CommandFailure::Usage {
            what: format!("{} exists already, and no token was created", file.display()),
            hint: Some("name another file, or add --force to overwrite it".into()),
        }),
        _ => Ok(()),
    }
}

/// Writes a token into a file that only the user can read.
fn write(file: &Path, token: &str) -> Result<(), CommandFailure> {
    ostler_store::private_file::replace_file(file, format!("{token}\n").as_bytes())
        .map_err(|why| CommandFailure::Unwritable { file: file.to_owned(), why })
}

/// Removes a token that could not be written to its file.
fn remove_unseen(store: &TokenStore, record: &TokenRecord) {
    let removed = change_tokens(store, |tokens| {
        tokens.retain(|known| known.id != record.id);
        Ok(())
    });
    if removed.is_err() {
        let revoke = command(&format!("token revoke {}", record.name));
        print_stderr(&format!("warning: token `{}` was created; {revoke} removes it", record.name));
    }
}

fn add(tokens: &mut Vec<TokenRecord>, record: TokenRecord) -> Result<(), TokenChangeError> {
    let taken = |known: &TokenRecord| known.name == record.name;
    if tokens.iter().any(taken) {
        let what = format!("there is a token `{}` already", record.name);
        let revoke = command(&format!("token revoke {}", record.name));
        let hint = format!("take another name, or {revoke} first");
        return Err(CommandFailure::Usage { what, hint: Some(hint) }.into());
    }
    if tokens.len() >= MAX_TOKENS {
        let what = format!("there are {MAX_TOKENS} tokens already, and that is the most");
        let hint = "revoke some; for so many callers use [auth.jwt]".into();
        return Err(CommandFailure::Usage { what, hint: Some(hint) }.into());
    }
    // Ids are one of 2^48; a retry gets another.
    if tokens.iter().any(|known| known.id == record.id) {
        return Err(io::Error::other("the same id was drawn twice; try again").into());
    }
    tokens.push(record);
    Ok(())
}

fn revoke(name: &str, found: &FoundConfig, spot: &DaemonInstance) -> Result<(), CommandFailure> {
    change_tokens(&spot.token_store(), |tokens| {
        let before = tokens.len();
        tokens.retain(|known| known.name != name);
        if tokens.len() == before {
            Err(CommandFailure::UnknownToken(name.to_owned()).into())
        } else {
            Ok(())
        }
    })?;
    notify_daemon(spot);
    record_action(
        found,
        spot,
        &AuditedAction { action: "token-revoked", subject: name, ..AuditedAction::default() },
    );
    print_stderr(&format!("token `{name}` is good no more"));
    Ok(())
}

fn list(is_json: bool, spot: &DaemonInstance, zone: Zone) -> Result<(), CommandFailure> {
    let store = spot.token_store();
    let records =
        store.read().map_err(|why| CommandFailure::Tokens { file: store.file().to_owned(), why })?;
    let used = fetch_last_used(spot);
    // Without a daemon, the uses are those that the last one has written.
    let written = store.read_uses();
    let used_of = |record: &TokenRecord| {
        let told = used.as_ref().and_then(|used| used.tokens.iter().find(|used| used.name == record.name));
        told.map_or_else(|| written.get(&record.id).copied(), |told| told.last_used)
    };
    let now = now();
    let is_over = |record: &TokenRecord| record.expires.is_some_and(|end| now >= end);
    if is_json {
        let shown = |record| TokenOutput {
            expired: Some(is_over(record)),
            last_used: Some(used_of(record)),
            ..TokenOutput::of(record)
        };
        let tokens: Vec<TokenOutput<'_>> = records.iter().map(shown).collect();
        return output::print_json(&serde_json::json!({ "tokens": tokens }));
    }
    if records.is_empty() {
        let create = command("token create --name NAME --role ROLE");
        print_stderr(&format!("there are no tokens; {create} makes one"));
        return Ok(());
    }
    let date = |seconds: u64| zone.format_minute(from_seconds(seconds));
    let mut table = TextTable::new(&["NAME", "ROLE", "CREATED", "EXPIRES", "LAST USED", "BUDGET"]);
    for record in &records {
        let expires = match record.expires {
            None => TableCell::tinted("never", Tint::Faint),
            Some(end) if is_over(record) => TableCell::tinted(&format!("{} (over)", date(end)), Tint::Error),
            Some(end) => date(end).as_str().into(),
        };
        let last_used = used_of(record).map_or("-".into(), date);
        let budget =
            record.budget.map_or("-".into(), |it| format!("{}/{}", it.calls, HumanDuration(it.per())));
        table.row([
            record.name.as_str().into(),
            record.role.as_str().into(),
            date(record.created).as_str().into(),
            expires,
            TableCell::tinted(&last_used, Tint::Faint),
            budget.as_str().into(),
        ]);
    }
    output::print(&table.render(Style::stdout(), output::stdout_columns()))
}

/// Failure of a change of the tokens.
enum TokenChangeError {
    Refused(CommandFailure),
    Broken(io::Error),
}

impl From<CommandFailure> for TokenChangeError {
    fn from(failure: CommandFailure) -> Self {
        Self::Refused(failure)
    }
}

impl From<io::Error> for TokenChangeError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

fn change_tokens(
    store: &TokenStore,
    change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<(), TokenChangeError>,
) -> Result<(), CommandFailure> {
    store.update(change).map_err(|error| match error {
        TokenChangeError::Refused(failure) => failure,
        TokenChangeError::Broken(why) => CommandFailure::Tokens { file: store.file().to_owned(), why },
    })
}

/// Makes the daemon read the tokens at once. It detects the change by itself within a second, so a missing answer is
/// ignored.
fn notify_daemon(spot: &DaemonInstance) {
    let told: Option<Result<TokenCount, RequestFailure>> =
        client::with_running_daemon(spot, async |there| there.post("/api/v1/tokens/reload").await);
    if let Some(Err(trouble)) = told {
        let failure = CommandFailure::from(trouble);
        print_stderr(&format!(
            "warning: the daemon could not be told, and will see it within a second ({failure})"
        ));
    }
}

fn fetch_last_used(spot: &DaemonInstance) -> Option<TokensResponse> {
    client::with_running_daemon(spot, async |there| there.get("/api/v1/tokens").await)?.ok()
}

/// Returns whether the config has rules for a role. A config that can't be read has none here; another check reports
/// it.
fn has_role(found: &FoundConfig, role: &str) -> bool {
    let Some(file) = found.file() else { return false };
    let config = config_file::read(file.to_owned()).ok().and_then(|reading| reading.config);
    config.is_none_or(|config| config.roles.contains_key(role))
}

/// Records an action on a token in the audit.
fn record_action(found: &FoundConfig, spot: &DaemonInstance, note: &AuditedAction<'_>) {
    let reading = found.file().and_then(|file| config_file::read(file.to_owned()).ok());
    let config = reading.and_then(|reading| reading.config);
    audit::record_action(spot, &config.map(|config| config.audit).unwrap_or_default(), note);
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Parses `100/1h`.
pub(crate) fn read_budget(text: &str) -> Result<TokenBudget, String> {
    let wanted = || "a budget is calls per time, such as 100/1h".to_owned();
    let (calls, per) = text.split_once('/').ok_or_else(wanted)?;
    let calls = calls.trim().parse().map_err(|_| wanted())?;
    let per: Duration =
        ostler_core::config::duration::parse(per).map_err(|error| format!("{error}, such as 1h"))?;
    match u64::try_from(per.as_millis()) {
        Ok(per_ms) if per_ms > 0 => Ok(TokenBudget { calls, per_ms }),
        _ => Err(wanted()),
    }
}

/// Parses the name of a token or a role.
pub(crate) fn read_name(text: &str) -> Result<String, String> {
    match token::is_valid_name(text) {
        true => Ok(text.to_owned()),
        false => Err("names are made of letters, digits, `-` and `_`, at most 64 of them".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_calls_per_time() {
        assert_eq!(read_budget("100/1h"), Ok(TokenBudget { calls: 100, per_ms: 3_600_000 }));
        assert_eq!(read_budget("0/1s"), Ok(TokenBudget { calls: 0, per_ms: 1_000 }));
        for bad in ["", "100", "100/", "/1h", "-1/1h", "1/0s", "1.5/1h", "1/1"] {
            assert!(read_budget(bad).is_err(), "{bad}");
        }
    }
}
