//! What rules of roles are asked about.

use std::fmt;

/// Words before a colon that say what kind of thing a subject is.
const KINDS: [&str; 4] = ["tool:", "prompt:", "resource:", "method:"];

/// What a caller wants of one server, as rules see it: `server/subject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    /// A tool: its bare name. One whose name begins like another kind of
    /// subject is asked about as `tool:NAME`, so that no server can name a
    /// tool into a rule that was written for its prompts.
    Tool(&'a str),
    /// A prompt: `prompt:NAME`.
    Prompt(&'a str),
    /// A resource or a template of such: `resource:URI`.
    Resource(&'a str),
    /// Anything else that is passed on: `method:METHOD`.
    Method(&'a str),
}

impl<'a> Subject<'a> {
    /// The subject that people write like this. What is no other kind is a tool.
    pub fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some(("tool", name)) => Self::Tool(name),
            Some(("prompt", name)) => Self::Prompt(name),
            Some(("resource", uri)) => Self::Resource(uri),
            Some(("method", method)) => Self::Method(method),
            _ => Self::Tool(text),
        }
    }

    /// The word that rules have before the name; empty for a tool with a
    /// name that can't be taken for anything else.
    pub fn prefix(&self) -> &'static str {
        match self {
            Self::Tool(name) if KINDS.iter().any(|kind| name.starts_with(kind)) => "tool:",
            Self::Tool(_) => "",
            Self::Prompt(_) => "prompt:",
            Self::Resource(_) => "resource:",
            Self::Method(_) => "method:",
        }
    }

    /// The name, URI or method.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Tool(name) | Self::Prompt(name) | Self::Resource(name) | Self::Method(name) => name,
        }
    }
}

/// As rules spell it.
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
