//! Names that a person takes for each other.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

use super::{Kind, Level, Suspicion};
use crate::pins::words::reveal;

/// Looks over the tools of all servers, as pairs of server and tool. Names that look alike and are not the same
/// raise an alarm, also on one server; a name that two servers have is only mentioned, since their tools are told
/// apart by the server's name.
pub fn look_alikes<'n>(tools: impl IntoIterator<Item = (&'n str, &'n str)>) -> Vec<Suspicion> {
    let mut groups: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (server, tool) in tools {
        groups.entry(look(tool)).or_default().push((server, tool));
    }
    let mut found = Vec::new();
    for group in groups.values_mut() {
        group.sort_unstable();
        group.dedup();
        found.extend(group.iter().enumerate().filter_map(|(index, one)| about(*one, index, group)));
    }
    found.sort_by_key(|suspicion| std::cmp::Reverse(suspicion.level));
    found
}

/// What is to be said about one name of a group that looks alike.
fn about((server, tool): (&str, &str), index: usize, group: &[(&str, &str)]) -> Option<Suspicion> {
    let other = group.iter().find(|(_, other)| *other != tool);
    let twin = group[..index].iter().find(|(_, other)| *other == tool);
    let (level, kind, why) = if let Some((place, other)) = other {
        let other = reveal(other);
        // Capitals alone are seen; letters of another script, digits for letters and the like are not.
        let is_seen = other.to_lowercase() == tool.to_lowercase();
        let level = if is_seen { Level::Notice } else { Level::Alarm };
        (level, Kind::LookAlike, format!("looks like `{other}` of server `{place}`"))
    } else if !tool.is_single_script() {
        (Level::Alarm, Kind::LookAlike, "mixes letters of several scripts".into())
    } else {
        let (place, _) = twin?;
        (Level::Notice, Kind::SameName, format!("server `{place}` has a tool of this name too"))
    };
    let (server, tool) = (server.to_owned(), reveal(tool));
    Some(Suspicion { server, excerpt: tool.clone(), tool, level, kind, pointer: "/name".into(), why })
}

/// What a name looks like, whatever its width and capitals.
fn look(name: &str) -> String {
    let plain: String = name.nfkc().collect::<String>().to_lowercase();
    skeleton(&plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tools: &[(&str, &str)]) -> Vec<(Level, Kind, String)> {
        let found = look_alikes(tools.iter().copied());
        found.into_iter().map(|suspicion| (suspicion.level, suspicion.kind, suspicion.tool)).collect()
    }

    #[test]
    fn names_that_look_alike_raise_an_alarm() {
        for other in ["read_fi1e", "reаd_file", "ｒｅａｄ_ｆｉｌｅ", "rеаd_file"] {
            let levels: Vec<_> = found(&[("fs", "read_file"), ("evil", other)]);
            assert_eq!(levels.len(), 2, "{other}");
            assert!(levels.iter().all(|(level, kind, _)| (*level, *kind) == (Level::Alarm, Kind::LookAlike)));
        }
        assert_eq!(found(&[("s", "sеnd")]), [(Level::Alarm, Kind::LookAlike, "sеnd".into())]);
    }

    #[test]
    fn names_that_can_be_told_apart_do_not() {
        assert_eq!(found(&[("a", "read_file"), ("b", "read_files"), ("b", "suche"), ("c", "поиск")]), []);
        assert_eq!(
            found(&[("a", "search"), ("b", "search")]),
            [(Level::Notice, Kind::SameName, "search".into())]
        );
        let capitals = found(&[("a", "readFile"), ("b", "readfile")]);
        assert!(capitals.iter().all(|(level, ..)| *level == Level::Notice) && capitals.len() == 2);
    }
}
