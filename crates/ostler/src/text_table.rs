//! Text tables: columns as wide as their cells, the last one cut at the terminal's edge.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{Style, Tint, escape_line};

/// Spaces between columns: one could be part of a cell.
const GAP: usize = 2;

/// Minimum width of the last column: a line that wraps tells more than a word that is cut off.
const MIN_LAST_COLUMN: usize = 24;

/// Table of text.
#[derive(Debug)]
pub(crate) struct TextTable {
    heading: Vec<&'static str>,
    /// Rows, each with as many cells as `heading`.
    rows: Vec<Vec<TableCell>>,
}

/// Cell: text that is escaped for a terminal, and its colour.
#[derive(Debug)]
pub(crate) struct TableCell {
    text: String,
    tint: Tint,
}

impl TableCell {
    /// Returns a cell in a colour.
    pub(crate) fn tinted(text: &str, tint: Tint) -> Self {
        Self { text: escape_line(text), tint }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: AsRef<str>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::tinted(text.as_ref(), Tint::Plain)
    }
}

impl TextTable {
    /// Returns a table without rows.
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row of as many cells as the heading has.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        let row: Vec<TableCell> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.heading.len());
        self.rows.push(row);
    }

    /// Returns the table as lines, each with its newline; an empty string if there is no row.
    pub(crate) fn render(&self, style: Style, width: Option<usize>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let heading: Vec<TableCell> =
            self.heading.iter().map(|text| TableCell::tinted(text, Tint::Heading)).collect();
        let lines: Vec<&Vec<TableCell>> = std::iter::once(&heading).chain(&self.rows).collect();
        let last = heading.len().saturating_sub(1);
        let widths: Vec<usize> =
            (0..last).map(|at| lines.iter().map(|line| line[at].width()).max().unwrap_or(0)).collect();
        let used: usize = widths.iter().map(|width| width + GAP).sum();
        let room = width.map(|width| width.saturating_sub(used).max(MIN_LAST_COLUMN));
        let mut text = String::new();
        for line in lines {
            for (cell, width) in line.iter().zip(&widths) {
                text.push_str(&style.paint(cell.tint, &cell.text));
                text.push_str(&" ".repeat(width - cell.width() + GAP));
            }
            if let Some(cell) = line.last() {
                text.push_str(&style.paint(cell.tint, &truncate(&cell.text, room)));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// Returns as much of the text as fits, with `…` where something is missing.
pub(crate) fn truncate(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| text.width() > *room) else { return text.to_owned() };
    let mut left = room.saturating_sub(1);
    let mut kept = String::new();
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if width > left {
            break;
        }
        left -= width;
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// Returns the text as lines of at most this many columns, broken at spaces where there are any.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split_inclusive(' ') {
        if used > 0 && used + word.trim_end().width() > room {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
            used = 0;
        }
        for c in word.chars() {
            let width = c.width().unwrap_or(0);
            if used > 0 && used + width > room {
                if c == ' ' {
                    continue;
                }
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
                used = 0;
            }
            used += width;
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_in_words_that_are_too_long() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh 日本語", 5), ["abcde", "fgh", "日本", "語"]);
        assert_eq!(wrap("ok      error", 5), ["ok", "error"]);
        assert_eq!(wrap("", 5), [""]);
    }

    fn table() -> TextTable {
        let mut table = TextTable::new(&["NAME", "WHAT"]);
        table.row(["日本".into(), "a long description that goes on and on".into()]);
        table.row(["time".into(), "".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_the_last_is_cut() {
        assert_eq!(
            table().render(Style::plain(), Some(31)),
            "NAME  WHAT\n日本  a long description that…\ntime\n"
        );
    }

    #[test]
    fn without_a_width_nothing_is_cut() {
        assert!(table().render(Style::plain(), None).contains("on and on\n"));
    }

    #[test]
    fn a_terminal_that_is_too_narrow_still_shows_something() {
        assert!(table().render(Style::plain(), Some(3)).contains("a long description"));
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        assert_eq!(TextTable::new(&["NAME"]).render(Style::plain(), None), "");
    }
}
