//! Where problems gather while a config is read.

use std::cell::{Cell, RefCell};

use super::document::Place;
use super::problem::{Problem, Severity};

/// A person reads the report: more than this many problems help nobody, and a
/// hostile file can't make the report larger than itself.
const MOST: usize = 200;

/// Gathers problems, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Log {
    problems: RefCell<Vec<Problem>>,
    /// Problems beyond the limit.
    beyond: Cell<usize>,
    /// Whether any of them, kept or not, was an error.
    has_error: Cell<bool>,
}

impl Log {
    /// Adds a problem, which is put into words only if there is room for it.
    pub(crate) fn add(&self, severity: Severity, problem: impl FnOnce() -> Problem) {
        self.has_error.set(self.has_error.get() || severity == Severity::Error);
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MOST {
            problems.push(problem());
        } else {
            self.beyond.set(self.beyond.get() + 1);
        }
    }

    pub(crate) fn has_error(&self) -> bool {
        self.has_error.get()
    }

    /// The problems in the order of the text, those of `main` first.
    pub(crate) fn finish(self, main: &std::path::Path) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| {
            let file = (a.file != main, &a.file).cmp(&(b.file != main, &b.file));
            file.then((a.line, a.column).cmp(&(b.line, b.column)))
        });
        let beyond = self.beyond.get();
        if beyond > 0 {
            let severity = if self.has_error.get() { Severity::Error } else { Severity::Warning };
            let place = Place { file: main.to_owned(), ..Place::default() };
            problems.push(problem(severity, place, "", format!("and {beyond} more problems"), None));
        }
        problems
    }
}

/// A problem at a place.
pub(crate) fn problem(
    severity: Severity,
    place: Place,
    path: &str,
    message: String,
    hint: Option<String>,
) -> Problem {
    let Place { file, line, column, excerpt } = place;
    Problem { severity, file, line, column, path: path.to_owned(), message, hint, excerpt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_and_says_what_it_leaves_out() {
        let log = Log::default();
        for line in 0..MOST + 7 {
            let place = Place { line: line as u32, ..Place::default() };
            let severity = if line == MOST + 3 { Severity::Error } else { Severity::Warning };
            log.add(severity, || problem(severity, place, "", "x".into(), None));
        }
        assert!(log.has_error(), "an error beyond the limit still counts");
        let problems = log.finish("main".as_ref());
        assert_eq!(problems.len(), MOST + 1);
        let last = problems.last().unwrap();
        assert_eq!(last.to_string(), "main: error: and 7 more problems");
    }
}
