//! Unreadable programs: a guard whose file can't be read any more still stops its server.
//!
//! The guard's program is on a file system in a file, which is truncated once the servers run. Its pages that are in
//! no process's memory are gone then.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use ostler_host::HostOptions;
use ostler_host::process::GuardCommand;
use ostler_testkit::{Proc, become_subreaper, eventually, fake_mcp_spec, ostler};
use tempfile::TempDir;

use crate::fixture::{LONG, ProcessFixture, restarting_forever};

/// A mounted file system with a copy of the program.
struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Mounts one; `None` if that is not permitted, as for ordinary users.
    fn mount() -> Option<Self> {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        let (image, at) = (disk.folder.path().join("image"), disk.folder.path().join("at"));
        let size = 2 * std::fs::metadata(ostler()).unwrap().len();
        File::create(&image).unwrap().set_len(size).unwrap();
        std::fs::create_dir(&at).unwrap();
        let is_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_made = is_done(Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal"]).arg(&image));
        let is_mounted = is_made && is_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        if !is_mounted {
            println!("skipped: no file system can be mounted here");
            return None;
        }
        std::fs::copy(ostler(), disk.program()).unwrap();
        File::open(disk.program()).unwrap().sync_all().unwrap();
        Some(disk)
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("at/ostler")
    }

    /// Makes all pages unreadable that no process has in its memory.
    fn lose(&self) {
        let program = File::open(self.program()).unwrap();
        File::options().write(true).open(self.folder.path().join("image")).unwrap().set_len(0).unwrap();
        posix_fadvise(&program, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }

    fn stage(&self) -> ProcessFixture {
        let guard = GuardCommand { program: self.program(), args: vec!["guard".into(), "--warden".into()] };
        ProcessFixture::with_options(HostOptions {
            guard: Some(guard),
            max_processes: 64,
            ..HostOptions::default()
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("at")).output();
    }
}

/// Starts a server that ignores all signals and has two helpers in sessions of their own.
async fn start_deaf(stage: &ProcessFixture) -> Vec<Proc> {
    let (setsid, twice) = (stage.path("setsid"), stage.path("twice"));
    let args =
        ["--ignore-sigterm", "--ignore-stdin-close", "--fork-setsid", &setsid, "--double-fork", &twice];
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &args))).await;
    let all = stage.guard("fake").descendants();
    assert_eq!(all.len(), 3);
    all
}

async fn assert_gone(all: &[Proc]) {
    eventually("nothing is left", LONG, || all.iter().all(|proc| !proc.is_alive())).await;
}

#[tokio::test]
async fn a_stop_leaves_nothing_when_the_program_can_no_longer_be_read() {
    become_subreaper();
    let Some(disk) = Disk::mount() else { return };
    let stage = disk.stage();
    let all = start_deaf(&stage).await;
    disk.lose();
    stage.host.stop("fake").await.unwrap();
    assert_gone(&all).await;
    stage.close().await;
}

#[tokio::test]
async fn a_killed_guard_leaves_nothing_when_the_program_can_no_longer_be_read() {
    become_subreaper();
    let Some(disk) = Disk::mount() else { return };
    let stage = disk.stage();
    let all = start_deaf(&stage).await;
    let guard = stage.guard("fake");
    disk.lose();
    guard.kill();
    assert_gone(&all).await;
    stage.host.shutdown().await;
}
