//! Folder of a run: removed at the end, or kept at its destination.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// The folder of a run, removed at the end unless the records are kept.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: TempDir,
    /// The destination of the records: an empty folder until the end.
    destination: Option<PathBuf>,
}

impl RunFolder {
    /// Creates both folders, so that a destination that can't be used fails before anything is
    /// started.
    pub(crate) fn prepare(destination: Option<&Path>) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("chaos-").tempdir().context("can't make a folder to run in")?;
        if let Some(destination) = destination {
            make_folder(destination)?;
        }
        Ok(Self { folder, destination: destination.map(Path::to_owned) })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder of the records, if they are kept: the destination, or the run's own
    /// folder if a promise was broken.
    pub(crate) fn finish(self, is_broken: bool) -> anyhow::Result<Option<PathBuf>> {
        let Some(destination) = self.destination else {
            return Ok(is_broken.then(|| self.folder.keep()));
        };
        let folder = self.folder.keep();
        let Err(error) = std::fs::rename(&folder, &destination) else { return Ok(Some(destination)) };
        // A rename fails across file systems.
        let copied = std::process::Command::new("cp").arg("-aT").arg(&folder).arg(&destination).status();
        if !copied.is_ok_and(|status| status.success()) {
            bail!(
                "the records can't be moved to {} ({error}): they are in {}",
                destination.display(),
                folder.display()
            );
        }
        std::fs::remove_dir_all(&folder)?;
        Ok(Some(destination))
    }
}

fn make_folder(destination: &Path) -> anyhow::Result<()> {
    if let Some(parent) = destination.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("--keep: can't make {}", parent.display()))?;
    }
    match std::fs::create_dir(destination) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("--keep: {} is there already; name a folder that is not", destination.display())
        }
        made => made.with_context(|| format!("--keep: can't make {}", destination.display())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test that took it")]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_where_they_are_wanted_or_where_a_promise_was_broken() {
        let home = tempfile::tempdir().unwrap();
        let destination = home.path().join("deep/kept");
        let run_folder = RunFolder::prepare(Some(&destination)).unwrap();
        let folder = run_folder.folder().to_owned();
        std::fs::write(folder.join("record"), "x").unwrap();
        assert_eq!(run_folder.finish(false).unwrap(), Some(destination.clone()));
        assert!(destination.join("record").is_file() && !folder.exists());

        let run_folder = RunFolder::prepare(None).unwrap();
        let folder = run_folder.folder().to_owned();
        assert_eq!(run_folder.finish(false).unwrap(), None);
        assert!(!folder.exists());

        let kept = RunFolder::prepare(None).unwrap().finish(true).unwrap().unwrap();
        assert!(kept.is_dir());
        std::fs::remove_dir(kept).unwrap();
    }

    #[test]
    fn a_place_that_is_taken_or_can_t_be_made_is_refused_at_once() {
        let home = tempfile::tempdir().unwrap();
        let refusal = |destination: &Path| RunFolder::prepare(Some(destination)).unwrap_err().to_string();
        assert!(refusal(home.path()).contains("is there already"));
        let file = home.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(refusal(&file).contains("is there already"));
        assert!(refusal(&file.join("kept")).contains("can't make"));
    }
}
