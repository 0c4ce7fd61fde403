//! Lock file: beside the config and made to be committed. Its name is `ostler.lock` for `ostler.toml`,
//! `FILE.ostler.lock` for any other config, so that no two configs share one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::config::{Config, PinMode, Problem, Severity};
use ostler_core::pins::{LockFile, MAX_LOCK};
use ostler_core::shell::quote;

use crate::config_file::{read_at_most, relative_to_cwd};
use crate::failure::CommandFailure;
use crate::file_stamp::FileStamps;
use crate::invocation::command;

/// Config whose lock file does not contain its name.
const MAIN_CONFIG_NAME: &str = "ostler.toml";
/// Lock file of that config, and suffix of all others.
const LOCK_FILE_NAME: &str = "ostler.lock";

/// Parsed lock file; `None` if there is no file.
pub(crate) type LockFileResult = Result<Option<Arc<LockFile>>, LockFileError>;

/// Lock that was read before: an unchanged file is not read again.
#[derive(Debug, Clone)]
pub(crate) struct KnownLock {
    pub(crate) lock: Arc<LockFile>,
    /// Stamps of the read, which include the lock file's.
    pub(crate) stamps: FileStamps,
}

/// Failure of a lock file.
#[derive(Debug, Clone)]
pub(crate) struct LockFileError {
    pub(crate) file: PathBuf,
    pub(crate) why: String,
    pub(crate) hint: String,
}

impl From<LockFileError> for CommandFailure {
    fn from(broken: LockFileError) -> Self {
        let LockFileError { file, why, hint } = broken;
        Self::Lock { file: relative_to_cwd(&file).to_owned(), why, hint }
    }
}

/// Returns the path of a config's lock file.
pub(crate) fn lock_file_path(config: &Path) -> PathBuf {
    match config.file_name() {
        Some(name) if name != MAIN_CONFIG_NAME => {
            let mut name = name.to_owned();
            name.push(".");
            name.push(LOCK_FILE_NAME);
            config.with_file_name(name)
        }
        _ => config.with_file_name(LOCK_FILE_NAME),
    }
}

/// Finds an `ostler.lock` that belongs to no config, beside one without a lock file: it may hold what was approved for
/// this one.
fn find_stray(config: &Path, file: &Path) -> Option<LockFileError> {
    let other = config.with_file_name(LOCK_FILE_NAME);
    if other == file || !other.exists() || config.with_file_name(MAIN_CONFIG_NAME).exists() {
        return None;
    }
    let name = |path: &Path| quote(&relative_to_cwd(path).display().to_string());
    Some(LockFileError {
        why: format!(
            "it is the lock file of {MAIN_CONFIG_NAME}, which is not there; that of this config is {}",
            name(file)
        ),
        hint: format!("if it is this config's: `mv {} {}`; else remove it", name(&other), name(file)),
        file: other,
    })
}

/// Reads the lock file of a config, and adds its stamp. An unchanged file is not read again: a lock has some megabytes,
/// and a config is edited often.
pub(crate) fn read(config: &Path, stamps: &mut FileStamps, known: Option<&KnownLock>) -> LockFileResult {
    let file = lock_file_path(config);
    stamps.add(&file);
    if let Some(known) = known.filter(|known| known.stamps.subset(&file) == stamps.subset(&file)) {
        return Ok(Some(Arc::clone(&known.lock)));
    }
    let text = match read_at_most(&file, MAX_LOCK as u64) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return find_stray(config, &file).map_or(Ok(None), Err);
        }
        Err(error) => {
            let hint = "make it readable, or take the last committed version back".to_owned();
            return Err(LockFileError { file, why: error.to_string(), hint });
        }
    };
    LockFile::parse(&text).map(|lock| Some(Arc::new(lock))).map_err(|error| LockFileError {
        why: error.to_string(),
        hint: error.hint(command),
        file,
    })
}

/// Returns the problems of a lock file: it can't be used, or it is missing.
pub(crate) fn check(config: &Config, locked: &LockFileResult) -> Vec<Problem> {
    let problem = |severity, (file, line): (&Path, u32), message: String, hint: String| Problem {
        severity,
        file: file.to_owned(),
        line,
        column: u32::from(line > 0),
        path: "pins".into(),
        message,
        hint: Some(hint),
        excerpt: None,
    };
    match locked {
        Ok(Some(lock)) => {
            let is_pinned = |server: &str| config.server(server).is_some_and(|spec| spec.is_pinned);
            let old = lock
                .servers
                .iter()
                .filter(|(server, locked)| is_pinned(server.as_str()) && locked.unpinned().next().is_some());
            let old: Vec<&str> = old.map(|(server, _)| server.as_str()).collect();
            let place =
                (config.origin_of_pins().map_or_else(|| Path::new(LOCK_FILE_NAME), |(file, _)| file), 0);
            let mut problems = Vec::new();
            if !old.is_empty() && config.pins != PinMode::Off {
                let message = format!(
                    "the lock file pins only tools of {}; instructions, prompts and resources of these servers are not compared",
                    old.join(", ")
                );
                let hint = format!("{} pins what is missing", command("lock"));
                problems.push(problem(Severity::Warning, place, message, hint));
            }
            if let Some((message, hint)) = describe_unlocked(config, lock, "the lock file") {
                problems.push(problem(Severity::Warning, place, message, hint));
            }
            problems
        }
        Ok(None) => {
            let place = config.origin_of_pins().filter(|_| config.pins != PinMode::Off);
            let message = "there is no lock file beside the config, so no tool is pinned".to_owned();
            let hint = format!("{} makes one", command("lock"));
            place.map(|place| problem(Severity::Warning, place, message, hint)).into_iter().collect()
        }
        Err(LockFileError { file, why, hint }) => {
            vec![problem(Severity::Error, (file, 0), why.clone(), hint.clone())]
        }
    }
}

/// Describes the servers of a config that a lock lacks, the consequence, and the remedy; `None` if it has all of them
/// or pins are off.
pub(crate) fn describe_unlocked(config: &Config, lock: &LockFile, file: &str) -> Option<(String, String)> {
    let consequence = match config.pins {
        PinMode::Enforce => "are refused",
        PinMode::Warn => "are used without approval",
        PinMode::Off => return None,
    };
    let pinned = config.servers.iter().filter(|spec| spec.is_pinned).map(|spec| spec.name.as_str());
    let unlocked: Vec<&str> = pinned.filter(|name| !lock.servers.contains_key(*name)).collect();
    let message = format!(
        "{file} does not have {}: once there is a lock file, all tools of servers that it does not have {consequence}",
        unlocked.join(", ")
    );
    (!unlocked.is_empty()).then(|| (message, format!("{} pins every server of the config", command("lock"))))
}

/// Writes the lock file beside itself and renames it, so that a reader sees the old one or the new one. Its permissions
/// stay. Returns the text.
pub(crate) fn write(file: &Path, lock: &LockFile) -> Result<String, CommandFailure> {
    let unwritable =
        |why: io::Error| CommandFailure::Unwritable { file: relative_to_cwd(file).to_owned(), why };
    let target = write_target(file).map_err(unwritable)?;
    let text = lock.write();
    let beside = target.with_extension(format!("lock.{}", std::process::id()));
    // A killed process of the same pid may have left this file.
    let _ = fs::remove_file(&beside);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)
        .and_then(|mut open| {
            if let Ok(before) = fs::metadata(&target) {
                open.set_permissions(before.permissions())?;
            }
            open.write_all(text.as_bytes())?;
            open.sync_all()
        })
        .and_then(|()| fs::rename(&beside, &target));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map(|()| text).map_err(unwritable)
}

/// Returns the file to write. A link within the directory is followed. A link to elsewhere is refused, because its
/// target need not be a lock file.
fn write_target(file: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(file) {
        Ok(meta) if meta.is_symlink() => {
            let end = fs::canonicalize(file)?;
            let home = file.parent().map(fs::canonicalize).transpose()?;
            match end.parent() == home.as_deref() {
                true => Ok(end),
                false => Err(io::Error::other(format!(
                    "it is a symbolic link to {}; put a file in its place",
                    end.display()
                ))),
            }
        }
        Ok(meta) if !meta.is_file() => Err(io::Error::other("it is not a file")),
        _ => Ok(file.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_lock_file_keeps_its_mode_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(LOCK_FILE_NAME);
        write(&file, &LockFile::default()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        write(&file, &LockFile::default()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let read = read(&folder.path().join("ostler.toml"), &mut FileStamps::default(), None);
        assert_eq!(read.unwrap(), Some(LockFile::default().into()));
    }

    #[test]
    fn a_lock_file_that_has_not_changed_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (config, file) = (folder.path().join(MAIN_CONFIG_NAME), folder.path().join(LOCK_FILE_NAME));
        write(&file, &LockFile::default()).unwrap();
        let mut stamps = FileStamps::default();
        stamps.add(&config);
        let lock = read(&config, &mut stamps, None).unwrap().unwrap();
        let known = KnownLock { lock: Arc::clone(&lock), stamps };
        fs::write(&config, "").unwrap();
        let read_again = || read(&config, &mut FileStamps::default(), Some(&known));
        assert!(Arc::ptr_eq(&lock, &read_again().unwrap().unwrap()), "an edit of the config leaves it");
        write(&file, &LockFile::default()).unwrap();
        assert!(!Arc::ptr_eq(&lock, &read_again().unwrap().unwrap()));
        fs::write(&file, "rubbish").unwrap();
        read_again().unwrap_err();
        fs::remove_file(&file).unwrap();
        assert_eq!(read_again().unwrap(), None);
    }

    #[test]
    fn two_configs_in_one_directory_have_a_lock_file_each() {
        let table = [
            ("/x/ostler.toml", "/x/ostler.lock"),
            ("/x/.mcp.json", "/x/.mcp.json.ostler.lock"),
            ("/x/team.toml", "/x/team.toml.ostler.lock"),
            ("/x/team.json", "/x/team.json.ostler.lock"),
        ];
        for (config, lock) in table {
            assert_eq!(lock_file_path(Path::new(config)), Path::new(lock));
        }
    }

    #[test]
    fn a_lock_file_that_is_no_configs_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join(".mcp.json");
        let read = || read(&config, &mut FileStamps::default(), None);
        write(&folder.path().join(LOCK_FILE_NAME), &LockFile::default()).unwrap();
        assert!(read().unwrap_err().hint.contains(".mcp.json.ostler.lock"));
        fs::write(folder.path().join(MAIN_CONFIG_NAME), "").unwrap();
        assert_eq!(read().unwrap(), None);
        fs::remove_file(folder.path().join(MAIN_CONFIG_NAME)).unwrap();
        write(&lock_file_path(&config), &LockFile::default()).unwrap();
        assert_eq!(read().unwrap(), Some(LockFile::default().into()));
    }

    #[test]
    fn a_link_to_elsewhere_is_not_followed() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, far, near) =
            (here.path().join(LOCK_FILE_NAME), there.path().join("x"), here.path().join("near"));
        fs::write(&far, "mine").unwrap();
        symlink(&far, &file).unwrap();
        assert!(write(&file, &LockFile::default()).is_err());
        assert_eq!(fs::read_to_string(&far).unwrap(), "mine");
        fs::remove_file(&file).unwrap();
        fs::write(&near, "").unwrap();
        symlink("near", &file).unwrap();
        write(&file, &LockFile::default()).unwrap();
        assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
        assert!(!fs::read_to_string(&near).unwrap().is_empty());
    }
}
