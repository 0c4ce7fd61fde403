//! Kernels and sandboxes that refuse a system call.
#![allow(unsafe_code, reason = "only a system call can install a filter of system calls")]

use std::fs::File;

use nix::libc;
use ostler_testkit::read_lines;

use crate::fixture::{ProcessFixture, process_of};

/// Makes a system call fail with this error, for this thread and all that it starts.
fn refuse(call: libc::c_long, error: i32) {
    let op = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut steps = [
        // The number of the system call is the first field of a filter's input.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | error as u32),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which outlives the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
        assert_eq!(libc::close_range(9_000, 9_000, 0), -1);
    }
}

/// Starts a server that lists its descriptors, from a process with an inheritable one.
async fn descriptors_of_a_server(stage: &ProcessFixture) -> Vec<String> {
    let marker = File::create(stage.file("marker")).unwrap();
    // A duplicate is not close-on-exec, as in a program without care for descriptors.
    let careless = nix::unistd::dup(&marker).unwrap();
    let list = stage.path("list");
    let mut spec = ostler_testkit::fake_mcp_spec("fake", &[]);
    let process = process_of(&mut spec);
    let line = format!("ls -l /proc/$$/fd > '{list}'; exec '{}'", process.command);
    (process.command, process.args) = ("sh".into(), vec!["-c".into(), line]);
    stage.spawn(spec).await;
    drop(careless);
    read_lines(&stage.file("list"))
}

#[tokio::test]
async fn servers_inherit_nothing_where_descriptors_can_not_be_closed_as_a_range() {
    // The former is the error of older kernels, the latter of sandboxes.
    for error in [libc::ENOSYS, libc::EPERM] {
        refuse(libc::SYS_close_range, error);
        for stage in [ProcessFixture::guarded(), ProcessFixture::unguarded()] {
            let lines = descriptors_of_a_server(&stage).await;
            assert!(lines.len() > 3, "{lines:?}");
            assert!(!lines.iter().any(|line| line.contains("marker")), "{error}: {lines:#?}");
            stage.close().await;
        }
    }
}
