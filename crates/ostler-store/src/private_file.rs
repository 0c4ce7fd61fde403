//! Files and folders that only their user may read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Returns options that create a file with the mode 0600.
pub fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates a folder with the mode 0700, and its parents. An existing folder stays as it is.
pub fn create_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates the parent folder of a file.
pub fn create_parent_dir(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => create_dir(folder),
        _ => Ok(()),
    }
}

/// Replaces a file atomically: a reader sees the old content or the new one.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    // The number keeps two writers of the same file apart.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{:x}.new", fastrand::u64(..)));
    let beside = Path::new(&beside);
    let written =
        open_options().write(true).create_new(true).open(beside).and_then(|mut file| file.write_all(content));
    written.and_then(|()| fs::rename(beside, path)).inspect_err(|_| {
        let _ = fs::remove_file(beside);
    })
}

/// Reads a file of at most that many bytes; `None` if it is larger or can't be read.
pub fn read_at_most(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(most + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= most).then_some(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        assert!(replace_file(&path, b"old").is_err(), "no folder is made unasked");
        create_parent_dir(&path).unwrap();
        replace_file(&path, b"old").unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!(read_at_most(&path, 3).unwrap(), b"new");
        assert_eq!(read_at_most(&path, 2), None, "larger than that");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }
}
