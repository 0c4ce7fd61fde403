//! Context of one file being read: its text, its dialect, and the directories its paths are relative to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

use super::node::ConfigNode;
use super::source_text::{SourceLocation, SourceSpan, SourceText};
use crate::config::problem::{self, ProblemLog, Severity};
use crate::config::values::reference::{
    Template, TemplateError, TemplateReference, TemplateSegment, parse_bare_variable,
};
use crate::config::values::secret_literals;
use crate::server_name::ServerName;

/// Locations of keys in the files, by path.
pub(crate) type KeyLocations = BTreeMap<String, SourceLocation>;

/// Keys whose location is used once the whole config is known.
const LOCATED_KEYS: [&str; 11] = [
    "pool.max_processes",
    "pins.mode",
    "auth.jwt.jwks",
    "listen",
    "relay",
    "relay.creds",
    "relay.nkey",
    "relay.password",
    "relay.ca",
    "relay.cert",
    "relay.key",
];

/// Returns whether the location of a key is kept.
fn is_location_kept(path: &str) -> bool {
    LOCATED_KEYS.contains(&path)
        || path.strip_prefix("servers.").is_some_and(|rest| rest.ends_with(".isolation"))
}

/// Owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Ostler's own: unknown keys are errors.
    Own,
    /// Another client's: it works unchanged, unknown keys included.
    Client,
}

/// A reference that only another client can resolve, so that its server can't be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnresolvedReference {
    pub(crate) cause: String,
    pub(crate) remedy: String,
}

/// One file being read.
#[derive(Clone)]
pub(crate) struct FileContext<'a> {
    pub(crate) document: &'a SourceText<'a>,
    pub(crate) dialect: Dialect,
    /// The directory of relative paths.
    pub(crate) base: PathBuf,
    /// The directory that `~` stands for.
    pub(crate) home: Option<PathBuf>,
    /// The directory of Ostler's user-wide config.
    pub(crate) config_dir: Option<PathBuf>,
    pub(crate) log: &'a ProblemLog,
    pub(crate) key_locations: &'a RefCell<KeyLocations>,
    /// The inputs that another client would ask its user for: descriptions by id.
    pub(crate) inputs: BTreeMap<String, String>,
    /// The servers that rules can name, once they are known.
    pub(crate) servers: RefCell<Vec<ServerName>>,
    /// True if the current server has a process per workspace: `${workspace}` is then resolved at its start.
    /// Otherwise it is the file's directory.
    pub(crate) is_per_workspace: Cell<bool>,
    /// True if the current server has been warned of a `${workspace}` that is no project: one warning is
    /// enough.
    pub(crate) is_workspace_warned: Cell<bool>,
    /// The first unresolvable reference of the current server.
    pub(crate) unresolved: RefCell<Option<UnresolvedReference>>,
}

impl<'a> FileContext<'a> {
    /// Creates the context of a text that came from no file, in Ostler's own spelling.
    pub(crate) fn new(
        document: &'a SourceText<'a>,
        log: &'a ProblemLog,
        key_locations: &'a RefCell<KeyLocations>,
    ) -> Self {
        Self {
            document,
            dialect: Dialect::Own,
            base: PathBuf::new(),
            home: None,
            config_dir: None,
            log,
            key_locations,
            inputs: BTreeMap::new(),
            servers: RefCell::default(),
            is_per_workspace: Cell::default(),
            is_workspace_warned: Cell::default(),
            unresolved: RefCell::default(),
        }
    }

    pub(crate) fn error(&self, at: SourceSpan, path: &str, message: impl Display, hint: impl Into<Hint>) {
        self.report(Severity::Error, at, path, message, hint.into());
    }

    pub(crate) fn warn(&self, at: SourceSpan, path: &str, message: impl Display, hint: impl Into<Hint>) {
        self.report(Severity::Warning, at, path, message, hint.into());
    }

    /// Reports an error in Ostler's own file, a warning in another client's, which must work unchanged.
    pub(crate) fn error_or_warn(
        &self,
        at: SourceSpan,
        path: &str,
        message: impl Display,
        hint: impl Into<Hint>,
    ) {
        let severity = match self.dialect {
            Dialect::Own => Severity::Error,
            Dialect::Client => Severity::Warning,
        };
        self.report(severity, at, path, message, hint.into());
    }

    fn report(&self, severity: Severity, at: SourceSpan, path: &str, message: impl Display, hint: Hint) {
        self.log.add(severity, || {
            let hint = hint.0.as_deref().map(secret_literals::redact_tokens);
            problem::problem_at(
                severity,
                self.location(at),
                &secret_literals::redact_tokens(path),
                secret_literals::redact_tokens(&message.to_string()),
                hint,
            )
        });
    }

    pub(crate) fn line(&self, at: SourceSpan) -> usize {
        self.document.line(at.start)
    }

    pub(crate) fn location(&self, at: SourceSpan) -> SourceLocation {
        self.document.location(at.start)
    }

    /// Records the location of a key, if later problems may point at it.
    pub(crate) fn record_location(&self, path: &str, at: SourceSpan) {
        if is_location_kept(path) {
            self.key_locations.borrow_mut().insert(path.to_owned(), self.location(at));
        }
    }

    /// Records the location of a rule of a role, for explanations.
    pub(crate) fn record_rule_location(&self, path: &str, at: SourceSpan) {
        self.key_locations.borrow_mut().insert(path.to_owned(), self.location(at));
    }

    /// Resolves a path against the file's directory, or against the home directory after `~`.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, String> {
        let mut components = path.components();
        let joined = if components.next() == Some(Component::Normal("~".as_ref())) {
            let home = self.home.as_deref().ok_or("`~` has no meaning: the home directory is not known")?;
            home.join(components.as_path())
        } else {
            self.base.join(path)
        };
        Ok(joined.components().collect())
    }

    /// Checks a text with references and returns it in the spelling that [`Template::parse`] reads.
    pub(crate) fn template(&self, node: &ConfigNode, path: &str, text: &str) -> Option<Template> {
        let parsed = match self.dialect {
            Dialect::Own => Template::parse(text),
            Dialect::Client => Template::parse_with(text, &|body| self.bare_reference(body)),
        };
        let parsed =
            parsed.map(|template| match self.is_per_workspace.get() || self.base.as_os_str().is_empty() {
                true => template,
                false => {
                    self.check_workspace(node, path, &template);
                    template.with_workspace(&self.base.to_string_lossy())
                }
            });
        match parsed {
            Ok(template) => self.with_absolute_files(node, path, template),
            Err(error @ (TemplateError::Input(_) | TemplateError::Client(_)))
                if self.dialect == Dialect::Client =>
            {
                self.set_unresolved(node, path, &error);
                None
            }
            Err(error @ TemplateError::Input(_)) => {
                self.error(node.span, path, format!("`{path}`: {error}"), error.hint());
                None
            }
            Err(error) => {
                self.error_or_warn(node.span, path, format!("`{path}`: {error}"), error.hint());
                Some(Template::literal(text))
            }
        }
    }

    /// Warns of a `${workspace}` that would be a settings directory for every client.
    fn check_workspace(&self, node: &ConfigNode, path: &str, template: &Template) {
        let is_used = template.references().any(|reference| *reference == TemplateReference::Workspace);
        if !is_used || !self.is_user_wide() || self.is_workspace_warned.replace(true) {
            return;
        }
        let message = format!(
            "`${{workspaceFolder}}` in `{path}` is {} for every client: the folder of this file, which is no project's",
            self.base.display()
        );
        let isolation = match self.dialect {
            Dialect::Own => "isolation = \"workspace\"",
            Dialect::Client => "\"isolation\": \"workspace\"",
        };
        let hint =
            format!("add {isolation} to the server to have the directory of each client, or write a path");
        self.warn(node.span, path, message, hint);
    }

    /// Returns whether the file is a user's or the machine's settings and belongs to no project: it lies in
    /// the home directory itself, in a hidden directory there, in Ostler's own directory or in `/etc`.
    fn is_user_wide(&self) -> bool {
        let in_home = self.home.as_deref().and_then(|home| self.base.strip_prefix(home).ok());
        let is_hidden = |rest: &Path| {
            let first = rest.components().next();
            first.is_none_or(|first| first.as_os_str().as_encoded_bytes().starts_with(b"."))
        };
        let is_settings = self.config_dir.as_deref().is_some_and(|settings| self.base.starts_with(settings));
        is_settings || in_home.is_some_and(is_hidden) || self.base.starts_with("/etc")
    }

    /// Warns of a reference that only its client resolves; the server is not run.
    fn set_unresolved(&self, node: &ConfigNode, path: &str, error: &TemplateError) {
        let described = match error {
            TemplateError::Input(id) => self.inputs.get(id).filter(|text| !text.is_empty()),
            _ => None,
        };
        let described =
            described.map(|text| format!(" ({})", secret_literals::quote(text))).unwrap_or_default();
        let (cause, remedy) = (format!("`{path}`: {error}{described}"), error.hint());
        let message = format!("{cause}; this server is not run, the others are");
        self.warn(node.span, path, message, remedy.clone());
        let SourceLocation { file, line, .. } = self.location(node.span);
        let cause = secret_literals::redact_tokens(&format!("{}:{line}: {cause}", file.display()));
        self.unresolved.borrow_mut().get_or_insert(UnresolvedReference { cause, remedy });
    }

    fn with_absolute_files(&self, node: &ConfigNode, path: &str, mut template: Template) -> Option<Template> {
        for file in template.files_mut() {
            match self.absolute(file) {
                Ok(absolute) if absolute.to_string_lossy().contains('}') => {
                    self.error(node.span, path, "the path of a `${file:}` reference can't contain `}`", None);
                    return None;
                }
                Ok(absolute) => *file = absolute,
                Err(why) => {
                    self.error(node.span, path, why, None);
                    return None;
                }
            }
        }
        Some(template)
    }

    /// Returns the meaning of `${name}` in other clients' files.
    fn bare_reference(&self, body: &str) -> Option<TemplateSegment> {
        match body {
            "userHome" => {
                self.home.as_ref().map(|home| TemplateSegment::Literal(home.to_string_lossy().into_owned()))
            }
            _ => parse_bare_variable(body),
        }
    }
}

/// An optional hint, from a text or from nothing.
pub(crate) struct Hint(Option<String>);

impl From<Option<String>> for Hint {
    fn from(hint: Option<String>) -> Self {
        Self(hint)
    }
}

impl From<String> for Hint {
    fn from(hint: String) -> Self {
        Self(Some(hint))
    }
}

impl From<&str> for Hint {
    fn from(hint: &str) -> Self {
        Self(Some(hint.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_are_asked_for_have_their_place_remembered() {
        for noted in ["listen", "pins.mode", "servers.any.isolation"] {
            assert!(is_location_kept(noted), "{noted}");
        }
        for other in ["watch", "pins", "servers.any.command", "servers.any", "servers.any.card"] {
            assert!(!is_location_kept(other), "{other}");
        }
    }
}
