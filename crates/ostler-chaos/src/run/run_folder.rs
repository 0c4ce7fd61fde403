//! The folder of a run, and what becomes of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// A folder that is removed at the end, or kept.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: TempDir,
    /// Where the records are wanted: an empty folder until then.
    destination: Option<PathBuf>,
}

impl RunFolder {
    /// Makes both folders. What can't be kept in the end is known before anything is run.
    pub(crate) fn prepare(place: Option<&Path>) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("chaos-").tempdir().context("can't make a folder to run in")?;
        if let Some(place) = place {
            make(place)?;
        }
        Ok(Self { folder, destination: place.map(Path::to_owned) })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the records are now, if they are kept: where they are wanted, or where they are if a promise was broken.
    pub(crate) fn finish(self, is_broken: bool) -> anyhow::Result<Option<PathBuf>> {
        let Some(place) = self.destination else {
            return Ok(is_broken.then(|| self.folder.keep()));
        };
        let folder = self.folder.keep();
        let Err(error) = std::fs::rename(&folder, &place) else { return Ok(Some(place)) };
        // Another file system takes no folder of this one.
        let copied = std::process::Command::new("cp").arg("-aT").arg(&folder).arg(&place).status();
        if !copied.is_ok_and(|status| status.success()) {
            bail!(
                "the records can't be moved to {} ({error}): they are in {}",
                place.display(),
                folder.display()
            );
        }
        std::fs::remove_dir_all(&folder)?;
        Ok(Some(place))
    }
}

fn make(place: &Path) -> anyhow::Result<()> {
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("--keep: can't make {}", parent.display()))?;
    }
    match std::fs::create_dir(place) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("--keep: {} is there already; name a folder that is not", place.display())
        }
        made => made.with_context(|| format!("--keep: can't make {}", place.display())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_where_they_are_wanted_or_where_a_promise_was_broken() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("deep/kept");
        let keeping = RunFolder::prepare(Some(&place)).unwrap();
        let folder = keeping.folder().to_owned();
        std::fs::write(folder.join("record"), "x").unwrap();
        assert_eq!(keeping.finish(false).unwrap(), Some(place.clone()));
        assert!(place.join("record").is_file() && !folder.exists());

        let keeping = RunFolder::prepare(None).unwrap();
        let folder = keeping.folder().to_owned();
        assert_eq!(keeping.finish(false).unwrap(), None);
        assert!(!folder.exists());

        let kept = RunFolder::prepare(None).unwrap().finish(true).unwrap().unwrap();
        assert!(kept.is_dir());
        std::fs::remove_dir(kept).unwrap();
    }

    #[test]
    fn a_place_that_is_taken_or_can_t_be_made_is_refused_at_once() {
        let home = tempfile::tempdir().unwrap();
        let told = |place: &Path| RunFolder::prepare(Some(place)).unwrap_err().to_string();
        assert!(told(home.path()).contains("is there already"));
        let file = home.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(told(&file).contains("is there already"));
        assert!(told(&file.join("kept")).contains("can't make"));
    }
}
