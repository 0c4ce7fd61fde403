//! Listings of one server.

use ostler_host::{CallError, Caller, Host, Kind, ListWait, Scope, ServerListing, ServerName};

/// Lists what a caller may use of one server; fails where no list is known.
///
/// # Panics
///
/// If the name is none of a server.
pub async fn list_one(
    host: &Host,
    caller: &Caller,
    server: &str,
    kind: Kind,
    patience: impl Into<ListWait>,
) -> Result<ServerListing, CallError> {
    let scope = Scope::Server(ServerName::new(server).unwrap_or_else(|error| panic!("{server}: {error}")));
    let listing = host.list(caller, &scope, kind, patience).await.pop();
    listing.unwrap_or_else(|| panic!("a scope of one server has one listing")).require_known()
}
