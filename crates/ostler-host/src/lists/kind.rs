//! Kinds of items that servers list.

use ostler_core::pins::LockSection;
use ostler_core::spec::ServerSpec;
use ostler_wire::DefinitionKind;

use crate::upstream::ServerNotification;

/// Kind of the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Tools, by name.
    Tools,
    /// Prompts, by name.
    Prompts,
    /// Resources, by URI.
    Resources,
    /// Templates of resources, by their URI template.
    Templates,
}

impl Kind {
    /// All kinds, in the order of their indexes.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// Returns the method that lists them.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Returns the member of the result that holds the list.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Returns the member of an item that names it.
    pub fn name_member(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns whether an item can have this name. Rules are not asked about other names.
    pub(crate) fn is_valid_name(self, name: &str) -> bool {
        match self {
            Self::Tools | Self::Prompts => ostler_wire::is_valid_name(name),
            Self::Resources | Self::Templates => ostler_wire::is_valid_uri(name),
        }
    }

    /// Returns the capability that servers with such a list declare.
    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// Returns the capability of servers that announce changes of the list.
    pub(crate) fn list_changed_capability(self) -> &'static str {
        match self {
            Self::Tools => "tools.listChanged",
            Self::Prompts => "prompts.listChanged",
            Self::Resources | Self::Templates => "resources.listChanged",
        }
    }

    /// Returns the notification for a changed list.
    pub(crate) fn list_changed(self) -> ServerNotification {
        match self {
            Self::Tools => ServerNotification::ToolsChanged,
            Self::Prompts => ServerNotification::PromptsChanged,
            Self::Resources | Self::Templates => ServerNotification::ResourcesChanged,
        }
    }

    /// Returns the noun for one item, for people.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }

    /// Returns the section of a lock file that pins it.
    pub fn section(self) -> LockSection {
        match self {
            Self::Tools => LockSection::Tools,
            Self::Prompts => LockSection::Prompts,
            Self::Resources => LockSection::Resources,
            Self::Templates => LockSection::Templates,
        }
    }

    /// Returns the kind of its definition in the schema of MCP.
    pub(super) fn definition_kind(self) -> DefinitionKind {
        match self {
            Self::Tools => DefinitionKind::Tool,
            Self::Prompts => DefinitionKind::Prompt,
            Self::Resources => DefinitionKind::Resource,
            Self::Templates => DefinitionKind::ResourceTemplate,
        }
    }

    /// Returns the bound on items kept of a server's list.
    pub(crate) fn max_items(self, spec: &ServerSpec) -> usize {
        match self {
            Self::Tools => spec.lists.tools,
            Self::Prompts => spec.lists.prompts,
            Self::Resources => spec.lists.resources,
            Self::Templates => spec.lists.templates,
        }
    }

    /// Returns its index in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}
