//! Lint of tool names that look alike.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

use super::{LintFinding, LintKind, LintLevel};
use crate::pins::word_diff::spell_out_deceptive;

/// Compares the tools of all servers, as pairs of server and tool. Names that look alike and differ raise an
/// alarm, also on one server. A name that two servers have is only a notice, since the server's name tells
/// their tools apart.
pub fn find_look_alikes<'n>(tools: impl IntoIterator<Item = (&'n str, &'n str)>) -> Vec<LintFinding> {
    let mut groups: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (server, tool) in tools {
        groups.entry(confusable_skeleton(tool)).or_default().push((server, tool));
    }
    let mut found = Vec::new();
    for group in groups.values_mut() {
        group.sort_unstable();
        group.dedup();
        found.extend(group.iter().enumerate().filter_map(|(index, one)| describe(*one, index, group)));
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found
}

/// Returns the finding about one name of a group that looks alike.
fn describe((server, tool): (&str, &str), index: usize, group: &[(&str, &str)]) -> Option<LintFinding> {
    let other = group.iter().find(|(_, other)| *other != tool);
    let twin = group[..index].iter().find(|(_, other)| *other == tool);
    let (level, kind, why) = if let Some((place, other)) = other {
        let other = spell_out_deceptive(other);
        // A difference in case alone is visible; letters of another script, digits for letters and the like
        // are not.
        let is_seen = other.to_lowercase() == tool.to_lowercase();
        let level = if is_seen { LintLevel::Notice } else { LintLevel::Alarm };
        (level, LintKind::LookAlike, format!("looks like `{other}` of server `{place}`"))
    } else if !tool.is_single_script() {
        (LintLevel::Alarm, LintKind::LookAlike, "mixes letters of several scripts".into())
    } else {
        let (place, _) = twin?;
        (LintLevel::Notice, LintKind::SameName, format!("server `{place}` has a tool of this name too"))
    };
    let (server, tool) = (server.to_owned(), spell_out_deceptive(tool));
    Some(LintFinding { server, excerpt: tool.clone(), tool, level, kind, pointer: "/name".into(), why })
}

/// Returns the skeleton of a name, in which look-alike characters are equal whatever their width and case.
fn confusable_skeleton(name: &str) -> String {
    let plain: String = name.nfkc().collect::<String>().to_lowercase();
    skeleton(&plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tools: &[(&str, &str)]) -> Vec<(LintLevel, LintKind, String)> {
        let found = find_look_alikes(tools.iter().copied());
        found.into_iter().map(|finding| (finding.level, finding.kind, finding.tool)).collect()
    }

    #[test]
    fn names_that_look_alike_raise_an_alarm() {
        for other in ["read_fi1e", "reаd_file", "ｒｅａｄ_ｆｉｌｅ", "rеаd_file"] {
            let levels: Vec<_> = found(&[("fs", "read_file"), ("evil", other)]);
            assert_eq!(levels.len(), 2, "{other}");
            assert!(
                levels
                    .iter()
                    .all(|(level, kind, _)| (*level, *kind) == (LintLevel::Alarm, LintKind::LookAlike))
            );
        }
        assert_eq!(found(&[("s", "sеnd")]), [(LintLevel::Alarm, LintKind::LookAlike, "sеnd".into())]);
    }

    #[test]
    fn names_that_can_be_told_apart_do_not() {
        assert_eq!(found(&[("a", "read_file"), ("b", "read_files"), ("b", "suche"), ("c", "поиск")]), []);
        assert_eq!(
            found(&[("a", "search"), ("b", "search")]),
            [(LintLevel::Notice, LintKind::SameName, "search".into())]
        );
        let capitals = found(&[("a", "readFile"), ("b", "readfile")]);
        assert!(capitals.iter().all(|(level, ..)| *level == LintLevel::Notice) && capitals.len() == 2);
    }
}
