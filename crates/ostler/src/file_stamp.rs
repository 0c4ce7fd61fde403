//! File stamps, by which a change of files since they were read is detected.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Stamps of files, from their metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FileStamps(BTreeMap<PathBuf, Option<FileStamp>>);

/// Linux follows as many links in a row.
const MAX_LINKS: usize = 40;

/// Size, times and inode: no two writes leave all of them the same. A file without readable metadata has no stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    size: u64,
    changed: (i64, i64),
    inode: u64,
}

impl FileStamps {
    /// Adds the current stamp of a file. The caller adds it before reading the file, so that a write meanwhile is seen
    /// as a change.
    pub(crate) fn add(&mut self, file: &Path) {
        self.0.insert(file.to_owned(), FileStamp::read(file));
    }

    /// Returns the stamp of one file alone.
    pub(crate) fn subset(&self, file: &Path) -> Self {
        Self(self.0.get_key_value(file).map(|(file, stamp)| (file.clone(), *stamp)).into_iter().collect())
    }

    /// Returns the current stamps of the same files.
    pub(crate) fn refreshed(&self) -> Self {
        Self(self.0.keys().map(|file| (file.clone(), FileStamp::read(file))).collect())
    }

    /// Returns the directories to watch for changes of the files; of a link, those of both ends.
    pub(crate) fn dirs(&self) -> BTreeSet<PathBuf> {
        let ends = self.0.keys().flat_map(|file| [Some(file.clone()), file.canonicalize().ok()]);
        ends.flatten().filter_map(|file| file.parent().map(Path::to_owned)).collect()
    }

    /// Returns the file names to watch: those of the files, and every part of the links to them, any of which may be
    /// redirected.
    pub(crate) fn names(&self) -> BTreeSet<OsString> {
        let mut names = BTreeSet::new();
        for file in self.0.keys() {
            names.extend(file.file_name().map(OsString::from));
            let mut end = file.clone();
            for _ in 0..MAX_LINKS {
                let Ok(target) = fs::read_link(&end) else { break };
                names.extend(target.components().filter_map(|part| match part {
                    Component::Normal(name) => Some(name.to_owned()),
                    _ => None,
                }));
                end = end.parent().unwrap_or(Path::new("/")).join(target);
            }
            names.extend(file.canonicalize().ok().and_then(|file| file.file_name().map(OsString::from)));
        }
        names
    }
}

impl FileStamp {
    fn read(file: &Path) -> Option<Self> {
        let meta = fs::metadata(file).ok()?;
        Some(Self { size: meta.size(), changed: (meta.mtime(), meta.mtime_nsec()), inode: meta.ino() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_file_shows() {
        let folder = tempfile::tempdir().unwrap();
        let (file, beside) = (folder.path().join("a"), folder.path().join("b"));
        let stamps = |file: &Path| {
            let mut stamps = FileStamps::default();
            stamps.add(file);
            stamps
        };
        let absent = stamps(&file);
        fs::write(&file, "one").unwrap();
        let first = absent.refreshed();
        assert_ne!(first, absent);
        assert_eq!(first.refreshed(), first);
        fs::write(&beside, "two").unwrap();
        fs::rename(&beside, &file).unwrap();
        assert_ne!(first.refreshed(), first);
        fs::remove_file(&file).unwrap();
        assert_eq!(first.refreshed(), absent);
    }

    #[test]
    fn of_a_link_both_ends_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/a"), "").unwrap();
        std::os::unix::fs::symlink(root.join("real/a"), root.join("a")).unwrap();
        let mut stamps = FileStamps::default();
        stamps.add(&root.join("a"));
        assert_eq!(stamps.dirs(), BTreeSet::from([root.clone(), root.join("real")]));
    }

    #[test]
    fn every_part_of_a_chain_of_links_has_a_name_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("first")).unwrap();
        fs::write(root.join("first/real"), "").unwrap();
        std::os::unix::fs::symlink("first", root.join("current")).unwrap();
        std::os::unix::fs::symlink("current/real", root.join("middle")).unwrap();
        std::os::unix::fs::symlink("middle", root.join("a")).unwrap();
        let mut stamps = FileStamps::default();
        stamps.add(&root.join("a"));
        let names = ["a", "current", "middle", "real"].map(OsString::from);
        assert_eq!(stamps.names(), BTreeSet::from(names));
    }
}
