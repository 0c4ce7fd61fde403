//! Query string of a URL, as far as the API needs one: server names and switches, which are never escaped.

/// Text after `?`.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryString<'a>(pub(super) &'a str);

impl<'a> QueryString<'a> {
    /// Returns the value of a key.
    pub(super) fn get(self, key: &str) -> Option<&'a str> {
        self.pairs().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns whether a switch is on: `follow`, `follow=true`, `follow=1`.
    pub(super) fn is_set(self, key: &str) -> bool {
        self.get(key).is_some_and(|value| matches!(value, "" | "true" | "1"))
    }

    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_on_when_they_are_named() {
        let query = QueryString("server=time&full&follow=false");
        assert_eq!(query.get("server"), Some("time"));
        assert!(query.is_set("full") && !query.is_set("follow") && !query.is_set("server"));
        assert_eq!(QueryString("").get("server"), None);
    }
}
