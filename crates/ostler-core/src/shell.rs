//! Quoting for shell commands that messages show: a word that a shell would split or expand is quoted.

use crate::error::needs_escape;

/// Returns whether every shell reads a word as it is written. Zsh replaces a leading `=`: `=ls` is the path
/// of a program there.
pub fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('=')
        && word.chars().all(|c| c.is_alphanumeric() || "/._-+@%,:=".contains(c))
}

/// Returns a word quoted for a shell, on one line.
pub fn quote(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str(r"'\''"),
            c if needs_escape(c) => quoted.extend(c.escape_default()),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_not_read_as_one_word_is_quoted() {
        let table = [
            ("ostler.toml", "ostler.toml"),
            ("/home/ann/é_1.toml", "/home/ann/é_1.toml"),
            ("my config.toml", "'my config.toml'"),
            ("it's.toml", r"'it'\''s.toml'"),
            ("~x", "'~x'"),
            ("=ls", "'=ls'"),
            ("a=b", "a=b"),
            ("$(rm).toml", "'$(rm).toml'"),
            ("a;b`c`", "'a;b`c`'"),
            ("a\nb", r"'a\nb'"),
            ("", "''"),
        ];
        for (word, text) in table {
            assert_eq!(quote(word), text);
        }
    }
}
