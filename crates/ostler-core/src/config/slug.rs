//! Names of other clients' servers, made to fit Ostler's grammar.

use std::collections::BTreeSet;

use crate::catalog::slug;
use crate::name::{MAX_LEN, ServerName};

/// The slug, numbered if it is already taken: `time`, `time-2`, `time-3`.
pub(crate) fn free_slug(text: &str, taken: &BTreeSet<ServerName>) -> Option<ServerName> {
    let name = slug(text)?;
    if !taken.contains(&name) {
        return Some(name);
    }
    // As many numbers as names, and one name has no number: so one is free.
    (2_u32..).take(taken.len()).find_map(|number| {
        let suffix = format!("-{number}");
        let stem = name.as_str().get(..MAX_LEN - suffix.len()).unwrap_or(name.as_str());
        let name = ServerName::new(&format!("{}{suffix}", stem.trim_end_matches(['-', '_']))).ok()?;
        (!taken.contains(&name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_slugs_are_numbered() {
        let taken: BTreeSet<_> =
            ["time", "time-2"].iter().map(|name| ServerName::new(name).unwrap()).collect();
        assert_eq!(free_slug("Time", &taken).unwrap().as_str(), "time-3");
        let long = BTreeSet::from([ServerName::new(&"x".repeat(32)).unwrap()]);
        assert_eq!(free_slug(&"X".repeat(40), &long).unwrap().as_str(), format!("{}-2", "x".repeat(30)));
    }
}
