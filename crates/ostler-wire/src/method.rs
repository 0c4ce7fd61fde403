//! Method names: a static text for each method of MCP, so that naming one allocates nothing.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// The modern request whose answer stays open as a stream.
pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";

/// Methods of both eras. Naming one of them needs no allocation.
const KNOWN_METHODS: [&str; 34] = [
    "tools/call",
    "tools/list",
    "notifications/progress",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "prompts/list",
    "completion/complete",
    "logging/setLevel",
    "server/discover",
    SUBSCRIPTIONS_LISTEN,
    "initialize",
    "ping",
    "tasks/get",
    "tasks/list",
    "tasks/update",
    "tasks/result",
    "tasks/cancel",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "notifications/message",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
    "notifications/tasks/status",
];

/// A method name: a static text for the methods of MCP, an owned one for all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodName(Cow<'static, str>);

impl MethodName {
    /// Returns the method's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for MethodName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for MethodName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for MethodName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for MethodName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl From<&str> for MethodName {
    fn from(text: &str) -> MethodName {
        match KNOWN_METHODS.iter().find(|known| **known == text) {
            Some(known) => MethodName(Cow::Borrowed(known)),
            None => MethodName(Cow::Owned(text.to_owned())),
        }
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_methods_cost_no_allocation() {
        assert!(matches!(MethodName::from("tools/call").0, Cow::Borrowed(_)));
        assert!(matches!(MethodName::from("vendor/thing").0, Cow::Owned(_)));
        assert_eq!(MethodName::from("vendor/thing"), "vendor/thing");
    }
}
