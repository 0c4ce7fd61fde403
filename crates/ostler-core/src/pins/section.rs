//! Sections of a lock file: the kinds of text that a server gives to clients.

use serde::{Deserialize, Serialize};

/// A kind of definition that is pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockSection {
    /// `instructions` of the server, as one item named [`INSTRUCTIONS`].
    Instructions,
    /// Tools, by name.
    Tools,
    /// Prompts, by name.
    Prompts,
    /// Listed resources, by URI.
    Resources,
    /// Resource templates, by URI template.
    Templates,
}

/// Name of the only item of [`LockSection::Instructions`].
pub const INSTRUCTIONS: &str = "instructions";

impl LockSection {
    /// All sections, in the order of the lock file.
    pub const ALL: [Self; 5] =
        [Self::Instructions, Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// Returns the key in the lock file and in JSON output.
    pub fn key(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "templates",
        }
    }

    /// Returns the noun for one item.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "template",
        }
    }

    /// Returns the member of a definition that repeats the item's name.
    pub(super) fn name_member(self) -> &'static str {
        match self {
            Self::Instructions => "",
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }
}

/// Wraps `instructions` as a definition.
pub fn instructions_definition(text: &str) -> Vec<u8> {
    serde_json::json!({ INSTRUCTIONS: text }).to_string().into_bytes()
}
