//! Files that only their user may read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// How such a file is opened.
pub(crate) fn file() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes a folder for such files, and those above it. One that is there stays as it is.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Replaces a file as a whole: a reader sees the old content or the new one. Folders above it are made.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    // The number keeps two hosts from writing the same file.
    let beside = path.with_extension(format!("{}.new", fastrand::u64(..)));
    let written =
        file().write(true).create_new(true).open(&beside).and_then(|mut file| file.write_all(content));
    written.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// Reads a file of at most so many bytes; `None` if it is larger or can't be read.
pub(crate) fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(most + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= most).then_some(content)
}
