//! References in values: `${env:NAME}`, `${env:NAME:-default}`, `${file:path}`, `${workspace}`; `$${` stands
//! for `${` itself.
//!
//! A [`Template`] is checked when the config is read. The host resolves it when a server is started, with
//! access to the environment and to files.

use std::fmt;
use std::path::PathBuf;

/// The reference to the working directory of a caller.
pub const WORKSPACE: &str = "${workspace}";

/// A value outside the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateReference {
    /// An environment variable of the host.
    Env(String),
    /// The content of a file.
    File(PathBuf),
    /// The caller's working directory.
    Workspace,
}

impl fmt::Display for TemplateReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "${{env:{name}}}"),
            Self::File(path) => write!(f, "${{file:{}}}", path.display()),
            Self::Workspace => f.write_str(WORKSPACE),
        }
    }
}

/// A text with references in it. Its `Display` is the text it is parsed from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    parts: Vec<TemplateSegment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateSegment {
    Literal(String),
    Reference { reference: TemplateReference, default: Option<String> },
}

/// Reason why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `${` without `}`.
    #[error("a reference begins with `${{` and has no `}}`")]
    Unclosed,
    /// Neither `env:` nor `file:`.
    #[error("`${{{0}}}` is not a reference")]
    Unknown(String),
    /// VS Code asks the user for these; a daemon has no user to ask.
    #[error("`${{input:{0}}}` asks a person, and a host has nobody to ask")]
    Input(String),
    /// Another reference that only VS Code resolves.
    #[error("`${{{0}}}` is known to VS Code alone")]
    Client(String),
    /// A variable's name that is empty or not made of letters, digits and `_`.
    #[error("{0:?} is not the name of an environment variable")]
    BadVariable(String),
    /// `${file:}`.
    #[error("`${{file:}}` names no file")]
    NoFile,
}

impl TemplateError {
    /// Returns the replacement for the invalid reference.
    pub fn hint(&self) -> String {
        match self {
            Self::Unclosed => "close it with `}`, or write `$${` for a literal `${`".into(),
            Self::Unknown(name) if is_variable(name) => {
                format!("write `${{env:{name}}}` for the environment variable")
            }
            Self::Unknown(_) | Self::BadVariable(_) | Self::NoFile => {
                "write `${env:NAME}` or `${file:path}`; `$${` stands for a literal `${`".into()
            }
            Self::Input(name) => {
                let name = variable_name_for(name);
                format!("set an environment variable and write `${{env:{name}}}`, or write `${{file:path}}`")
            }
            Self::Client(_) => "write the value itself, `${env:NAME}` or `${file:path}`".into(),
        }
    }
}

/// A reference that can't be resolved, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct ResolveError {
    /// The reference.
    pub reference: TemplateReference,
    /// The end of the sentence that begins with the reference.
    pub why: String,
}

impl ResolveError {
    fn message(&self) -> String {
        match &self.reference {
            TemplateReference::Workspace => format!("the directory of `${{workspaceFolder}}` {}", self.why),
            TemplateReference::Env(name) => format!("the environment variable `{name}` {}", self.why),
            TemplateReference::File(path) => format!("the file {} {}", path.display(), self.why),
        }
    }
}

impl Template {
    /// Parses a text; only `env:`, `file:` and `workspace` are references.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_with(text, &|_| None)
    }

    /// Parses a text like [`Template::parse`]; `plain` resolves a `${name}` without a colon.
    pub(crate) fn parse_with(
        text: &str,
        plain: &dyn Fn(&str) -> Option<TemplateSegment>,
    ) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                template.push(TemplateSegment::Literal(format!("{before}${{")));
                rest = &from[2..];
                continue;
            }
            template.push(TemplateSegment::Literal(before.to_owned()));
            let (body, tail) = from[2..].split_once('}').ok_or(TemplateError::Unclosed)?;
            template.push(parse_reference(body, plain)?);
            rest = tail;
        }
        template.push(TemplateSegment::Literal(rest.to_owned()));
        Ok(template)
    }

    /// Creates a text without references.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: vec![TemplateSegment::Literal(text.to_owned())] }
    }

    /// Replaces every reference by the result of `lookup`, or by its default.
    pub fn resolve(
        &self,
        lookup: &dyn Fn(&TemplateReference) -> Result<String, String>,
    ) -> Result<String, ResolveError> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplateSegment::Literal(literal) => text.push_str(literal),
                TemplateSegment::Reference { reference, default } => match (lookup(reference), default) {
                    (Ok(found), _) => text.push_str(&found),
                    (Err(_), Some(default)) => text.push_str(default),
                    (Err(why), None) => return Err(ResolveError { reference: reference.clone(), why }),
                },
            }
        }
        Ok(text)
    }

    /// Returns the references, in order.
    pub fn references(&self) -> impl Iterator<Item = &TemplateReference> {
        self.parts.iter().filter_map(|part| match part {
            TemplateSegment::Literal(_) => None,
            TemplateSegment::Reference { reference, .. } => Some(reference),
        })
    }

    /// Returns whether it holds any reference.
    pub fn has_references(&self) -> bool {
        self.references().next().is_some()
    }

    /// Returns the file references, to be made absolute.
    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.parts.iter_mut().filter_map(|part| match part {
            TemplateSegment::Reference { reference: TemplateReference::File(path), .. } => Some(path),
            _ => None,
        })
    }

    /// Replaces references to the workspace by a directory that is already known.
    pub(crate) fn with_workspace(self, folder: &str) -> Self {
        let mut template = Self::default();
        for part in self.parts {
            template.push(match part {
                TemplateSegment::Reference { reference: TemplateReference::Workspace, .. } => {
                    TemplateSegment::Literal(folder.to_owned())
                }
                part => part,
            });
        }
        template
    }

    /// Appends a part. Adjacent literals are joined, so that equal texts are equal templates.
    fn push(&mut self, part: TemplateSegment) {
        match (self.parts.last_mut(), part) {
            (_, TemplateSegment::Literal(text)) if text.is_empty() => {}
            (Some(TemplateSegment::Literal(last)), TemplateSegment::Literal(text)) => last.push_str(&text),
            (_, part) => self.parts.push(part),
        }
    }
}

fn parse_reference(
    body: &str,
    plain: &dyn Fn(&str) -> Option<TemplateSegment>,
) -> Result<TemplateSegment, TemplateError> {
    match body.split_once(':') {
        Some(("env", rest)) => parse_variable(rest),
        Some(("file", "")) => Err(TemplateError::NoFile),
        Some(("file", path)) => {
            Ok(TemplateSegment::Reference { reference: TemplateReference::File(path.into()), default: None })
        }
        Some(("input", name)) => Err(TemplateError::Input(clip(name))),
        Some(("command" | "config" | "extensionInstallFolder", _)) => Err(TemplateError::Client(clip(body))),
        _ => parse_workspace(body).or_else(|| plain(body)).ok_or_else(|| TemplateError::Unknown(clip(body))),
    }
}

/// Parses `${workspace}`, and the name that other clients have for it.
fn parse_workspace(body: &str) -> Option<TemplateSegment> {
    matches!(body, "workspace" | "workspaceFolder")
        .then_some(TemplateSegment::Reference { reference: TemplateReference::Workspace, default: None })
}

fn parse_variable(body: &str) -> Result<TemplateSegment, TemplateError> {
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (body, None),
    };
    if is_variable(name) {
        Ok(TemplateSegment::Reference { reference: TemplateReference::Env(name.to_owned()), default })
    } else {
        Err(TemplateError::BadVariable(clip(name)))
    }
}

/// Parses `${NAME}` and `${NAME:-default}` as other clients write them.
pub(crate) fn parse_bare_variable(body: &str) -> Option<TemplateSegment> {
    parse_variable(body).ok()
}

/// Shortens a text of a file that a message quotes.
fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(48).collect()
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns a variable's name for an input of VS Code: `github-token` becomes `GITHUB_TOKEN`.
fn variable_name_for(input: &str) -> String {
    let name: String =
        input.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if is_variable(&name) { name } else { "NAME".into() }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                TemplateSegment::Literal(text) => f.write_str(&text.replace("${", "$${"))?,
                TemplateSegment::Reference {
                    reference: TemplateReference::Env(name),
                    default: Some(default),
                } => {
                    write!(f, "${{env:{name}:-{default}}}")?;
                }
                TemplateSegment::Reference { reference, .. } => write!(f, "{reference}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(reference: &TemplateReference) -> Result<String, String> {
        match reference {
            TemplateReference::Env(name) if name == "HOME" => Ok("/home/ann".into()),
            TemplateReference::Env(_) => Err("is not set".into()),
            TemplateReference::File(path) => Ok(format!("<{}>", path.display())),
            TemplateReference::Workspace => Ok("/home/ann/project".into()),
        }
    }

    #[test]
    fn references_are_resolved_where_they_stand() {
        let table = [
            ("plain", "plain"),
            ("", ""),
            ("a$b $5 }", "a$b $5 }"),
            ("${env:HOME}/x", "/home/ann/x"),
            ("Bearer ${file:/s/t}!", "Bearer </s/t>!"),
            ("${env:NOPE:-d:-e}", "d:-e"),
            ("${env:HOME:-d}", "/home/ann"),
            ("${workspace}/a:${workspaceFolder}", "/home/ann/project/a:/home/ann/project"),
            ("$${workspace}", "${workspace}"),
            ("$${env:HOME}", "${env:HOME}"),
            ("$$${env:HOME}", "$${env:HOME}"),
        ];
        for (text, want) in table {
            assert_eq!(Template::parse(text).unwrap().resolve(&lookup).unwrap(), want, "{text:?}");
        }
    }

    #[test]
    fn an_unresolved_reference_is_named() {
        let error = Template::parse("x${env:NOPE}").unwrap().resolve(&lookup).unwrap_err();
        assert_eq!(error.to_string(), "the environment variable `NOPE` is not set");
    }

    #[test]
    fn what_is_no_reference_says_what_to_write() {
        let table = [
            ("${HOME}", "`${HOME}` is not a reference", "write `${env:HOME}` for the environment variable"),
            (
                "${env:HOME",
                "a reference begins with `${` and has no `}`",
                "close it with `}`, or write `$${` for a literal `${`",
            ),
            (
                "${input:github-token}",
                "`${input:github-token}` asks a person, and a host has nobody to ask",
                "set an environment variable and write `${env:GITHUB_TOKEN}`, or write `${file:path}`",
            ),
            (
                "${env:}",
                "\"\" is not the name of an environment variable",
                "write `${env:NAME}` or `${file:path}`; `$${` stands for a literal `${`",
            ),
            (
                "${1X y}",
                "`${1X y}` is not a reference",
                "write `${env:NAME}` or `${file:path}`; `$${` stands for a literal `${`",
            ),
            (
                "${env:1X}",
                "\"1X\" is not the name of an environment variable",
                "write `${env:NAME}` or `${file:path}`; `$${` stands for a literal `${`",
            ),
            (
                "${file:}",
                "`${file:}` names no file",
                "write `${env:NAME}` or `${file:path}`; `$${` stands for a literal `${`",
            ),
        ];
        for (text, message, hint) in table {
            let error = Template::parse(text).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint().as_str()), (message, hint));
        }
    }

    #[test]
    fn a_template_has_no_empty_parts() {
        assert_eq!(Template::parse("").unwrap(), Template::default());
        assert_eq!(Template::parse("${env:_X}").unwrap().parts.len(), 1);
        assert_eq!(Template::parse("a$${b").unwrap(), Template::literal("a${b"));
    }

    #[test]
    fn other_clients_variables_become_env_references() {
        let template = Template::parse_with("${HOME}/${X:-y}", &parse_bare_variable).unwrap();
        assert_eq!(template.to_string(), "${env:HOME}/${env:X:-y}");
    }

    proptest! {
        #[test]
        fn a_template_shows_the_text_it_came_from(text in "([a$ ]|\\$\\{|\\$\\$\\{|\\}|env:|file:|:-|B){0,12}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()).unwrap(), template.clone());
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
