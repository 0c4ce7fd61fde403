//! Problems of a config: their collection and their text (location, problem, hint).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::read::SourceLocation;

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The config is not used.
    Error,
    /// The config is used; a person should read this.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One problem of a config, or a remark about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// The file; empty if the config came from none.
    pub file: PathBuf,
    /// From 1; 0 without a location.
    pub line: u32,
    /// From 1, in characters; 0 without a location.
    pub column: u32,
    /// The key in Ostler's own spelling, such as `servers.time.keep_alive`.
    pub path: String,
    /// The problem. Never holds a literal that looks like a secret.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
    /// The line itself; absent without a location or if it may hold a secret.
    #[serde(skip)]
    pub excerpt: Option<Excerpt>,
}

impl Problem {
    /// Creates a warning about a key that begins on a line of a file, if it came from one.
    pub fn warning(
        origin: Option<(&Path, u32)>,
        path: impl Into<String>,
        message: String,
        hint: impl Into<String>,
    ) -> Self {
        let (file, line) = origin.unwrap_or((Path::new(""), 0));
        Self {
            severity: Severity::Warning,
            file: file.to_owned(),
            line,
            column: u32::from(line > 0),
            path: path.into(),
            message,
            hint: Some(hint.into()),
            excerpt: None,
        }
    }

    /// Returns whether the config can't be used because of this.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The part of a line around a problem, safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// At most a terminal line of text, without control characters except tabs.
    pub text: String,
    /// Number of characters of `text` before the one pointed at.
    pub before: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.as_os_str().is_empty() {
            write!(f, "{}:", self.file.display())?;
            if self.line > 0 {
                write!(f, "{}:{}:", self.line, self.column)?;
            }
            f.write_str(" ")?;
        }
        write!(f, "{}: {}", self.severity, self.message)?;
        if let Some(excerpt) = &self.excerpt {
            // Tabs stay tabs, so that the caret is below its character however wide the terminal draws them.
            let padding: String =
                excerpt.text.chars().take(excerpt.before).map(|c| if c == '\t' { c } else { ' ' }).collect();
            let gutter = self.line.to_string().len();
            write!(f, "\n  {} | {}\n  {:gutter$} | {padding}^", self.line, excerpt.text, "")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// All problems of a config that can't be used, warnings included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order of the files, the main file first; at least one is an error.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Most problems of one report: more help no reader, and a hostile file can't make the report larger than
/// itself.
const MAX_PROBLEMS: usize = 200;

/// Collects problems, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct ProblemLog {
    problems: RefCell<Vec<Problem>>,
    /// Number of problems beyond the limit.
    beyond: Cell<usize>,
    /// True if any of them, kept or not, was an error.
    has_error: Cell<bool>,
}

impl ProblemLog {
    /// Adds a problem; its text is built only if it is kept.
    pub(crate) fn add(&self, severity: Severity, problem: impl FnOnce() -> Problem) {
        self.has_error.set(self.has_error.get() || severity == Severity::Error);
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            problems.push(problem());
        } else {
            self.beyond.set(self.beyond.get() + 1);
        }
    }

    pub(crate) fn has_error(&self) -> bool {
        self.has_error.get()
    }

    /// Returns the problems in the order of the text, those of `main` first.
    pub(crate) fn finish(self, main: &std::path::Path) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| {
            let file = (a.file != main, &a.file).cmp(&(b.file != main, &b.file));
            file.then((a.line, a.column).cmp(&(b.line, b.column)))
        });
        let beyond = self.beyond.get();
        if beyond > 0 {
            let severity = if self.has_error.get() { Severity::Error } else { Severity::Warning };
            let place = SourceLocation { file: main.to_owned(), ..SourceLocation::default() };
            problems.push(problem_at(severity, place, "", format!("and {beyond} more problems"), None));
        }
        problems
    }
}

/// Creates a problem at a location.
pub(crate) fn problem_at(
    severity: Severity,
    place: SourceLocation,
    path: &str,
    message: String,
    hint: Option<String>,
) -> Problem {
    let SourceLocation { file, line, column, excerpt } = place;
    Problem { severity, file, line, column, path: path.to_owned(), message, hint, excerpt }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        Problem {
            severity: Severity::Error,
            file: "ostler.toml".into(),
            line: 12,
            column: 2,
            path: "servers.time.comand".into(),
            message: "unknown key `comand` in servers.time".into(),
            hint: Some("did you mean `command`?".into()),
            excerpt: Some(Excerpt { text: "\tcomand = 1".into(), before: 1 }),
        }
    }

    #[test]
    fn a_problem_points_at_its_line() {
        assert_eq!(
            problem().to_string(),
            "ostler.toml:12:2: error: unknown key `comand` in servers.time\n  \
             12 | \tcomand = 1\n     | \t^\n  hint: did you mean `command`?"
        );
    }

    #[test]
    fn a_problem_without_a_place_is_one_line() {
        let bare =
            Problem { file: PathBuf::new(), line: 0, column: 0, hint: None, excerpt: None, ..problem() };
        assert_eq!(bare.to_string(), "error: unknown key `comand` in servers.time");
    }

    #[test]
    fn a_problem_of_a_whole_file_names_the_file_alone() {
        let whole = Problem { line: 0, column: 0, hint: None, excerpt: None, ..problem() };
        assert_eq!(whole.to_string(), "ostler.toml: error: unknown key `comand` in servers.time");
        let report = ConfigError { problems: vec![whole.clone(), whole.clone()] };
        assert_eq!(report.to_string(), format!("{whole}\n{whole}"));
    }

    #[test]
    fn a_warning_points_at_the_line_that_it_came_from() {
        let warning = |origin| Problem::warning(origin, "a.b", "no".into(), "yes");
        let found = warning(Some((Path::new("f.toml"), 3)));
        assert_eq!(found.to_string(), "f.toml:3:1: warning: no\n  hint: yes");
        let bare = warning(None);
        assert_eq!((bare.line, bare.column, bare.to_string()), (0, 0, "warning: no\n  hint: yes".into()));
        assert!(!bare.is_error());
    }

    #[test]
    fn a_report_is_bounded_and_says_what_it_leaves_out() {
        let log = ProblemLog::default();
        for line in 0..MAX_PROBLEMS + 7 {
            let place = SourceLocation { line: line as u32, ..SourceLocation::default() };
            let severity = if line == MAX_PROBLEMS + 3 { Severity::Error } else { Severity::Warning };
            log.add(severity, || problem_at(severity, place, "", "x".into(), None));
        }
        assert!(log.has_error(), "an error beyond the limit still counts");
        let problems = log.finish("main".as_ref());
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        let last = problems.last().unwrap();
        assert_eq!(last.to_string(), "main: error: and 7 more problems");
    }
}
