//! Definitions that the fixture lists, read once from `catalog.json`.

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::Deserialize;

/// The definitions, as they are listed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FixtureCatalog {
    pub(crate) tools: Vec<Tool>,
    /// Listed only while the list of tools is changed.
    pub(crate) extra_tool: Tool,
    pub(crate) prompts: Vec<Prompt>,
    /// Listed only while the list of prompts is changed.
    pub(crate) extra_prompt: Prompt,
    pub(crate) resources: Vec<Resource>,
    pub(crate) resource_templates: Vec<ResourceTemplate>,
}

impl FixtureCatalog {
    pub(crate) fn read() -> Result<Self, serde_json::Error> {
        serde_json::from_str(include_str!("catalog.json"))
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        let all = self.tools.iter().chain([&self.extra_tool]);
        all.into_iter().find(|tool| tool.name == name)
    }
}
