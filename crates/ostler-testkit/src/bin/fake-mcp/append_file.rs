//! Files that count what happened, shared by every process a test starts.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// A file of lines. Each line is one `write` in append mode, so lines of several processes never mix.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
}

impl AppendFile {
    /// Opens the file, creating it if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Appends one line. A test that can't be recorded must not pass for another reason, so failure ends the process.
    pub(crate) fn append(&self, line: &str) {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        let written = (&self.file).write(&bytes);
        if !matches!(written, Ok(count) if count == bytes.len()) {
            let _ = writeln!(io::stderr(), "fake-mcp: a journal can't be written");
            std::process::exit(3);
        }
    }
}

/// The line of one executed call. Arguments come last because raw JSON may hold tabs.
pub(crate) fn execution_line(tool: &str, key: &str, arguments: &str) -> String {
    format!("{}\t{tool}\t{key}\t{arguments}", std::process::id())
}
