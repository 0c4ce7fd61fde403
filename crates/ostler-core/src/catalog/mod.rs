//! Names under which things can be called.
//!
//! All servers together expose their tools as `server__tool`. Those names are
//! made here and looked up in a [`Table`]; none is ever taken apart again, so
//! it does not matter what characters a tool's own name holds.

mod resources;
mod suggest;
mod tool_names;
pub mod uri_template;

use sha2::{Digest, Sha256};

pub use self::resources::{Claimants, ResourceTable, ServerClaims, ShadowedUri};
pub use self::suggest::{nearest, slug};
pub use self::tool_names::ToolNameTable;
use crate::server_name::ServerName;

/// The longest exposed name, in bytes: clients hand names to models whose
/// interfaces refuse longer ones.
pub const MAX_EXPOSED: usize = 64;

/// Hex digits of the hash in a shortened name. Eight tell all tools of a server
/// apart in practice; the table lengthens the hash where they do not.
const SHORT_HASH: usize = 8;

/// The name under which a tool is exposed: `server__tool`, shortened with a
/// hash of the whole when it is longer than [`MAX_EXPOSED`].
///
/// Characters outside `[A-Za-z0-9_.-]` are kept: some clients take them, a
/// replacement would be one more name for people to know, and no replacement
/// could be told from a tool that is really called so.
pub fn exposed_name(server: &ServerName, tool: &str) -> String {
    let plain = plain_name(server, tool);
    if plain.len() <= MAX_EXPOSED { plain } else { hashed_name(server, tool, SHORT_HASH) }
}

fn plain_name(server: &ServerName, tool: &str) -> String {
    format!("{server}__{tool}")
}

/// The beginning of the plain name, as much as fits, and `digits` of its hash.
fn hashed_name(server: &ServerName, tool: &str, digits: usize) -> String {
    let mut name = plain_name(server, tool);
    let room = MAX_EXPOSED - 1 - digits;
    name.truncate(name.floor_char_boundary(room));
    name.push('_');
    name.push_str(&hash_of(server, tool)[..digits]);
    name
}

/// In hex. The parts are separated by a byte that no server name holds: `a__` and
/// `_b` must not hash like `a_` and `__b`.
fn hash_of(server: &ServerName, tool: &str) -> String {
    let digest = Sha256::new().chain_update(server.as_str()).chain_update([0]).chain_update(tool).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time() -> ServerName {
        ServerName::new("time").unwrap()
    }

    #[test]
    fn names_that_fit_are_kept_as_they_are() {
        assert_eq!(exposed_name(&time(), "get_current_time"), "time__get_current_time");
        assert_eq!(exposed_name(&time(), "föö/bär baz"), "time__föö/bär baz");
        let longest = "x".repeat(MAX_EXPOSED - "time__".len());
        assert_eq!(exposed_name(&time(), &longest), format!("time__{longest}"));
    }

    #[test]
    fn longer_names_end_in_a_hash_that_never_changes() {
        insta::assert_snapshot!(
            exposed_name(&time(), &"x".repeat(59)),
            @"time__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_8904847b"
        );
        assert_ne!(exposed_name(&time(), &"x".repeat(59)), exposed_name(&time(), &"x".repeat(60)));
    }

    proptest! {
        #[test]
        fn an_exposed_name_fits_and_begins_with_its_server(tool in "\\PC{0,100}") {
            let name = exposed_name(&time(), &tool);
            prop_assert!(name.len() <= MAX_EXPOSED);
            prop_assert!(name.starts_with("time__"));
            prop_assert_eq!(name == format!("time__{tool}"), tool.len() + 6 <= MAX_EXPOSED);
        }
    }
}
