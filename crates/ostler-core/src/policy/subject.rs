//! Subjects of the rules of roles.

use std::fmt;

/// Prefixes that name the kind of a subject.
const KINDS: [&str; 4] = ["tool:", "prompt:", "resource:", "method:"];

/// An item of one server as rules spell it: `server/subject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    /// A tool: its bare name. A name with the prefix of another kind is written `tool:NAME`, so that no
    /// server can place a tool under a rule for its prompts.
    Tool(&'a str),
    /// A prompt: `prompt:NAME`.
    Prompt(&'a str),
    /// A resource or a resource template: `resource:URI`.
    Resource(&'a str),
    /// Any other forwarded method: `method:METHOD`.
    Method(&'a str),
}

impl<'a> Subject<'a> {
    /// Parses the subject in a person's spelling. A text without the prefix of another kind is a tool.
    pub fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some(("tool", name)) => Self::Tool(name),
            Some(("prompt", name)) => Self::Prompt(name),
            Some(("resource", uri)) => Self::Resource(uri),
            Some(("method", method)) => Self::Method(method),
            _ => Self::Tool(text),
        }
    }

    /// Returns the prefix in rules; empty for a tool whose name is unambiguous.
    pub fn prefix(&self) -> &'static str {
        match self {
            Self::Tool(name) if KINDS.iter().any(|kind| name.starts_with(kind)) => "tool:",
            Self::Tool(_) => "",
            Self::Prompt(_) => "prompt:",
            Self::Resource(_) => "resource:",
            Self::Method(_) => "method:",
        }
    }

    /// Returns the name, URI or method.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Tool(name) | Self::Prompt(name) | Self::Resource(name) | Self::Method(name) => name,
        }
    }
}

/// Writes the subject as rules spell it.
impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix())?;
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_spelled_as_rules_spell_them() {
        let table = [
            (Subject::Tool("get_time"), "get_time"),
            (Subject::Tool("a:b"), "a:b"),
            (Subject::Tool("prompt:x"), "tool:prompt:x"),
            (Subject::Tool("resource:file:///etc"), "tool:resource:file:///etc"),
            (Subject::Tool("method:tasks/list"), "tool:method:tasks/list"),
            (Subject::Tool("tool:x"), "tool:tool:x"),
            (Subject::Prompt("review"), "prompt:review"),
            (Subject::Resource("file:///a"), "resource:file:///a"),
            (Subject::Method("vendor/do"), "method:vendor/do"),
        ];
        for (subject, spelled) in table {
            assert_eq!(subject.to_string(), spelled);
            assert_eq!(Subject::parse(spelled), subject, "{spelled}");
        }
    }

    #[test]
    fn no_tool_is_spelled_like_anything_else() {
        for name in ["prompt:x", "resource:x", "method:x", "tool:prompt:x"] {
            let tool = Subject::Tool(name).to_string();
            for other in
                [Subject::Prompt(name), Subject::Resource("x"), Subject::Method("x"), Subject::Prompt("x")]
            {
                assert_ne!(tool, other.to_string());
            }
        }
    }
}
