//! Patterns over names: `*` stands for any run of characters, `?` for any one.

/// Longest pattern; names it could match are far shorter.
const LONGEST: usize = 256;

/// Reason why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// An empty text.
    #[error("a pattern can't be empty")]
    Empty,
    /// Longer than any name.
    #[error("a pattern has at most {LONGEST} characters")]
    TooLong,
    /// A character that no name holds.
    #[error("a pattern can't contain spaces or control characters")]
    BadCharacter,
    /// A rule of a role that names no server.
    #[error("a rule of a role names server and tool, as in `server/tool`")]
    NoServer,
}

/// Checks a pattern over the names of one server's tools.
pub fn check(text: &str) -> Result<(), GlobError> {
    if text.is_empty() {
        return Err(GlobError::Empty);
    }
    if text.len() > LONGEST {
        return Err(GlobError::TooLong);
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(GlobError::BadCharacter);
    }
    Ok(())
}

/// Checks a rule of a role, a pattern over `server/tool`; `*` alone means everything.
pub fn check_rule(text: &str) -> Result<(), GlobError> {
    check(text)?;
    match text.split_once('/') {
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() => Ok(()),
        None if text == "*" => Ok(()),
        _ => Err(GlobError::NoServer),
    }
}

/// Returns the server a rule names; `None` if it names it by pattern.
pub(crate) fn server_of_rule(rule: &str) -> Option<&str> {
    let (server, _) = rule.split_once('/')?;
    (!server.contains(['*', '?'])).then_some(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_checked() {
        for good in ["*", "get_*", "*_time", "résumé", "a.b-c"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let table =
            [("", GlobError::Empty), ("a b", GlobError::BadCharacter), ("a\n", GlobError::BadCharacter)];
        for (bad, why) in table {
            assert_eq!(check(bad), Err(why), "{bad:?}");
        }
        assert_eq!(check(&"x".repeat(256)), Ok(()));
        assert_eq!(check(&"x".repeat(257)), Err(GlobError::TooLong));
    }

    #[test]
    fn rules_name_server_and_tool() {
        for good in ["*", "time/*", "git/git_log", "*/delete_*", "files/resource:file:///tmp/*"] {
            assert_eq!(check_rule(good), Ok(()), "{good}");
        }
        for bad in ["time", "time*", "/tool", "time/", "**"] {
            assert_eq!(check_rule(bad), Err(GlobError::NoServer), "{bad}");
        }
    }

    #[test]
    fn a_rule_tells_which_server_it_names() {
        assert_eq!(server_of_rule("time/*"), Some("time"));
        assert_eq!(server_of_rule("ti*/x"), None);
        assert_eq!(server_of_rule("*"), None);
    }
}
