//! Workspaces: directories that clients work in, compared by real path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_core::spec::Isolation;
use reqwest::Url;

use crate::host::Host;

/// Bounds the resolution of a directory: its file system may not answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Host {
    /// Returns whether the directory of a caller makes a difference to any server.
    pub fn has_workspaces(&self) -> bool {
        let current = self.current();
        current.servers.values().any(|server| server.spec.isolation == Isolation::Workspace)
    }
}

/// Returns the real path of a directory, for [`Caller::in_workspace`](crate::Caller::in_workspace); `None` if there is
/// no such directory. The root does not count: clients that the desktop starts have it as their working directory, and
/// no project of theirs lies there. Blocks on the file system.
pub fn resolve_workspace_blocking(folder: &Path) -> Option<String> {
    let real = folder.is_absolute().then(|| folder.canonicalize().ok()).flatten()?;
    if !real.is_dir() || real.parent().is_none() {
        return None;
    }
    real.into_os_string().into_string().ok().filter(|text| !text.contains(char::is_control))
}

/// Resolves a directory off the runtime, within two seconds.
pub async fn resolve_workspace(folder: PathBuf) -> Option<String> {
    let looking = tokio::task::spawn_blocking(move || resolve_workspace_blocking(&folder));
    tokio::time::timeout(RESOLVE_TIMEOUT, looking).await.ok()?.ok()?
}

/// Returns the directory that a `file:` URI of a client's roots names.
pub fn root_uri_to_path(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_workspace_is_the_real_path_of_a_directory_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("project")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        symlink(root.join("project"), root.join("link")).unwrap();
        let project = root.join("project").to_str().unwrap().to_owned();
        for named in ["project", "link", "project/../project/.", "./link/"] {
            assert_eq!(resolve_workspace_blocking(&root.join(named)), Some(project.clone()), "{named}");
        }
        for named in ["file", "missing", "project/missing"] {
            assert_eq!(resolve_workspace_blocking(&root.join(named)), None, "{named}");
        }
        std::fs::create_dir(root.join("a\nb")).unwrap();
        for named in [root.join("a\nb").as_path(), Path::new("/"), Path::new(""), Path::new("project")] {
            assert_eq!(resolve_workspace_blocking(named), None, "{named:?}");
        }
    }

    #[test]
    fn a_root_is_a_directory_only_as_a_file_uri_of_this_machine() {
        assert_eq!(root_uri_to_path("file:///home/ann/my%20shop"), Some("/home/ann/my shop".into()));
        assert_eq!(root_uri_to_path("file://localhost/home/ann"), Some("/home/ann".into()));
        for other in ["https://example.com/x", "file://server/x", "/home/ann", "", "file:"] {
            assert!(root_uri_to_path(other).is_none_or(|path| path == Path::new("/")), "{other}");
        }
    }
}
