//! Raw pipe, as the lower bound: requests go out in batches as answers arrive; answers are counted
//! by their newlines and not parsed.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::{Cpu, HostMeasurement};
use crate::closed_loop::{LoadCell, arguments};

pub(crate) async fn measure(load: LoadCell) -> HostMeasurement {
    let mut server = Command::new(ostler_testkit::fake_mcp())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("fake-mcp starts");
    let (mut stdin, mut stdout) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}"#;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    stdin.write_all(format!("{initialize}\n{ready}\n").as_bytes()).await.unwrap();
    let mut chunk = vec![0; 256 << 10];
    assert!(stdout.read(&mut chunk).await.unwrap() > 0, "the server ended");
    let arguments = arguments(load.payload);
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
    ) + "\n";
    let (due_sender, mut due_receiver) = mpsc::channel::<usize>(load.callers);
    // Both ends in one task would deadlock as soon as the pipes are full.
    let writer = tokio::spawn(async move {
        while let Some(mut due) = due_receiver.recv().await {
            while let Ok(more) = due_receiver.try_recv() {
                due += more;
            }
            if stdin.write_all(request.repeat(due).as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut sent = VecDeque::new();
    let mut times = Vec::new();
    let (began, cpu) = (Instant::now(), Cpu::now());
    let mut due = load.callers;
    while began.elapsed() < load.time {
        sent.extend(std::iter::repeat_n(Instant::now(), due));
        if due > 0 {
            due_sender.send(due).await.unwrap();
        }
        let n = stdout.read(&mut chunk).await.unwrap();
        assert!(n > 0, "the server ended");
        due = memchr::memchr_iter(b'\n', &chunk[..n]).count();
        let now = Instant::now();
        times.extend(sent.drain(..due).map(|at| now - at));
    }
    let took = began.elapsed();
    writer.abort();
    HostMeasurement::from_times(times, took, cpu)
}
