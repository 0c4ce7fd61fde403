//! Round trip of an echo over the pipe, measured.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 20_000;

#[test]
#[ignore = "a figure to read, not a limit to hold"]
fn twenty_thousand_sequential_echoes_are_all_answered() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fake-mcp"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut send = |request: String| {
        input.write_all(request.as_bytes()).unwrap();
        line.clear();
        output.read_line(&mut line).unwrap();
        assert!(line.contains("\"result\""), "{line}");
    };
    send("{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n".into());
    let begin = Instant::now();
    for id in 1..=ROUNDS {
        let first =
            if id == 1 { "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n" } else { "" };
        send(format!(
            "{first}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\
             \"arguments\":{{\"payload\":\"0123456789012345678901234567890123456789\"}}}}}}\n"
        ));
    }
    let elapsed = begin.elapsed();
    drop(input);
    child.wait().unwrap();
    #[expect(clippy::print_stderr, reason = "the figure is the point")]
    {
        eprintln!("{ROUNDS} echoes: {elapsed:?}, {:?} each", elapsed / ROUNDS as u32);
    }
}
